"""Every table equals what plain Python makes of the same random histories."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pgque_pipeline.progress import Progress
from pgque_pipeline.run import Request, run
from pgque_pipeline.schemas import TABLES
from pgque_pipeline.tables import baselines as baselines_table
from pgque_pipeline.tables import series
from pgque_pipeline.warehouse.store import open_warehouse
from tests.pipeline import compare, oracle
from tests.pipeline import otlp_lines as otlp
from tests.pipeline.history import HOUR, SECOND, history
from tests.pipeline.truth import KEYS, SETTINGS, Tables, difference, truth

HISTORIES = int(os.environ.get("PGQUE_PIPELINE_HISTORIES", "12"))
SEED = int(os.environ.get("PGQUE_PIPELINE_SEED", "1"))
BEGIN = int(datetime(2026, 3, 28, 21, 13, 5, tzinfo=UTC).timestamp()) * SECOND
NOW = datetime(2027, 1, 1, tzinfo=UTC)


# Begin of weeks in which the clocks of Berlin and New York are put forward, or back.
SEASONS = {"spring": datetime(2026, 2, 18, tzinfo=UTC), "autumn": datetime(2025, 10, 8, tzinfo=UTC)}
WEEKS = 6


def weeks_of_one_queue(season: str) -> list[str]:
    """Six weeks by the hour, of a database named after the season."""
    labels = {"engine": "pgque", "database": season, "queue": "mail"}
    begin = int(SEASONS[season].timestamp()) * SECOND
    lines = []
    for hour in range(WEEKS * 7 * 24):
        now = begin + hour * HOUR + 60 * SECOND
        depth = otlp.point(labels, now, asDouble=(hour * 7919 % 1009) / 8)
        sent = otlp.point(labels, now, start=begin, asInt=str(hour * hour))
        metrics = [otlp.gauge("pgque.queue.depth", [depth]), otlp.counter("pgque.message.sent_total", [sent])]
        lines.append(otlp.line(metrics))
    return lines


@dataclass
class Both:
    """The same tables from both; Spark's as they come, and the oracle's rows."""

    spark: dict[str, DataFrame]
    oracle: Tables
    series: dict[int, Any]


@pytest.fixture(scope="module")
def both(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Both:
    lines = [line for season in SEASONS for line in weeks_of_one_queue(season)]
    for seed in range(SEED, SEED + HISTORIES):
        lines += history(seed, BEGIN, 80)
    file = tmp_path_factory.mktemp("input") / "metrics.json"
    file.write_text("\n".join(lines) + "\n", "utf-8")
    found = _from_spark(spark, file)
    return Both(found, truth(lines), compare.series_keys(found["series"]))


def _from_spark(spark: SparkSession, file: Path) -> dict[str, DataFrame]:
    warehouse = open_warehouse(file.parent / "warehouse", create=True)
    request = Request(inputs=[file], settings=SETTINGS, now=NOW)
    run(spark, warehouse, request, Progress(quiet=True))
    made = open_warehouse(warehouse.root, create=False)
    return {name: made.read(spark, TABLES[name]) for name in KEYS}


@pytest.mark.parametrize("table", KEYS)
def test_a_table_equals_the_oracle(both: Both, table: str) -> None:
    assert both.oracle[table], "the histories make no row of it"
    assert difference(table, both.spark[table], both.series, both.oracle) == []


# The second hour of Monday, and those of Sunday that clocks skip or repeat, with how often each was seen.
@pytest.mark.parametrize(
    ("season", "time_zone", "expected"),
    [
        ("spring", "Europe/Berlin", {1: 6, 145: 6, 146: 5, 147: 6}),
        ("spring", "America/New_York", {1: 6, 145: 6, 146: 5, 147: 6}),
        ("autumn", "Europe/Berlin", {1: 6, 145: 6, 146: 7, 147: 6}),
        ("autumn", "America/New_York", {1: 6, 145: 7, 146: 6, 147: 6}),
    ],
)
def test_hours_of_a_week_are_those_of_the_wall_clock(
    spark: SparkSession, both: Both, season: str, time_zone: str, expected: dict[int, int]
) -> None:
    ours = both.spark["series"].where(sf.col("database") == season)
    hours = both.spark["rollup_1h"].join(ours.select("date", "series_id"), ["date", "series_id"])
    (last,) = hours.agg(sf.unix_micros(sf.max("window_start"))).first() or (0,)
    found = baselines_table.baselines(
        hours.toArrow(),
        series.latest(ours.orderBy("date").toArrow()),
        time_zone=time_zone,
        weeks=WEEKS,
        as_of=last + HOUR,
    )
    rows = [row for row in both.oracle["rollup_1h"] if row["series"][2][1] == season]
    truth_of_it = {"baselines": oracle.baselines(rows, time_zone=time_zone, weeks=WEEKS)}
    assert difference("baselines", spark.createDataFrame(found), both.series, truth_of_it) == []
    seen = {
        row["hour_of_week"]: row["hours"]
        for row in truth_of_it["baselines"]
        if row["series"][0] == "pgque.queue.depth"
    }
    assert {hour: seen[hour] for hour in expected} == expected
    assert len(seen) == 7 * 24
