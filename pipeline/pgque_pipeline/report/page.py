"""The page: everything in one file, nothing from elsewhere, nothing that runs."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from pgque_exporter import __version__
from pgque_pipeline.report.facts import Facts, Scope
from pgque_pipeline.report.markup import Markup, element, join
from pgque_pipeline.report.sections import Sections
from pgque_pipeline.report.words import Clock, counted, duration, listed, number

_TITLE = "Queue report"
_LINKS = (
    ("attention", "Attention"),
    ("promises", "Promises"),
    ("incidents", "Incidents"),
    ("forecast", "Forecast"),
    ("flow", "Flow"),
    ("lag", "Lag"),
    ("week", "Week"),
    ("dead-letters", "Dead letters"),
    ("quarantine", "Quarantine"),
    ("unknown", "Unknown"),
)
# What can't be told from colour alone: patterns that every picture of the page may use.
_PATTERNS = Markup(
    '<svg class="patterns" width="0" height="0" aria-hidden="true"><defs>'
    '<pattern id="none" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="hatch-ground" width="6" height="6"/><rect class="hatch" width="2" height="6"/></pattern>'
    "</defs></svg>"
)


def page(facts: Facts | None) -> str:
    """The whole page; None stands for a warehouse without points."""
    if facts is None:
        body = join(
            element("header", element("h1", _TITLE)),
            element(
                "main",
                element(
                    "section",
                    element("h2", "There is nothing to report yet"),
                    element(
                        "p",
                        "The warehouse holds no point. ",
                        element("code", "pgque-pipeline run"),
                        " fills it.",
                    ),
                ),
            ),
        )
        return _document(_TITLE, body)
    scope = facts.scope
    clock = Clock(scope.time_zone)
    sections = Sections(facts).all()
    links = [element("a", words, href=f"#{place}") for place, words in _LINKS if f'id="{place}"' in sections]
    body = join(
        element(
            "header", element("h1", _TITLE), element("nav", *links, aria_label="Parts"), *_about(scope, clock)
        ),
        element("main", _PATTERNS, sections),
        element(
            "footer",
            element(
                "p",
                f"Made by pgque-pipeline {__version__} from {number(scope.points)} points. "
                f"Times are {scope.time_zone}.",
            ),
        ),
    )
    return _document(f"{_TITLE}: {clock.day(scope.begin)} to {clock.day(scope.as_of)}", body)


def _about(scope: Scope, clock: Clock) -> list[Markup]:
    names = [*scope.databases]
    more = scope.database_count - len(names)
    databases = listed([*names, *([f"{more:,} others"] if more > 0 else [])]) or "unknown"
    length = (scope.as_of - scope.begin).total_seconds()
    lines = [
        ("Period", f"{clock.whole(scope.begin)} to {clock.whole(scope.as_of)} ({duration(length)})"),
        ("Database" if scope.database_count == 1 else "Databases", databases),
        ("About", f"{counted(scope.queue_count, 'queue')}, {counted(scope.consumer_count, 'consumer')}"),
        ("As of", f"{clock.whole(scope.as_of)}, the newest sample"),
        ("Time zone", scope.time_zone),
    ]
    told = element("dl", *(element("div", element("dt", name), element("dd", text)) for name, text in lines))
    if not scope.generated:
        return [told]
    words = "These data are generated: no queue was ever in these states. They show what a report tells."
    return [element("p", element("b", "Generated. "), words, class_="notice", role="note"), told]


def _document(title: str, body: Markup) -> str:
    style = files(__package__).joinpath("page.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name_="color-scheme", content="light dark"),
        element("title", title),
        Markup(f"<style>{style}</style>"),
    )
    return f"<!doctype html>\n{element('html', head, element('body', body), lang='en')}\n"
