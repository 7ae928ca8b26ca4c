"""Where a consumer's lag is heading."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from pgque_pipeline.report.charts.frame import (
    LEFT,
    RIGHT,
    WIDTH,
    Scale,
    axes,
    horizontal,
    line,
    picture,
    seconds,
)
from pgque_pipeline.report.facts import Forecast
from pgque_pipeline.report.markup import Markup, element
from pgque_pipeline.report.words import Clock, brief_duration, duration

_GAP = timedelta(minutes=30)
_NEVER = timedelta(days=10_000)
# How much further than the line itself the picture reaches, of the time left.
_BEYOND = 1.25
_HOUR = 3600.0


def outlook_chart(name: str, one: Forecast, clock: Clock) -> Markup:
    """The lag of the last hours, the line it is on with its interval, and the rotation period."""
    ahead = max(one.left * _BEYOND, _HOUR)
    if one.latest is not None:
        ahead = max(ahead, min(one.latest, one.left * 2))
    begin = min([moment for moment, _ in one.trail] + [one.as_of - timedelta(hours=1)])
    end = one.as_of + timedelta(seconds=ahead)
    lags = [lag for _, lag in one.trail]
    scale = seconds([*lags, one.lag, one.rotation_period * 1.05])
    x = horizontal(begin, end)
    meeting = one.as_of + timedelta(seconds=one.left)
    y, now = scale.place(one.rotation_period), x(one.as_of)
    parts = [
        axes(begin, end, scale, brief_duration, clock),
        element("line", class_="limit", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y),
        element("line", class_="now", x1=now, x2=now, y1=scale.place(max(scale.ticks)), y2=scale.place(0)),
        _cone(one, end, x, scale),
        line(one.trail, x, scale, "c1", gap=_GAP),
    ]
    if one.left > 0:
        expected = [(one.as_of, one.lag), (meeting, one.rotation_period)]
        parts.append(line(expected, x, scale, "c2 dashed", gap=_NEVER))
        parts.append(element("circle", class_="dot c2", cx=x(meeting), cy=y, r=4))
    said = f"lag now {duration(one.lag)}, passes the rotation period of {duration(one.rotation_period)}"
    return picture(f"Outlook for {name}", f"{said} in {duration(one.left)}", *parts)


def _cone(one: Forecast, end: datetime, x: Callable[[datetime], float], scale: Scale) -> Markup:
    """Between the earliest and the latest time at which the period may be reached."""
    if one.earliest is None or one.left <= 0:
        return Markup("")
    first = min(end, one.as_of + timedelta(seconds=one.earliest))
    corners = [(one.as_of, one.lag), (first, one.rotation_period)]
    if one.latest is None:
        corners += [(end, one.rotation_period), (end, one.lag)]
    else:
        last = one.as_of + timedelta(seconds=one.latest)
        reached = one.rotation_period
        if last > end:
            reached = one.lag + (one.rotation_period - one.lag) * ((end - one.as_of) / (last - one.as_of))
            corners.append((end, one.rotation_period))
        corners.append((min(end, last), reached))
    d = "M" + "L".join(f"{x(moment):.1f} {scale.place(lag):.1f}" for moment, lag in corners) + "Z"
    return element("path", class_="area c2", d=d)
