"""Lines of input to files of fresh points, one for each day in each task, and to one of what was refused.

Spark's Python workers write these themselves: the columns are there, and to take them apart into Spark's rows
and put them together again costs more than to parse them. A task that is tried again leaves points twice,
which fresh points may be, and writes what it refused over what it wrote before.
"""

from __future__ import annotations

import gc
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pgque_pipeline import parts
from pgque_pipeline.reading import Lines, Lists
from pgque_pipeline.schemas import FRESH, POINTS, QUARANTINE
from pgque_pipeline.tables.points import Days, Parse

# Points that a task holds before it writes them.
_HELD = 500_000
_KEY = ["series_id", "ts"]


@dataclass(frozen=True)
class Outcome:
    """What came of a task.

    points   how many were written
    newest   time of the newest one in microseconds since 1970
    refused  how many lines and points were refused
    """

    points: int
    newest: int | None
    refused: int


@dataclass(frozen=True)
class Places:
    """Where a task writes to, and what it has to know for that.

    points   has a folder for each day
    refused  gets a file from each task that refuses anything
    wanted   days, a first and a last one, None for no bound: points of others aren't written
    taken    folders that hold the points of days for which new ones come too late
    """

    points: Path
    refused: Path
    wanted: Days
    taken: Mapping[date, Sequence[Path]]


def write(lines: Lines, parse: Parse, places: Places) -> tuple[list[Outcome], frozenset[str]]:
    """Write what `parse` makes of the lines; what came of it, and which files were gone.

    A point that is there already isn't refused as too late.
    """

    def task(number: int, lists: Lists) -> Outcome:
        with _no_search_for_cycles():
            return written(parse(lists), places, number)

    return lines.spread(task)


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Lines become many objects, none in a cycle: Python would look through them in vain."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def written(batches: Iterator[pa.RecordBatch], places: Places, number: int) -> Outcome:
    """Write parsed batches as the task of this number."""
    fresh, refused = _Fresh(places), _Refused(places, number)
    for batch in batches:
        usable = pc.is_null(batch.column("reason"))
        if not pc.all(usable).as_py():
            refused.add(batch.filter(pc.invert(usable)))
        fresh.add(_where(usable, batch.select(FRESH.stored.names)))
    fresh.flush()
    return Outcome(fresh.points, fresh.newest, refused.closed())


def _where(mask: pa.Array[Any], batch: pa.RecordBatch) -> pa.RecordBatch:
    """Those rows; mostly it is all of them, which needn't be copied."""
    return batch if pc.all(mask).as_py() else batch.filter(mask)


class _Fresh:
    """Points on their way into files."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._held: dict[date, list[pa.RecordBatch]] = defaultdict(list)
        self._count = 0
        self.points = 0
        self.newest: int | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        days = pc.floor_temporal(batch.column("ts"), unit="day")
        for day in pc.unique(days):
            self._held[day.as_py().date()].append(_where(pc.equal(days, day), batch))
        self._count += len(batch)
        if self._count >= _HELD:
            self.flush()

    def flush(self) -> None:
        """Write what is held."""
        first, last = self._places.wanted
        for day in sorted(self._held):
            if (first is None or day >= first) and (last is None or day <= last):
                self._write(day, pa.Table.from_batches(self._held[day]))
        self._held.clear()
        self._count = 0

    def _write(self, day: date, table: pa.Table) -> None:
        parts.write_file(table, self._places.points / f"date={day}" / f"{uuid.uuid4().hex}.parquet")
        self.points += len(table)
        self.newest = max(pc.max(table.column("ts")).value, self.newest or 0)


class _Refused:
    """Refused lines and points on their way into the task's file."""

    def __init__(self, places: Places, number: int) -> None:
        self._taken = places.taken
        self._path = places.refused / f"part-{number:05}.parquet"
        self._hidden = self._path.with_name(f".{uuid.uuid4().hex}")
        self._writer: pq.ParquetWriter | None = None
        self._count = 0

    def add(self, rows: pa.RecordBatch) -> None:
        rows = self._not_taken(rows)
        if not len(rows):
            return
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._hidden, QUARANTINE.stored)
        self._writer.write_batch(rows.select(QUARANTINE.columns))
        self._count += len(rows)

    def closed(self) -> int:
        """Have the file, if there is anything to put into it; how much that was."""
        if self._writer is not None:
            self._writer.close()
            self._hidden.rename(self._path)
        return self._count

    def _not_taken(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those but points that are there already: they were in time when their file was read before."""
        late = np.flatnonzero(rows.column("series_id").is_valid())
        keys = pa.Table.from_batches([rows.select(_KEY)]).append_column("row", pa.array(np.arange(len(rows))))
        keys = keys.take(pa.array(late))
        days = pc.unique(pc.floor_temporal(keys.column("ts"), unit="day")).to_pylist()
        folders = [folder for day in days for folder in self._taken.get(day.date(), ())]
        if not folders:
            return rows
        span = pc.min_max(keys.column("ts"))
        same = pc.field("series_id").isin(pc.unique(keys.column("series_id")))
        wanted = same & (pc.field("ts") >= span["min"]) & (pc.field("ts") <= span["max"])
        schema = pa.schema([POINTS.stored.field(name) for name in _KEY])
        taken = parts.read(folders, schema, parts.Part(0, 1), only=wanted)
        found = keys.join(taken, _KEY, join_type="left semi").column("row").to_numpy()
        return rows.take(pa.array(np.setdiff1d(np.arange(len(rows)), found)))
