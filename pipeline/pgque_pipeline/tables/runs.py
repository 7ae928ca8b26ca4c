"""Rows in order, by column: runs of equal keys, and what is summed over each.

In arrays of numbers NaN stands for NULL, since no value of a point is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Array = np.ndarray[Any, Any]


class Runs:
    """Where the keys of rows stay the same from one row to the next.

    first, last  the first and the last row of each run
    of           the run of each row
    """

    def __init__(self, *keys: Array) -> None:
        new = np.zeros(len(keys[0]), bool)
        new[:1] = True
        for key in keys:
            new[1:] |= key[1:] != key[:-1]
        self.first = np.flatnonzero(new)
        self.last = np.append(self.first[1:], len(new))[: len(self.first)] - 1
        self.of = np.cumsum(new) - 1

    def __len__(self) -> int:
        return len(self.first)

    @property
    def lengths(self) -> Array:
        """How many rows each run has."""
        return self.last - self.first + 1

    def total(self, column: Array) -> Array:
        """Sum of what is known; NaN where nothing is."""
        unknown = np.isnan(column)
        total = np.add.reduceat(np.where(unknown, 0, column), self.first)
        return np.where(np.logical_and.reduceat(unknown, self.first), np.nan, total)

    def least(self, column: Array) -> Array:
        """The least of what is known."""
        return np.fmin.reduceat(column, self.first)

    def most(self, column: Array) -> Array:
        """The greatest of what is known."""
        return np.fmax.reduceat(column, self.first)


def in_order(*keys: Array, then: Array | None = None) -> tuple[Array, Runs]:
    """The order of rows by these keys, of equal keys by `then`; and the runs of keys in that order."""
    order = np.lexsort(([] if then is None else [then]) + [*reversed(keys)])
    return order, Runs(*(key[order] for key in keys))


class Lists:
    """A column of lists of numbers, some of them NULL; those of one length at a time are a matrix.

    lengths  of each list, -1 of NULL
    """

    def __init__(self, column: pa.ChunkedArray[Any]) -> None:
        whole = column.combine_chunks()
        self.lengths: Array = pc.fill_null(pc.list_value_length(whole), -1).to_numpy(zero_copy_only=False)
        sizes = np.maximum(self.lengths, 0)
        self._starts = np.cumsum(sizes, dtype=np.int64) - sizes
        self._values: Array = pc.list_flatten(whole).to_numpy(zero_copy_only=False)

    def all_lengths(self) -> Iterator[int]:
        """The lengths that there are, in ascending order."""
        yield from (int(length) for length in np.unique(self.lengths) if length >= 0)

    def matrices(self) -> Iterator[tuple[Array, Array]]:
        """The rows of each length, and their lists."""
        for length in self.all_lengths():
            rows = np.flatnonzero(self.lengths == length)
            yield rows, self.matrix(rows, length)

    def matrix(self, rows: Array, length: int) -> Array:
        """The lists of these rows, which have to be of this length."""
        found: Array = self._values[self._starts[rows][:, None] + np.arange(length)]
        return found


def as_lists(size: int, matrices: Iterable[tuple[Array, Array]]) -> pa.ListArray[Any]:
    """A column of `size` lists; each matrix with the rows that it is for. NULL for all others."""
    given = [*matrices]
    lengths = np.full(size, -1)
    for rows, matrix in given:
        lengths[rows] = matrix.shape[1]
    ends = np.cumsum(np.maximum(lengths, 0))
    values = np.zeros(ends[-1] if size else 0, np.int64)
    for rows, matrix in given:
        mine = lengths[rows] == matrix.shape[1]  # of two lists for a row the later one stands
        starts = ends[rows[mine]] - matrix.shape[1]
        values[starts[:, None] + np.arange(matrix.shape[1])] = matrix[mine]
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), mask=pa.array(lengths < 0))


# --- columns of Arrow ----------------------------------------------------------------------------


def integers(rows: pa.Table, column: str, *, unknown: int = 0) -> Array:
    """A column of integers, or of times in microseconds since 1970."""
    found = rows.column(column)
    if pa.types.is_timestamp(found.type):
        found = pc.cast(found, pa.int64())
    known: Array = pc.fill_null(found, unknown).to_numpy()
    return known


def floats(rows: pa.Table, column: str) -> Array:
    """A column of numbers, NaN for NULL."""
    found: Array = pc.fill_null(pc.cast(rows.column(column), pa.float64()), np.nan).to_numpy()
    return found


def of_series(rows: pa.Table, series: pa.Table) -> tuple[pa.Table, Array]:
    """Those rows whose series is one of these, and the place of each one's series among them.

    `series` has to be in the order of its ids.
    """
    ids, known = integers(rows, "series_id"), integers(series, "series_id")
    place = np.searchsorted(known, ids)
    mine = np.append(known, 0)[place] == ids if len(known) else np.zeros(len(ids), bool)
    mine &= place < len(known)
    return rows.filter(pa.array(mine)), place[mine]


def codes(column: pa.ChunkedArray[Any]) -> Array:
    """A column of texts as numbers, the same for the same text; NULL is one of them."""
    found: Array = column.combine_chunks().dictionary_encode("encode").indices.to_numpy().astype(np.int64)
    return found


def next_of(column: Array, beyond: int) -> Array:
    """Of each row what stands in the following one; `beyond` of the last."""
    return np.append(column[1:], beyond) if len(column) else column


def is_one_of(column: pa.ChunkedArray[Any], *words: str) -> Array:
    """Which of a column's texts are one of these."""
    found: Array = pc.fill_null(pc.is_in(column, pa.array(words)), False).to_numpy()
    return found


def table(schema: pa.Schema, columns: Mapping[str, Any]) -> pa.Table:
    """Columns by name, in Arrow's terms or as arrays, as a table."""
    return pa.table([_column(columns[field.name], field.type) for field in schema], schema=schema)


def _column(column: Any, type_: pa.DataType) -> Any:
    if not isinstance(column, np.ndarray):
        return column.cast(type_)
    if column.dtype.kind != "f":
        return pa.array(column).cast(type_)
    known = pa.array(column, from_pandas=True)
    return known if type_ == pa.float64() else known.cast(type_)
