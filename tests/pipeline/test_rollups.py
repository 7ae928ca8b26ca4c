"""What rollups make of the day before, and of lists of buckets that do not fit each other."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from pgque_pipeline.schemas import POINTS
from pgque_pipeline.tables.rollups import HOUR, merged, rollup_1m

MIDNIGHT = int(datetime(2026, 7, 2, tzinfo=UTC).timestamp()) * 1_000_000
MINUTE = 60_000_000
NOTHING = POINTS.stored.empty_table()


def points(*rows: dict[str, Any]) -> pa.Table:
    counter = {"series_id": 7, "temporality": "cumulative"}
    return pa.Table.from_pylist([counter | row for row in rows], schema=POINTS.stored)


def test_a_mark_before_midnight_hides_no_growth_after_it() -> None:
    mark = {"ts": MIDNIGHT - MINUTE}  # no value
    before = points({"ts": MIDNIGHT - 2 * MINUTE, "value": 10.0}, mark)
    (row,) = rollup_1m(points({"ts": MIDNIGHT + MINUTE, "value": 17.0}), before).to_pylist()
    assert row["increase"] == 7.0
    assert row["covered_seconds"] == 180.0


def test_a_day_before_makes_no_rows_of_its_own() -> None:
    before = points({"series_id": 6, "ts": MIDNIGHT - MINUTE, "value": 1.0})
    (row,) = rollup_1m(points({"ts": MIDNIGHT, "value": 17.0}), before).to_pylist()
    assert (row["series_id"], row["increase"]) == (7, None)
    assert rollup_1m(NOTHING, before) == merged(rollup_1m(NOTHING, NOTHING), HOUR)


def test_buckets_of_which_some_were_not_told_grow_by_what_is_known() -> None:
    told = [[1, 1], [], [2, 2], [3, 4]]
    rows = [
        {"ts": MIDNIGHT + place * MINUTE, "count": sum(counts) or 3, "counts": counts}
        for place, counts in enumerate(told)
    ]
    minutes = rollup_1m(points(*rows), NOTHING)
    assert minutes.column("increase").to_pylist() == [None, 1.0, 1.0, 3.0]
    assert minutes.column("bucket_increase").to_pylist() == [None, None, None, [1, 2]]
    (hour,) = merged(minutes, HOUR).to_pylist()
    assert (hour["increase"], hour["bucket_increase"]) == (5.0, [1, 2])
