"""What may be chosen about the tables, with the values that suit most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Threshold:
    """An objective on samples: at least `target` of a gauge's samples are at most `most`."""

    name: str
    metric: str
    most: float
    target: float


@dataclass(frozen=True)
class Ratio:
    """An objective on events: at least `target` of what `good` and `bad` count together is `good`."""

    name: str
    good: str
    bad: str
    target: float


Objective = Threshold | Ratio

OBJECTIVES: tuple[Objective, ...] = (
    Threshold("health", "pgque.queue.health_status", most=1, target=0.999),
    Threshold("lag", "pgque.consumer.lag_seconds", most=60, target=0.99),
    Ratio("delivery", "pgque.message.acked_total", "pgque.message.dead_lettered_total", target=0.999),
)


def objectives_of(written: Iterable[Mapping[str, Any]]) -> tuple[Objective, ...]:
    """Objectives from what `dataclasses.asdict` has made of them."""
    return tuple(Threshold(**one) if "metric" in one else Ratio(**one) for one in written)


@dataclass(frozen=True)
class Settings:
    """Choices that shape the tables.

    max_gap         seconds; between samples further apart nothing is known of a check's state
    time_zone       in which baselines tell the hours of a week
    baseline_weeks  how far back baselines look
    trend_hours     how far back forecasts look
    watermark_days  points older than this many days before the newest day of the last run come too late
    """

    max_gap: int = 300
    time_zone: str = "UTC"
    baseline_weeks: int = 8
    trend_hours: int = 6
    watermark_days: int = 7
    objectives: tuple[Objective, ...] = field(default=OBJECTIVES)
