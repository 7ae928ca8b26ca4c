"""`points`: OTLP lines, flat and typed, each point once, with an id for what it is about.

A point that a database's name stands on is that database's, whichever exporter sent it: after a restart
elsewhere, or a change of leader, its series go on. All others belong to their sender.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from pgque_pipeline.otlp import LABELS, Identity, Parser
from pgque_pipeline.schemas import FRESH, POINTS, QUARANTINE, SERIES
from pgque_pipeline.tables.runs import Array, Lists, in_order, integers

_FUTURE = timedelta(days=1)
_ONE_DAY = timedelta(days=1)
# Points that are made into columns at a time.
_BATCH = 50_000
# Into how many parts a day is divided where Spark is to make each point one.
_PARTS = 8

# Of points of a series and a time the first in this order stays: that of the largest value.
_ORDER = [
    ("series_id", "ascending"),
    ("ts", "ascending"),
    *((name, "descending") for name in ("value", "count", "start", "sum", "temporality")),
]

Days = tuple[date | None, date | None]
Parse = Callable[[Iterable[tuple[str, list[bytes]]]], Iterator[pa.RecordBatch]]

# Where a row comes from and why it is refused, if it is; and fresh points without the day.
PARSED = pa.schema([*QUARANTINE.stored, *FRESH.stored])
ARROW_IDENTITY = pa.schema([field for field in SERIES.stored if field.name in FRESH.columns])
_DAY_MICROS = 86_400_000_000
_MAX_DAYS = 2**20


def parser(now: datetime, earliest: date | None = None, spared: Days | None = None) -> Parse:
    """What makes batches of PARSED of lists of lines, each with its file: a row per data point.

    What a series is about stands in some rows only, at least in one of each day. Where a point or a whole
    line can't be used, `reason` says why and `text` what it was; of a point that is too late there are also
    `series_id` and `ts`. Points of more than a day after `now` are refused, as are those of days before
    `earliest` but for `spared` ones: from a first to a last day, None for no bound.
    """
    latest = _nanoseconds(now + _FUTURE)
    return partial(_parsed, latest=latest, late=partial(_is_late, *_late(earliest, spared)))


def with_labels(points: DataFrame, series: DataFrame) -> DataFrame:
    """Points of some days with all that `series` of these days tells of them, a column each."""
    labels = [name for name in SERIES.columns if name not in ("first_seen", "last_seen", "points")]
    return points.join(series.select(*labels), ["date", "series_id"])


def deduplicated(rows: DataFrame) -> DataFrame:
    """What `settled` makes of the points of each day."""
    part = sf.pmod("series_id", sf.lit(_PARTS))
    return rows.groupBy("date", part).applyInArrow(settled, POINTS.schema)


# --- each point once -----------------------------------------------------------------------------


def settled(rows: pa.Table) -> pa.Table:
    """Each point once, by series and time. Of points that differ the one of the largest value stays."""
    order, once = in_order(integers(rows, "series_id"), integers(rows, "ts"))
    if len(once) == len(rows):
        return rows.take(pa.array(order))
    ordered = rows.take(pc.sort_indices(rows, sort_keys=_ORDER))
    return ordered.take(pa.array(_by_buckets(ordered, once.first)))


def _by_buckets(ordered: pa.Table, first: Array) -> Array:
    """The rows to keep: those of the largest buckets, where histograms differ in nothing else."""
    kept = first.copy()
    counts, rest = ordered.column("counts"), ordered.drop_columns(["counts"])
    ends = np.append(first[1:], len(ordered))
    differs = _unlike_before(Lists(counts))
    differs[first] = False
    for place in np.flatnonzero(np.logical_or.reduceat(differs, first)):
        begin, end = int(first[place]), int(ends[place])
        same = [row for row in range(begin, end) if rest.slice(row, 1).equals(rest.slice(begin, 1))]
        kept[place] = max(same, key=lambda row: (counts[row].as_py() or [], -row))
    return kept


def _unlike_before(lists: Lists) -> Array:
    """Which lists are others than those of the rows before them."""
    found = np.ones(len(lists.lengths), bool)
    found[1:] = lists.lengths[1:] != lists.lengths[:-1]
    for length in lists.all_lengths():
        rows = np.flatnonzero((lists.lengths == length) & ~found)
        found[rows] = (lists.matrix(rows, length) != lists.matrix(rows - 1, length)).any(axis=1)
    return found


# --- which times are taken -----------------------------------------------------------------------


def _late(earliest: date | None, spared: Days | None) -> tuple[int, int, int]:
    """Before which moment a point is late, and from when to when none is; nanoseconds since 1970."""
    if earliest is None:
        return 0, 0, 0
    if spared is None:
        return _begin(earliest), 0, 0
    first, last = spared
    return (
        _begin(earliest),
        0 if first is None else _begin(first),
        2**63 if last is None else _begin(last + _ONE_DAY),
    )


def _is_late(earliest: int, spared_from: int, spared_to: int, ns: int) -> bool:
    return ns < earliest and not spared_from <= ns < spared_to


def _begin(day: date) -> int:
    return _nanoseconds(datetime.combine(day, datetime.min.time(), UTC))


def _nanoseconds(moment: datetime) -> int:
    return int((moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1)) * 1000


# --- lines to rows -------------------------------------------------------------------------------


def _parsed(
    found: Iterable[tuple[str, list[bytes]]], latest: int, late: Callable[[int], bool]
) -> Iterator[pa.RecordBatch]:
    parser, labels = Parser(latest, late), _Labels()
    files: list[str] = []
    for file, lines in found:
        for line in lines:
            parser.line(line)
            if len(parser.columns) >= _BATCH:
                files += [file] * (len(parser.columns) - len(files))
                yield _batch(parser, labels, files)
                files = []
        files += [file] * (len(parser.columns) - len(files))
    if files:
        yield _batch(parser, labels, files)


def _batch(parser: Parser, labels: _Labels, files: list[str]) -> pa.RecordBatch:
    columns = parser.columns
    arrays = {
        name: pa.array(values, PARSED.field(name).type)
        for name, values in {**vars(columns), "file": files}.items()
        if name in PARSED.names
    }
    series = pa.array(columns.series, pa.int32())
    arrays |= labels.of(parser.identities, series, arrays["ts"], arrays["reason"])
    parser.taken()
    return pa.RecordBatch.from_arrays([arrays[name] for name in PARSED.names], schema=PARSED)


class _Labels:
    """What a parser's series are about: made into columns once, then picked from for each batch."""

    def __init__(self) -> None:
        self._of: list[Identity] = []
        self._columns: dict[str, pa.Array[Any]] = {}
        self._told: set[int] = set()

    def of(
        self, identities: list[Identity], series: pa.Array[Any], ts: pa.Array[Any], reason: pa.Array[Any]
    ) -> dict[str, pa.Array[Any]]:
        """Columns by name: the id of each point's series, and the labels of the first of each series and day.

        `series` are places in `identities`.
        """
        if identities is not self._of:
            self._of, self._columns, self._told = identities, {}, set()
        if not self._columns or len(self._columns["series_id"]) != len(identities):
            self._columns = _label_columns(identities)
        first = self._first_of_day(series, ts, reason)
        return {
            name: column.take(series if name == "series_id" else first)
            for name, column in self._columns.items()
        }

    def _first_of_day(self, series: pa.Array[Any], ts: pa.Array[Any], reason: pa.Array[Any]) -> pa.Array[Any]:
        """`series` where that is the first usable point of a day; else NULL."""
        usable = np.flatnonzero(pc.is_null(reason).to_numpy(zero_copy_only=False))
        numbers = series.fill_null(0).to_numpy().astype(np.int64)
        days = ts.cast(pa.int64()).fill_null(0).to_numpy() // _DAY_MICROS
        keys, places = np.unique((numbers * _MAX_DAYS + days)[usable], return_index=True)
        new = np.array([key not in self._told for key in keys.tolist()], bool)
        self._told.update(keys.tolist())
        others = np.ones(len(numbers), bool)
        others[usable[places[new]]] = False
        return pa.array(numbers, pa.int32(), mask=others)


def _label_columns(identities: list[Identity]) -> dict[str, pa.Array[Any]]:
    columns: dict[str, list[Any]] = {
        name: [getattr(one, name) for one in identities] for name in Identity._fields if name != "labels"
    }
    columns |= {name: [one.labels[place] for one in identities] for place, name in enumerate(LABELS)}
    return {name: pa.array(values, PARSED.field(name).type) for name, values in columns.items()}
