"""The oracle's tables of some lines, and how rows of each are told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame

from pgque_pipeline.settings import Settings
from tests.pipeline import compare, oracle

Tables = dict[str, list[dict[str, Any]]]

SETTINGS = replace(Settings(), time_zone="Europe/Berlin", baseline_weeks=4)

# Table -> the columns that tell its rows apart.
KEYS = {
    "points": ("series", "ts"),
    "series": ("date", "series"),
    "rollup_1m": ("window_start", "series"),
    "rollup_1h": ("window_start", "series"),
    "rollup_1d": ("window_start", "series"),
    "flow": ("window_start", "entity"),
    "latency": ("window_start", "metric", "entity"),
    "health": ("entity", "check", "started"),
    "incidents": ("entity", "check", "started"),
    "sli": ("window_start", "objective", "entity"),
    "slo": ("window_hours", "objective", "entity"),
    "baselines": ("series", "hour_of_week"),
    "forecast": ("entity",),
}


def truth(lines: Sequence[str], objectives: oracle.Objectives = oracle.OBJECTIVES) -> Tables:
    """Every table but the quarantine, as the oracle has it."""
    all_points = oracle.points(lines)
    steps = oracle.steps(all_points)
    by_minute, by_hour = oracle.rollup(steps, oracle.MINUTE), oracle.rollup(steps, oracle.HOUR)
    indicators = oracle.sli(all_points, by_hour, objectives)
    return {
        "points": [_point_row(point) for point in all_points],
        "series": oracle.series(all_points),
        "rollup_1m": by_minute,
        "rollup_1h": by_hour,
        "rollup_1d": oracle.rollup(steps, oracle.DAY),
        "flow": oracle.flow(by_hour),
        "latency": oracle.latency(all_points, by_hour),
        "health": oracle.health(all_points, SETTINGS.max_gap),
        "incidents": oracle.incidents(all_points, SETTINGS.max_gap),
        "sli": indicators,
        "slo": oracle.slo(indicators, objectives),
        "baselines": oracle.baselines(by_hour, time_zone=SETTINGS.time_zone, weeks=SETTINGS.baseline_weeks),
        "forecast": oracle.forecast(by_minute, hours=SETTINGS.trend_hours),
    }


def _point_row(point: oracle.Point) -> dict[str, Any]:
    names = ("ts", "temporality", "start", "value", "count", "sum", "counts")
    row = {name: getattr(point, name) for name in names}
    return row | {"date": oracle.day_of(point.ts), "series": point.series}


def difference(name: str, table: DataFrame, series: dict[int, Any], expected: Tables) -> list[str]:
    """What differs between a table of Spark and the oracle's; at most five things."""
    mine = compare.named(compare.rows(table), series)
    return [f"{name}: {text}" for text in compare.difference(mine, expected[name], KEYS[name])[:5]]
