"""Parquet files of tables by day, as Spark's Python workers read and write them: a part of a day each.

A part holds a range of ids. A series' id begins with its entity's, so all of an entity is in the same part,
and of files in the order of ids only what is in the range is read.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pgque_pipeline.otlp import BITS_OF_SERIES

_BITS = 64


@dataclass(frozen=True)
class Part:
    """The `number`th of so many parts of all ids, from 0 on."""

    number: int
    of: int

    @property
    def bounds(self) -> tuple[int, int]:
        """The first and the last id."""
        return self._begin(self.number), self._begin(self.number + 1) - 1

    def _begin(self, number: int) -> int:
        # Only where the bits of a series are 0: between two entities.
        slot = number * (1 << _BITS - BITS_OF_SERIES) // self.of
        return (slot << BITS_OF_SERIES) - (1 << _BITS - 1)


def read(
    folders: Iterable[Path], schema: pa.Schema, part: Part, *, only: pc.Expression | None = None
) -> pa.Table:
    """What folders hold of a part, a file after another; empty without folders."""
    wanted = only
    if part.of > 1:
        first, last = part.bounds
        key = pc.field("series_id" if "series_id" in schema.names else "entity_id")
        mine = (key >= first) & (key <= last)
        wanted = mine if only is None else mine & only
    files = (file for folder in folders for file in sorted(folder.glob("*.parquet")))
    tables = (
        pq.read_table(file, schema=schema, filters=wanted, partitioning=None) for file in files
    )
    return pa.concat_tables([schema.empty_table(), *tables])


def newest(folders: Iterable[Path], column: str) -> int | None:
    """The greatest time in a column, in microseconds since 1970, by what files tell of themselves."""
    found = []
    for file in (file for folder in folders for file in folder.glob("*.parquet")):
        told = pq.read_metadata(file)
        place = told.schema.to_arrow_schema().get_field_index(column)
        groups = (told.row_group(number).column(place) for number in range(told.num_row_groups))
        found += [group.statistics.max for group in groups if group.num_values]
    return round(max(found).timestamp() * 1_000_000) if found else None


def write(rows: pa.Table, folder: Path, part: Part) -> None:
    """Write a part of a day into its folder. A task that is tried again replaces what it wrote."""
    folder.mkdir(parents=True, exist_ok=True)
    # Nobody reads a file whose name begins with a dot: a task may be killed before it is whole.
    hidden = folder / f".{uuid.uuid4().hex}"
    pq.write_table(rows, hidden)
    hidden.rename(folder / f"part-{part.number:05}.parquet")
