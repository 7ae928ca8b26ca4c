"""States of checks over the window: a row each, with what isn't known hatched."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pgque_pipeline.report.charts.frame import time_ticks
from pgque_pipeline.report.facts import Track
from pgque_pipeline.report.markup import Markup, element, join
from pgque_pipeline.report.words import Clock, Names, counted, duration

_WIDTH, _HEIGHT = 1000, 18
# So that what took minutes is seen among weeks.
_LEAST = 3.0
_IN_FRONT = ("ok", "unknown", "warning", "critical")


def timeline(tracks: Sequence[Track], begin: datetime, end: datetime, clock: Clock, names: Names) -> Markup:
    """The rows, above a line of days. Names are text of the page, so that they can be read on any screen."""
    rows = [_row(track, begin, end, clock, names) for track in tracks]
    length = (end - begin).total_seconds()
    marks = [
        element(
            "text", words, class_="tick", x=f"{100 * (moment - begin).total_seconds() / length:.2f}%", y=12
        )
        for moment, words in time_ticks(begin, end, clock)
        if (end - moment).total_seconds() > 0.06 * length
    ]
    axis = element("svg", *marks, class_="axis", width="100%", height=16, aria_hidden="true")
    return element("div", *rows, element("div", element("p"), axis, class_="track"), class_="timeline")


def _row(track: Track, begin: datetime, end: datetime, clock: Clock, names: Names) -> Markup:
    name = f"{track.check} of {names(track.entity)}"
    said = f"{counted(track.incidents, 'incident')}, {duration(track.bad_seconds)} warning or critical"
    length = (end - begin).total_seconds()
    turns = sorted(track.turns, key=lambda turn: (_IN_FRONT.index(turn.state), turn.begin))
    parts = [element("rect", class_="none", width=_WIDTH, height=_HEIGHT)]
    for turn in turns:
        left = _WIDTH * (turn.begin - begin).total_seconds() / length
        wide = _WIDTH * (turn.end - turn.begin).total_seconds() / length
        bad = turn.state in ("warning", "critical")
        words = (
            f"{turn.state}: {clock.minute(turn.begin)}, {duration((turn.end - turn.begin).total_seconds())}"
        )
        title = element("title", words) if bad else None
        parts.append(
            element(
                "rect",
                title,
                class_=f"state {turn.state}",
                x=max(0.0, left),
                width=max(wide, _LEAST if bad else 0.0),
                height=_HEIGHT,
            )
        )
    svg = element(
        "svg",
        element("title", name),
        element("desc", said),
        join(*parts),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{name}: {said}",
    )
    return element("div", element("p", element("b", name), element("small", said)), svg, class_="track")
