"""What rollups make of the day before."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from pgque_pipeline import reading
from pgque_pipeline.tables import points, rollups
from tests.pipeline import compare
from tests.pipeline import otlp_lines as otlp

MIDNIGHT = int(datetime(2026, 7, 2, tzinfo=UTC).timestamp()) * 1_000_000
MINUTE = 60_000_000


def test_a_mark_before_midnight_hides_no_growth_after_it(spark: SparkSession, tmp_path: Path) -> None:
    given = [
        otlp.point({}, MIDNIGHT - 2 * MINUTE, asDouble=10.0),
        otlp.point({}, MIDNIGHT - MINUTE, flags=1),  # no value
        otlp.point({}, MIDNIGHT + MINUTE, asDouble=17.0),
    ]
    file = tmp_path / "metrics.json"
    file.write_text(otlp.line([otlp.counter("c", given)]), "utf-8")
    flat = points.flat(reading.lines(spark, [file]), now=datetime(2026, 7, 3, tzinfo=UTC))
    found = points.deduplicated(points.usable(flat), 1)
    first = sf.col("date") == "2026-07-01"
    (row,) = compare.rows(rollups.rollup_1m(found.where(~first), found.where(first)))
    assert row["increase"] == 7.0
