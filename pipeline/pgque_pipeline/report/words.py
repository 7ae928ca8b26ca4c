"""Numbers, times and names as a person reads them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from pgque_exporter import catalogue
from pgque_pipeline.report.facts import Entity, Scope
from pgque_pipeline.settings import Objective, Ratio, Threshold

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_SOME_DECIMALS = 10
_MOST_DECIMALS = 4
NOTHING = "-"
_SPACE = "\u00a0"  # that no line is broken at
_ACKED, _DEAD = "pgque.message.acked_total", "pgque.message.dead_lettered_total"
# What the usual objectives mean, by what they measure.
_USUAL = {
    ("pgque.queue.health_status", 1): "no critical health check",
    ("pgque.consumer.lag_seconds", 60): "lag of at most a minute",
    (_ACKED, _DEAD): "acknowledged rather than dead-lettered",
}


def meaning(objective: Objective) -> str:
    """What an objective promises."""
    if isinstance(objective, Ratio):
        usual = _USUAL.get((objective.good, objective.bad))
        return usual or f"{objective.good} rather than {objective.bad}"
    usual = _USUAL.get((objective.metric, objective.most))
    return usual or f"{objective.metric} of at most {_limit(objective)}"


def _limit(objective: Threshold) -> str:
    """Exactly what it is, in the largest unit that it is a whole number of."""
    most = int(objective.most) if objective.most == int(objective.most) else objective.most
    metric = catalogue.load().get(objective.metric)
    if metric is None or metric.unit != "s":
        return f"{most:,}"
    for size, unit in _UNITS:
        if most and most % size == 0:
            return f"{most // size:,}{_SPACE}{unit}"
    return f"{most:,}{_SPACE}s"


def duration(seconds: float) -> str:
    """4 h 55 min, 2 d 3 h, 35 s: two units at most."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f}{_SPACE}ms"
    if seconds < _SOME_DECIMALS and seconds != round(seconds):
        return f"{seconds:.1f}{_SPACE}s"
    whole = round(seconds)
    unit = next((index for index, (size, _) in enumerate(_UNITS) if whole >= size), len(_UNITS) - 1)
    if unit + 1 < len(_UNITS):  # 59 min 40 s and 1 h 0 min are the same to a person
        least = _UNITS[unit + 1][0]
        whole = round(whole / least) * least
        unit = next(index for index, (size, _) in enumerate(_UNITS) if whole >= size)
    parts: list[str] = []
    for size, name in _UNITS[unit : unit + 2]:
        if whole >= size or (not parts and unit == len(_UNITS) - 1):
            parts.append(f"{whole // size}{_SPACE}{name}")
            whole %= size
    return _SPACE.join(parts)


def brief_duration(seconds: float) -> str:
    """1.5 h, 30 min: one unit, for an axis."""
    size, name = next((unit for unit in _UNITS if seconds >= unit[0]), _UNITS[-1])
    return f"{seconds / size:.3g}{_SPACE}{name}"


def percent(share: float, target: float | None = None) -> str:
    """99.95 %: as many decimals as tell it from its target; 99.9 %, a target itself, as short as it is."""
    if target is None:
        return f"{100 * share:.10g}{_SPACE}%"
    decimals = max(1, round(-math.log10(max(1 - target, 1e-4))) - 1)
    # What isn't the whole shall not be called so.
    while share < 1 and decimals < _MOST_DECIMALS and float(f"{100 * share:.{decimals}f}") >= 100:
        decimals += 1
    text = f"{100 * share:.{decimals}f}"
    return f"{'just below ' if share < 1 and float(text) >= 100 else ''}{text}{_SPACE}%"


def number(value: float) -> str:
    """12,345; 1.2 million; with a decimal only where it tells something."""
    if value >= 1e9:
        return f"{value / 1e9:.1f} billion"
    if value >= 1e6:
        return f"{value / 1e6:.1f} million"
    if value < _SOME_DECIMALS and value != round(value):
        return f"{value:.1f}" if value >= 0.05 else f"{value:.2g}"
    return f"{value:,.0f}"


def counted(count: int, one: str, many: str | None = None) -> str:
    """1 queue, 2 queues, 1,200 queues."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


class Names:
    """Names of queues and consumers, no longer than they need be to tell them apart."""

    def __init__(self, scope: Scope) -> None:
        self._with_database = scope.database_count != 1

    def __call__(self, entity: Entity) -> str:
        """`database: queue / consumer`; the database only where there are several."""
        parts = [part for part in (entity.queue, entity.consumer) if part is not None]
        name = " / ".join(parts) or "the database"
        if self._with_database and entity.database is not None:
            name = f"{entity.database}: {name}"
        others = ", ".join(f"{key}={value}" for key, value in entity.others)
        return f"{name} ({others})" if others else name


class Clock:
    """Times on the wall of the report's time zone."""

    def __init__(self, time_zone: str) -> None:
        self.zone = ZoneInfo(time_zone)

    def local(self, moment: datetime) -> datetime:
        """The moment in the time zone."""
        return moment.astimezone(self.zone)

    def day(self, moment: datetime) -> str:
        """24 Oct."""
        return f"{self.local(moment):%-d %b}"

    def minute(self, moment: datetime) -> str:
        """Sat 24 Oct, 09:05."""
        return f"{self.local(moment):%a %-d %b, %H:%M}"

    def whole(self, moment: datetime) -> str:
        """24 October 2026, 09:05."""
        return f"{self.local(moment):%-d %B %Y, %H:%M}"
