"""The points of a day, settled in parts."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pgque_pipeline import settling
from pgque_pipeline.parts import Part
from pgque_pipeline.schemas import POINTS
from pgque_pipeline.tables.points import ARROW_IDENTITY

DAY = date(2026, 7, 1)
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


def test_a_part_that_no_series_falls_into_is_empty(tmp_path: Path) -> None:
    fresh, points, series = tmp_path / "fresh", tmp_path / "points", tmp_path / "series"
    row: dict[str, Any] = {"series_id": 7, "ts": NOON, "value": 1.5, "metric": "m"}
    schema = pa.unify_schemas([POINTS.stored, ARROW_IDENTITY])
    fresh.mkdir()
    pq.write_table(pa.Table.from_pylist([row], schema=schema), fresh / "one.parquet")
    for part in range(3):
        settling.settle_part(settling.Day(DAY, [fresh], [], [], 3), Part(part, 3), points, series)
    found, named = (
        [len(pq.read_table(file, partitioning=None)) for file in sorted(folder.glob("*/*.parquet"))]
        for folder in (points, series)
    )
    assert found == named == [0, 1, 0]
