"""Parquet files of tables as Spark's Python workers read and write them: a part of a table or a day each.

A part holds a range of ids. A series' id begins with its entity's, so all of an entity is in the same part.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pgque_pipeline.otlp import BITS_OF_SERIES

_BITS = 64
# Some 250 bytes each while tables are made of points.
_MOST_ROWS = 3_000_000


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


def all_parts(count: int) -> list[Part]:
    """The parts of what is divided into so many."""
    return [Part(number, count) for number in range(count)]


def files(folders: Iterable[Path]) -> list[Path]:
    """The files of some folders, those of each in their order."""
    return [file for folder in folders for file in sorted(folder.glob("*.parquet"))]


def count_rows(folders: Iterable[Path]) -> int:
    """How many rows there are, by what files tell of themselves."""
    return sum(_told(file).num_rows for file in files(folders))


def parts_for(folders: Iterable[Path]) -> int:
    """How many parts are needed so that none is too much for a worker that holds all of these."""
    return max(math.ceil(count_rows(folders) / _MOST_ROWS), 1)


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
    tables = (
        pq.read_table(file, schema=schema, filters=wanted, partitioning=None) for file in files(folders)
    )
    return pa.concat_tables([schema.empty_table(), *tables])


def newest(folders: Iterable[Path], column: str) -> int | None:
    """The greatest time in a column, in microseconds since 1970, by what files tell of themselves."""
    found = []
    for file in files(folders):
        told = _told(file)
        leaves = [told.schema.column(number).path for number in range(told.num_columns)]
        place = leaves.index(column)
        groups = (told.row_group(number).column(place) for number in range(told.num_row_groups))
        found += [group.statistics.max for group in groups if group.num_values]
    return round(max(found).timestamp() * 1_000_000) if found else None


def _told(file: Path) -> pq.FileMetaData:
    try:
        return pq.read_metadata(file)
    except pa.ArrowInvalid as error:  # which doesn't say where
        raise pa.ArrowInvalid(f"{file}: {error}") from None


def write(rows: pa.Table, folder: Path, part: Part) -> None:
    """Write a part into its folder. A task that is tried again replaces what it wrote."""
    write_file(rows, folder / f"part-{part.number:05}.parquet")


def write_file(rows: pa.Table, file: Path) -> None:
    """Write rows into a file that is whole as soon as it has its name."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # Nobody reads it under this name, should the task be killed before it is whole.
    hidden = file.with_name(f".{uuid.uuid4().hex}")
    pq.write_table(rows, hidden)
    hidden.rename(file)
