"""HTML and SVG from values: what isn't markup already is escaped, so a queue's name stays a name."""

from __future__ import annotations

import html

from pgque_exporter.terminal import printable


class Markup(str):
    """Text that is HTML or SVG already."""

    __slots__ = ()


def text(value: str) -> Markup:
    """Any text as markup; characters that would turn or hide what stands around them as escapes."""
    return Markup(html.escape(printable(value)))


def element(name: str, *children: str | None, **attributes: object) -> Markup:
    """An element. An attribute that is None or False is left out, one that is True has no value.

    `class_` is the class; an underscore within a name stands for a hyphen. Children that are None are
    left out.
    """
    given = "".join(_attribute(key, value) for key, value in attributes.items())
    inside = join(*children)
    if not children and name in _VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{inside}</{name}>")


def join(*parts: str | None) -> Markup:
    """Parts one after the other."""
    return Markup(
        "".join(part if isinstance(part, Markup) else text(part) for part in parts if part is not None)
    )


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    if isinstance(value, float):
        value = f"{value:.4g}" if abs(value) < 1 else f"{value:.1f}".removesuffix(".0")
    return f' {name}="{text(str(value))}"'


_VOID = frozenset({"meta", "br"})
