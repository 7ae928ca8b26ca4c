"""How the error budgets of some promises went down."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pgque_pipeline.report.charts.frame import (
    LEFT,
    RIGHT,
    WIDTH,
    Point,
    axes,
    horizontal,
    line,
    linear,
    picture,
)
from pgque_pipeline.report.facts import Promise
from pgque_pipeline.report.markup import Markup, element
from pgque_pipeline.report.words import Clock

# Further below nothing it makes no difference any more.
FLOOR = -1.0
_NEVER = timedelta(days=10_000)


def budget_chart(
    title: str, promises: Sequence[Promise], begin: datetime, end: datetime, clock: Clock
) -> Markup:
    """A line for each promise from the whole budget down; one that is overdrawn by all of it ends there."""
    values = [left for one in promises for _, left in one.budget]
    scale = linear([1.0], least=FLOOR if min([*values, 1.0]) < 0 else 0.0)
    x = horizontal(begin, end)
    zero, bottom = scale.place(0.0), scale.place(min(scale.ticks))
    overdrawn = element(
        "rect", class_="overdrawn", x=LEFT, y=zero, width=WIDTH - LEFT - RIGHT, height=bottom - zero
    )
    lines: list[Markup] = []
    for index, one in enumerate(promises):
        style = f"c{index + 1}"
        points, fallen = down_to_floor([(begin, 1.0), *one.budget])
        lines.append(line(points, x, scale, style, gap=_NEVER))
        if fallen is not None:
            place = x(fallen)
            d = f"M{place - 4:.1f} {bottom - 5:.1f}h8l-4 6z"
            lines.append(element("path", class_=f"mark {style}", d=d))
    spent = sum(one.burn > 1 for one in promises)
    return picture(
        title,
        f"share of the error budget that is left, {spent} of the {len(promises)} shown are overdrawn",
        *([overdrawn] if bottom > zero else []),
        axes(begin, end, scale, lambda value: f"{100 * value:.0f} %", clock),
        *lines,
    )


def down_to_floor(points: Sequence[Point]) -> tuple[list[Point], datetime | None]:
    """The line until it passes the floor, and when it does; None if it never does."""
    found: list[Point] = []
    for moment, value in points:
        if value < FLOOR:
            before, last = found[-1]
            when = before + (moment - before) * ((last - FLOOR) / (last - value))
            return [*found, (when, FLOOR)], when
        found.append((moment, value))
    return found, None
