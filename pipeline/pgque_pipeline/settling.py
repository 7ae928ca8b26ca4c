"""Fresh points into `points` and `series`, a day at a time: each point once, in order.

Spark's Python workers do this from file to file, each a part of a day, since whole columns can be sorted and
compared at once. What has to meet are the points of a series and a day: they are in the folders of the day.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from pgque_pipeline.tables.points import ARROW_IDENTITY, ARROW_POINTS

# Of points of a series and a time the first in this order stays: that of the largest value.
_ORDER = [
    ("series_id", "ascending"),
    ("ts", "ascending"),
    *((name, "descending") for name in ("value", "count", "start", "sum", "temporality")),
]


@dataclass(frozen=True)
class Day:
    """What a day is made of: folders of fresh points, and those of points and series that stay."""

    day: date
    fresh: Sequence[Path]
    points: Sequence[Path]
    series: Sequence[Path]
    parts: int


def write(spark: SparkSession, days: Sequence[Day], points: Path, series: Path) -> None:
    """Write these days below two folders, each day in its parts."""
    jobs = [(day, part) for day in days for part in range(day.parts)]
    task = partial(_settle, jobs=jobs, points_folder=points, series_folder=series)
    spark.range(0, len(jobs), 1, len(jobs)).mapInArrow(task, "id bigint").collect()


def _settle(
    batches: Iterator[pa.RecordBatch],
    jobs: Sequence[tuple[Day, int]],
    points_folder: Path,
    series_folder: Path,
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column("id").to_pylist():
            day, part = jobs[number]
            settle_part(day, part, points_folder, series_folder)
        yield batch


def settle_part(day: Day, part: int, points_folder: Path, series_folder: Path) -> None:
    """Write one part of a day below two folders; of a part that no series falls into, files without rows."""
    mine = partial(_read, part=part, parts=day.parts)
    found = settled(mine((*day.fresh, *day.points), ARROW_POINTS))
    told = mine(day.fresh, ARROW_IDENTITY, only=pc.field("metric").is_valid())
    named = series(found, pa.concat_tables([told, mine(day.series, ARROW_IDENTITY)]))
    for table, folder in ((found, points_folder), (named, series_folder)):
        _write(table, folder / f"date={day.day}", part)


def settled(rows: pa.Table) -> pa.Table:
    """Each point once, by series and time. Of points that differ the one of the largest value stays."""
    keys = [rows.column(name).to_numpy() for name in ("ts", "series_id")]
    order = np.lexsort([keys[0].astype(np.int64), keys[1]])
    time, series_id = (key[order] for key in keys)
    if not np.any((time[1:] == time[:-1]) & (series_id[1:] == series_id[:-1])):
        return rows.take(pa.array(order))
    ordered = rows.take(pc.sort_indices(rows, sort_keys=_ORDER, null_placement="at_end"))
    time, series_id = (ordered.column(name).to_numpy() for name in ("ts", "series_id"))
    again = (time[1:] == time[:-1]) & (series_id[1:] == series_id[:-1])
    first = np.flatnonzero(np.concatenate([[True], ~again]))
    return ordered.take(pa.array(_by_buckets(ordered, first)))


def _by_buckets(ordered: pa.Table, first: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The rows to keep: those of the largest buckets, where histograms differ in nothing else."""
    kept = first.copy()
    counts, rest = ordered.column("counts"), ordered.drop_columns(["counts"])
    ends = np.append(first[1:], len(ordered))
    for place in np.flatnonzero((ends - first > 1) & counts.is_valid().to_numpy()[first]):
        begin, end = int(first[place]), int(ends[place])
        same = [row for row in range(begin, end) if rest.slice(row, 1).equals(rest.slice(begin, 1))]
        kept[place] = max(same, key=lambda row: (counts[row].as_py() or [], -row))
    return kept


def series(points: pa.Table, told: pa.Table) -> pa.Table:
    """A row for each series of a day's settled points; `told` says what they are about, some twice."""
    ids = points.column("series_id").to_numpy()
    first = np.flatnonzero(np.concatenate([[len(ids) > 0], ids[1:] != ids[:-1]]))
    last = np.append(first, len(ids))[1:] - 1
    # Of units that differ one has to be chosen, the same one whatever comes first.
    keyed = told.append_column("unit_or_none", pc.fill_null(told.column("unit"), ""))
    ordered = told.take(
        pc.sort_indices(keyed, sort_keys=[("series_id", "ascending"), ("unit_or_none", "descending")])
    )
    place = np.searchsorted(ordered.column("series_id").to_numpy(), ids[first])
    times = points.column("ts")
    seen = {
        "first_seen": times.take(pa.array(first)),
        "last_seen": times.take(pa.array(last)),
        "points": pa.array(last - first + 1, pa.int64()),
    }
    found = ordered.take(pa.array(place))
    for name, column in seen.items():
        found = found.append_column(name, column)
    return found


def _read(
    folders: Sequence[Path], schema: pa.Schema, *, part: int, parts: int, only: pc.Expression | None = None
) -> pa.Table:
    tables = [schema.empty_table()]
    for file in (file for folder in folders for file in sorted(folder.glob("*.parquet"))):
        table = pq.read_table(file, schema=schema, filters=only, partitioning=None)
        if parts > 1:  # before the next file: a day may be larger than the memory
            table = table.filter(pa.array(table.column("series_id").to_numpy() % parts == part))
        tables.append(table)
    return pa.concat_tables(tables)


def _write(table: pa.Table, folder: Path, part: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    # Nobody reads a file whose name begins with a dot. A task that is tried again replaces what it wrote.
    partial_file = folder / f".{uuid.uuid4().hex}"
    pq.write_table(table, partial_file)
    partial_file.rename(folder / f"part-{part:05}.parquet")
