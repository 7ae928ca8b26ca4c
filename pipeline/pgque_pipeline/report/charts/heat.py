"""A usual week, hour by hour."""

from __future__ import annotations

from pgque_pipeline.report.charts.frame import WIDTH, picture
from pgque_pipeline.report.facts import Week
from pgque_pipeline.report.markup import Markup, element
from pgque_pipeline.report.words import number

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
SHADES = 9
_LEFT, _TOP, _CELL = 36, 4, 21
_WIDE = (WIDTH - _LEFT - 4) / 24


def heat_map(name: str, week: Week) -> Markup:
    """A cell for each hour; the darker, the more. Hours without a baseline are hatched."""
    most = max(week.medians.values(), default=0.0)
    busiest = max(week.medians, key=lambda hour: (week.medians[hour], -hour), default=None)
    cells: list[Markup] = []
    for hour in range(168):
        day, of_day = divmod(hour, 24)
        value = week.medians.get(hour)
        words = f"{DAYS[day]} {of_day:02}:00: " + ("unknown" if value is None else f"{number(value)}/s")
        cells.append(
            element(
                "rect",
                element("title", words),
                class_="none" if value is None else f"heat h{shade(value, most)}",
                x=_LEFT + of_day * _WIDE,
                y=_TOP + day * _CELL,
                width=_WIDE - 1,
                height=_CELL - 1,
            )
        )
    labels = [
        element("text", day, class_="tick", x=_LEFT - 6, y=_TOP + index * _CELL + 15, text_anchor="end")
        for index, day in enumerate(DAYS)
    ]
    labels += [
        element("text", f"{hour}:00", class_="tick", x=_LEFT + hour * _WIDE, y=_TOP + 7 * _CELL + 16)
        for hour in range(0, 24, 6)
    ]
    said = "no hour has a baseline yet"
    if busiest is not None:
        said = f"busiest on {DAYS[busiest // 24]} at {busiest % 24:02}:00 with {number(most)} events a second"
    return picture(f"Usual week of {name}", said, *cells, *labels, height=_TOP + 7 * _CELL + 24)


def shade(value: float, most: float) -> int:
    """From 0 to SHADES."""
    return round(SHADES * value / most) if most > 0 else 0
