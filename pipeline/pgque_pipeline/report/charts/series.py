"""Flow and lag over the weeks, hour by hour."""

from __future__ import annotations

from datetime import datetime, timedelta

from pgque_pipeline.report.charts.frame import (
    LEFT,
    RIGHT,
    WIDTH,
    area,
    axes,
    horizontal,
    line,
    linear,
    logarithmic,
    picture,
)
from pgque_pipeline.report.facts import Flow, Lag
from pgque_pipeline.report.markup import Markup, element
from pgque_pipeline.report.words import Clock, duration, number

_HOUR = timedelta(hours=1)
_GAP = _HOUR * 1.5


def flow_chart(name: str, flow: Flow, begin: datetime, end: datetime, clock: Clock) -> Markup:
    """What is sent as an area, what the slowest consumer acknowledges as a line."""
    middle = _HOUR / 2
    sent = [(hour + middle, value) for hour, value, _ in flow.hours if value is not None]
    acked = [(hour + middle, value) for hour, _, value in flow.hours if value is not None]
    scale = linear([value for _, value in (*sent, *acked)])
    x = horizontal(begin, end)
    highest = max((value for _, value in sent), default=0.0)
    return picture(
        f"Flow of {name}",
        f"events a second by hour, at most {number(highest)} sent",
        axes(begin, end, scale, number, clock),
        area([(moment, 0.0, value) for moment, value in sent], x, scale, "c1", gap=_GAP),
        line(acked, x, scale, "c2 thin", gap=_GAP),
    )


def lag_chart(name: str, lag: Lag, begin: datetime, end: datetime, clock: Clock) -> Markup:
    """Percentiles of each hour, and the rotation period as the line not to be passed."""
    middle = _HOUR / 2
    hours = [(hour + middle, p50, p95, p99) for hour, p50, p95, p99 in lag.hours]
    values = [value for _, *percentiles in hours for value in percentiles]
    period = lag.rotation_period
    scale = logarithmic([*values, *([period] if period else [])])
    x = horizontal(begin, end)
    parts = [
        axes(begin, end, scale, duration, clock),
        area([(moment, p50, p99) for moment, p50, _, p99 in hours], x, scale, "c1", gap=_GAP),
        line([(moment, p95) for moment, _, p95, _ in hours], x, scale, "c5 thin", gap=_GAP),
        line([(moment, p99) for moment, _, _, p99 in hours], x, scale, "c2 thin", gap=_GAP),
        line([(moment, p50) for moment, p50, _, _ in hours], x, scale, "c1", gap=_GAP),
    ]
    said = f"percentiles by hour, at most {duration(max(values, default=0.0))}"
    if period:
        y = scale.place(period)
        parts.append(element("line", class_="limit", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y))
        said += f"; the rotation period is {duration(period)}"
    return picture(f"Lag of {name}", said, *parts)
