"""Text for people: durations, counts, aligned tables, and colour where a terminal shows it."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

UNKNOWN = "-"
_COLOURS = {"ok": "32", "warning": "33", "critical": "1;31", "unknown": "35", "heading": "1", "quiet": "2"}
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def supports_colour(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether colours are welcome: on a terminal that knows them, unless NO_COLOR is set."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


@dataclass(frozen=True)
class Paint:
    """Puts a style around a text, or leaves it as it is."""

    enabled: bool

    def __call__(self, text: str, style: str) -> str:
        """`text` in this style; what has no style stays plain."""
        code = _COLOURS.get(style)
        return f"\x1b[{code}m{text}\x1b[0m" if self.enabled and code and text else text


def duration(seconds: float | None) -> str:
    """2.1s, 1m12s, 1h23m, 3d4h: at most two units, so that nobody has to count digits."""
    if seconds is None:
        return UNKNOWN
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    tenths = round(seconds * 10)
    if tenths < 600:
        return f"{sign}{tenths // 10}s" if tenths % 10 == 0 else f"{sign}{tenths / 10:.1f}s"
    whole = round(seconds)
    # From hours on seconds are noise, from days on minutes are.
    whole -= whole % (3600 if whole >= 86400 else 60 if whole >= 3600 else 1)
    parts: list[str] = []
    for size, unit in _UNITS:
        if whole >= size:
            parts.append(f"{whole // size}{unit}")
            whole %= size
    return sign + "".join(parts)


def count(number: int | None) -> str:
    """12,345; a dash for what isn't known."""
    return UNKNOWN if number is None else f"{number:,}"


def rate(per_second: float | None) -> str:
    """Events per second, with a decimal only where it tells something."""
    if per_second is None:
        return UNKNOWN
    if 0 < per_second < 0.05:
        return "<0.1/s"
    return f"{per_second:.1f}/s" if 0 < per_second < 9.95 else f"{per_second:,.0f}/s"


def printable(text: str) -> str:
    """`text` on one line, with every character that a terminal could obey written as its escape."""
    return "".join(_escaped(char) if _is_control(char) else char for char in text)


def _is_control(char: str) -> bool:
    # Cf holds the marks that reverse the direction of writing; Zl and Zp break lines.
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def width(text: str) -> int:
    """Columns that `text` takes on a terminal."""
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def shorten(text: str, limit: int) -> str:
    """`text` in at most `limit` columns, an ellipsis standing for what was cut."""
    if width(text) <= limit:
        return text
    kept = ""
    used = 1
    for char in text:
        used += _columns(char)
        if used > limit:
            break
        kept += char
    return kept + "…"


@dataclass(frozen=True)
class Cell:
    """One cell of a table; `style` colours it without counting for its width."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class Column:
    """One column's title, and whether it holds numbers."""

    title: str
    right: bool = False


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], paint: Paint, *, indent: str = "  "
) -> list[str]:
    """The lines of a table, two blanks between columns and none at the end of a line."""
    header = [Cell(column.title, "quiet") for column in columns]
    lines = [header, *rows]
    widths = [max(width(line[index].text) for line in lines) for index in range(len(columns))]
    return [indent + _line(columns, line, widths, paint) for line in lines]


def _line(columns: Sequence[Column], cells: Sequence[Cell], widths: Sequence[int], paint: Paint) -> str:
    parts: list[str] = []
    for index, (column, cell, size) in enumerate(zip(columns, cells, widths, strict=True)):
        blanks = " " * (size - width(cell.text))
        text = paint(cell.text, cell.style)
        last = index == len(columns) - 1
        parts.append(blanks + text if column.right else text if last else text + blanks)
    return "  ".join(parts)
