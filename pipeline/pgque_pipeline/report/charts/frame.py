"""What all pictures with a time axis share: scales, axes, lines with gaps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pgque_pipeline.report.markup import Markup, element, join
from pgque_pipeline.report.words import Clock

WIDTH, HEIGHT = 480, 190
LEFT, RIGHT, TOP, BOTTOM = 56, 10, 10, 24
_MOST_LABELS = 5
_DAY_STEPS = (1, 2, 3, 7, 14, 28, 91)
_HOUR_STEPS = (1, 3, 6, 12)
_STEPS = (1, 5, 15, 60, 300, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 2 * 86400, 7 * 86400)
_LOG_STEPS = (1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400)

Point = tuple[datetime, float]


@dataclass(frozen=True)
class Scale:
    """From values to coordinates; `ticks` are the values that get a label."""

    place: Callable[[float], float]
    ticks: Sequence[float]


def picture(title: str, description: str, *parts: Markup, height: int = HEIGHT) -> Markup:
    """An SVG that says what it shows."""
    return element(
        "svg",
        element("title", title),
        element("desc", description),
        *parts,
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        aria_label=f"{title}: {description}",
        xmlns="http://www.w3.org/2000/svg",
    )


def horizontal(begin: datetime, end: datetime) -> Callable[[datetime], float]:
    """Places of times."""
    length = max((end - begin).total_seconds(), 1.0)
    return lambda moment: LEFT + (WIDTH - LEFT - RIGHT) * (moment - begin).total_seconds() / length


def linear(values: Iterable[float], *, least: float = 0.0) -> Scale:
    """From `least` to somewhat above the largest value, in round steps."""
    most = max([*values, least])
    span = most - least or 1.0
    rough = span / 4
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= rough)
    top = least + step * math.ceil(span / step - 1e-9)
    ticks = [least + step * index for index in range(round((top - least) / step) + 1)]
    return Scale(lambda value: _bottom() - (_bottom() - TOP) * (value - least) / (top - least), ticks)


def seconds(values: Iterable[float]) -> Scale:
    """From 0 to somewhat above the largest, in steps of minutes, hours or days."""
    most = max([*values, 1.0])
    step = next((step for step in _STEPS if most / step <= _MOST_LABELS), most / 4)
    top = step * math.ceil(most / step)
    ticks = [step * index for index in range(round(top / step) + 1)]
    return Scale(lambda value: _bottom() - (_bottom() - TOP) * min(value, top) / top, ticks)


def logarithmic(values: Iterable[float]) -> Scale:
    """Of seconds, over as many powers as there are; what is less than the least step lies on the bottom."""
    positive = [value for value in values if value > 0] or [1.0]
    low = max([step for step in _LOG_STEPS if step <= min(positive)] or [_LOG_STEPS[0]])
    most = max(positive)
    high = min([step for step in _LOG_STEPS if step >= most and step > low] or [math.ceil(most)])
    span = math.log(high / low)
    ticks = [step for step in _LOG_STEPS if low <= step <= high]
    return Scale(
        lambda value: _bottom() - (_bottom() - TOP) * math.log(min(max(value, low), high) / low) / span, ticks
    )


def _bottom() -> float:
    return HEIGHT - BOTTOM


def axes(begin: datetime, end: datetime, scale: Scale, label: Callable[[float], str], clock: Clock) -> Markup:
    """Lines and labels of both axes."""
    x = horizontal(begin, end)
    parts: list[Markup] = []
    for tick in scale.ticks:
        y = scale.place(tick)
        parts.append(element("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y))
        parts.append(element("text", label(tick), class_="tick", x=LEFT - 6, y=y + 4, text_anchor="end"))
    for moment, words in time_ticks(begin, end, clock):
        place = x(moment)
        anchor = "start" if place < LEFT + 14 else "end" if place > WIDTH - RIGHT - 20 else "middle"
        parts.append(element("line", class_="grid", x1=place, x2=place, y1=_bottom(), y2=_bottom() + 4))
        parts.append(element("text", words, class_="tick", x=place, y=HEIGHT - 6, text_anchor=anchor))
    return join(*parts)


def time_ticks(begin: datetime, end: datetime, clock: Clock) -> Iterator[tuple[datetime, str]]:
    """A few round local times, with what to call them."""
    hours = (end - begin).total_seconds() / 3600
    if hours <= 72:
        step = next((step for step in _HOUR_STEPS if hours / step <= _MOST_LABELS), 24)
        first = clock.local(begin).replace(minute=0, second=0, microsecond=0, tzinfo=None)
        marks = [first.replace(hour=0) + timedelta(hours=step * index) for index in range(200)]
    else:
        days = next((step for step in _DAY_STEPS if hours / 24 / step <= _MOST_LABELS), _DAY_STEPS[-1])
        local = clock.local(begin).replace(tzinfo=None)
        first = local.replace(hour=0, minute=0, second=0, microsecond=0)
        if days % 7 == 0:  # weeks begin on Mondays
            first -= timedelta(days=first.weekday())
        marks = [first + timedelta(days=days * index) for index in range(200)]
    for mark in marks:
        moment = mark.replace(tzinfo=clock.zone)
        if begin <= moment <= end:
            clocked = hours <= 72 and step < 24
            yield moment, f"{moment:%H:%M}" if clocked and moment.hour else f"{moment:%-d %b}"


def runs(points: Iterable[Point], *, gap: timedelta) -> Iterator[list[Point]]:
    """Points in turn; a new run begins after a gap."""
    run: list[Point] = []
    for point in points:
        if run and point[0] - run[-1][0] > gap:
            yield run
            run = []
        run.append(point)
    if run:
        yield run


def line(
    points: Iterable[Point], x: Callable[[datetime], float], scale: Scale, style: str, *, gap: timedelta
) -> Markup:
    """A line that breaks where nothing is known; a point that stands alone is a dot."""
    path: list[str] = []
    dots: list[Markup] = []
    for run in runs(points, gap=gap):
        if len(run) == 1:
            [(moment, value)] = run
            dots.append(element("circle", class_=f"dot {style}", cx=x(moment), cy=scale.place(value), r=1.5))
        else:
            path.append("M" + "L".join(f"{x(moment):.1f} {scale.place(value):.1f}" for moment, value in run))
    drawn = element("path", class_=f"line {style}", d="".join(path)) if path else None
    return join(drawn, *dots)


def area(
    points: Iterable[tuple[datetime, float, float]],
    x: Callable[[datetime], float],
    scale: Scale,
    style: str,
    *,
    gap: timedelta,
) -> Markup:
    """What lies between two values at each time (time, low, high)."""
    found = [*points]
    low = {moment: value for moment, value, _ in found}
    path: list[str] = []
    alone: list[Point] = []
    for run in runs([(moment, value) for moment, _, value in found], gap=gap):
        if len(run) == 1:
            alone += run
            continue
        there = [f"{x(moment):.1f} {scale.place(value):.1f}" for moment, value in run]
        back = [f"{x(moment):.1f} {scale.place(low[moment]):.1f}" for moment, _ in reversed(run)]
        path.append("M" + "L".join([*there, *back]) + "Z")
    dots = [element("circle", class_=f"dot {style}", cx=x(m), cy=scale.place(v), r=1.5) for m, v in alone]
    return join(element("path", class_=f"area {style}", d="".join(path)) if path else None, *dots)
