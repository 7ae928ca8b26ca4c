"""Lines of input to files of fresh points, one for each day in each task.

Spark's Python workers write these themselves: the columns are there, and to take them apart into Spark's rows
and put them together again costs more than to parse them. A task that is tried again leaves points twice,
which fresh points may be.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from pgque_pipeline.tables import points

# Points that a task holds before it writes them.
_HELD = 500_000

Parse = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Part:
    """What a task took of a day: how many points, the newest one in microseconds since 1970.

    Of `day` None are the lines and points that it refused.
    """

    day: date | None
    points: int
    newest: int | None


def write(
    lines: DataFrame,
    folder: Path,
    *,
    now: datetime,
    earliest: date | None = None,
    spared: points.Days | None = None,
    wanted: points.Days = (None, None),
) -> list[Part]:
    """Write the points of `lines` (file, line) into a folder for each day below `folder`.

    `now`, `earliest`, `spared` as for `points.flat`. Only days are `wanted` from a first to a last one, None
    for no bound.
    """
    task = partial(_written, parse=points.parser(now, earliest, spared), folder=folder, wanted=wanted)
    found = lines.select("file", "line").mapInArrow(task, "day date, points bigint, newest bigint").collect()
    return [Part(row.day, row.points, row.newest) for row in found]


def _written(
    batches: Iterator[pa.RecordBatch], parse: Parse, folder: Path, wanted: points.Days
) -> Iterator[pa.RecordBatch]:
    held: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    count = refused = 0
    for batch in parse(batches):
        usable = batch.filter(pc.is_null(batch.column("reason")))
        refused += len(batch) - len(usable)
        days = pc.cast(pc.floor_temporal(usable.column("ts"), unit="day"), pa.int64())
        for day in pc.unique(days).to_pylist():
            held[day].append(usable.filter(pc.equal(days, day)))
        count += len(usable)
        if count >= _HELD:
            yield from _flushed(held, folder, wanted)
            count = 0
    yield from _flushed(held, folder, wanted)
    yield _told(None, refused, None)


def _flushed(
    held: dict[int, list[pa.RecordBatch]], folder: Path, wanted: points.Days
) -> Iterator[pa.RecordBatch]:
    first, last = wanted
    for start in sorted(held):
        day = date(1970, 1, 1) + timedelta(microseconds=start)
        table = pa.Table.from_batches(held.pop(start)).drop_columns(["file", "reason", "text"])
        if (first is None or day >= first) and (last is None or day <= last):
            place = folder / f"date={day}"
            place.mkdir(parents=True, exist_ok=True)
            name = f"{uuid.uuid4().hex}.parquet"
            # Nobody reads a file whose name begins with a dot: a task may be killed before it is whole.
            pq.write_table(table, place / f".{name}")
            (place / f".{name}").rename(place / name)
            yield _told(day, len(table), pc.max(table.column("ts")).value)


def _told(day: date | None, count: int, newest: int | None) -> pa.RecordBatch:
    columns = [pa.array([day], pa.date32()), pa.array([count], pa.int64()), pa.array([newest], pa.int64())]
    return pa.RecordBatch.from_arrays(columns, ["day", "points", "newest"])
