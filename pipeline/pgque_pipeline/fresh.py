"""Lines of input to files of fresh points, one for each day in each task.

Spark's Python workers write these themselves: the columns are there, and to take them apart into Spark's rows
and put them together again costs more than to parse them. A task that is tried again leaves points twice,
which fresh points may be.
"""

from __future__ import annotations

import gc
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pgque_pipeline.reading import Lines, Read
from pgque_pipeline.tables import points

# Points that a task holds before it writes them.
_HELD = 500_000
_TOLD = pa.schema(
    [("day", pa.date32()), ("points", pa.int64()), ("newest", pa.int64()), ("gone", pa.string())]
)


@dataclass(frozen=True)
class Part:
    """What a task took of a day: how many points, the newest one in microseconds since 1970.

    Of `day` None are the lines and points that it refused, and a file that is `gone`.
    """

    day: date | None
    points: int
    newest: int | None
    gone: str | None = None


def write(
    lines: Lines,
    folder: Path,
    *,
    now: datetime,
    earliest: date | None = None,
    spared: points.Days | None = None,
    wanted: points.Days = (None, None),
) -> list[Part]:
    """Write the points of `lines` into a folder for each day below `folder`.

    `now`, `earliest`, `spared` as for `points.flat`. Only days are `wanted` from a first to a last one, None
    for no bound.
    """
    parse = points.parser(now, earliest, spared)
    task = partial(_task, read=lines.read, parse=parse, folder=folder, wanted=wanted)
    found = lines.rows.mapInArrow(task, "day date, points bigint, newest bigint, gone string").collect()
    return [Part(**row.asDict()) for row in found]


def _task(
    batches: Iterator[pa.RecordBatch], read: Read, parse: points.Parse, folder: Path, wanted: points.Days
) -> Iterator[pa.RecordBatch]:
    gone: list[str] = []
    with _no_search_for_cycles():
        parts = [*_written(parse(read(batches, gone.append)), folder, wanted)]
    parts += [Part(None, 0, None, file) for file in gone]
    yield pa.RecordBatch.from_pylist([asdict(part) for part in parts], _TOLD)


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Lines become many objects, none in a cycle: to look through them took a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _written(batches: Iterator[pa.RecordBatch], folder: Path, wanted: points.Days) -> Iterator[Part]:
    held: dict[date, list[pa.RecordBatch]] = defaultdict(list)
    count = refused = 0
    for batch in batches:
        reasons = batch.column("reason")
        refused += len(batch) - reasons.null_count
        usable = _where(pc.is_null(reasons), batch.drop_columns(["file", "reason", "text"]))
        days = pc.floor_temporal(usable.column("ts"), unit="day")
        for day in pc.unique(days):
            held[day.as_py().date()].append(_where(pc.equal(days, day), usable))
        count += len(usable)
        if count >= _HELD:
            yield from _flushed(held, folder, wanted)
            count = 0
    yield from _flushed(held, folder, wanted)
    yield Part(None, refused, None)


def _where(mask: pa.Array[Any], batch: pa.RecordBatch) -> pa.RecordBatch:
    """Those rows; mostly it is all of them, which needn't be copied."""
    return batch if pc.all(mask).as_py() else batch.filter(mask)


def _flushed(held: dict[date, list[pa.RecordBatch]], folder: Path, wanted: points.Days) -> Iterator[Part]:
    first, last = wanted
    for day in sorted(held):
        table = pa.Table.from_batches(held.pop(day))
        if (first is None or day >= first) and (last is None or day <= last):
            place = folder / f"date={day}"
            place.mkdir(parents=True, exist_ok=True)
            name = f"{uuid.uuid4().hex}.parquet"
            # Nobody reads a file whose name begins with a dot: a task may be killed before it is whole.
            pq.write_table(table, place / f".{name}")
            (place / f".{name}").rename(place / name)
            yield Part(day, len(table), pc.max(table.column("ts")).value)
