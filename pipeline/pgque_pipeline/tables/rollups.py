"""`rollup_1m`, `rollup_1h`, `rollup_1d`: every series by minute, hour and day.

A counter's growth between two points is credited to the window of the later one, so rows of short
windows add up exactly to those of long ones, over midnight too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgque_pipeline.schemas import ROLLUP_1M
from pgque_pipeline.tables.runs import Array, Lists, Runs, as_lists, floats, integers, is_one_of, table

# Over a longer silence nobody can say when a counter grew. A day's rows need the day before, no more.
MAX_STEP_SECONDS = 86400

# Marks that a series has ended tell nothing of where it stood.
_KNOWN = pc.field("value").is_valid() | pc.field("count").is_valid()
_COUNTING = _KNOWN & pc.field("temporality").is_valid()
_SUMS = ("sum", "increase", "resets", "covered_seconds", "sum_increase")

MINUTE, HOUR, DAY = 60_000_000, 3_600_000_000, 86_400_000_000  # microseconds


def rollup_1m(points: pa.Table, before: pa.Table) -> pa.Table:
    """A day's points by minute; these and those of the day `before` in order of series and time.

    Points of the day before only tell where counters and histograms stood.
    """
    stood = _last_of_each(before.filter(_COUNTING))
    both = pa.concat_tables([stood, points.filter(_KNOWN)])
    order = np.argsort(integers(both, "series_id"), kind="stable")
    own = order >= len(stood)
    rows = both.take(pa.array(order)) if len(stood) else both
    value, ts = floats(rows, "value"), integers(rows, "ts")
    columns = {
        "series_id": integers(rows, "series_id"),
        "window_start": ts,
        "samples": np.ones(len(rows), np.int64),
        **dict.fromkeys(("sum", "min", "max", "first", "last"), value),
        **dict.fromkeys(("first_ts", "last_ts"), ts),
    }
    growth, buckets = _grown(rows, columns["series_id"], ts, own)
    columns |= growth
    place = np.cumsum(own) - 1
    return _by_window(
        {name: column[own] for name, column in columns.items()},
        [(place[rows], matrix) for rows, matrix in buckets],
        MINUTE,
    )


def merged(rollup: pa.Table, window: int) -> pa.Table:
    """Rows of a rollup by a longer window: HOUR or DAY."""
    whole = ("series_id", "window_start", "samples", "first_ts", "last_ts")
    columns = {
        field.name: integers(rollup, field.name) if field.name in whole else floats(rollup, field.name)
        for field in ROLLUP_1M.stored
        if field.name != "bucket_increase"
    }
    lists = Lists(rollup.column("bucket_increase"))
    return _by_window(columns, lists.matrices(), window)


def _by_window(columns: Mapping[str, Array], buckets: Iterable[tuple[Array, Array]], window: int) -> pa.Table:
    begin = columns["window_start"] // window * window
    runs = Runs(columns["series_id"], begin)
    found: dict[str, Any] = {
        "series_id": columns["series_id"][runs.first],
        "window_start": begin[runs.first],
        "samples": np.add.reduceat(columns["samples"], runs.first),
        "min": runs.least(columns["min"]),
        "max": runs.most(columns["max"]),
        **{name: columns[name][runs.first] for name in ("first", "first_ts")},
        **{name: columns[name][runs.last] for name in ("last", "last_ts")},
        **{name: runs.total(columns[name]) for name in _SUMS},
        "bucket_increase": as_lists(len(runs), (_added(runs.of[rows], matrix) for rows, matrix in buckets)),
    }
    return table(ROLLUP_1M.stored, found)


def _added(of: Array, matrix: Array) -> tuple[Array, Array]:
    runs = Runs(of)
    return of[runs.first], np.add.reduceat(matrix, runs.first, axis=0)


def _last_of_each(points: pa.Table) -> pa.Table:
    return points.take(pa.array(Runs(integers(points, "series_id")).last))


# --- what counters grew by -----------------------------------------------------------------------


def _grown(
    rows: pa.Table, series_id: Array, ts: Array, own: Array
) -> tuple[dict[str, Array], list[tuple[Array, Array]]]:
    """What each point's series grew by since the point before, and in which time; NaN for gauges.

    And of histograms, by the length of their lists: which rows are its `own` and their buckets' growth.
    """
    delta, cumulative = (is_one_of(rows.column("temporality"), word) for word in ("delta", "cumulative"))
    histogram = rows.column("count").is_valid().to_numpy()
    start = integers(rows, "start")
    since = _since_before(ts) / 1e6
    follows = cumulative & _before(cumulative) & _same(series_id) & (since <= MAX_STEP_SECONDS)
    lists = Lists(rows.column("counts"))
    amount, count, total = floats(rows, "value"), integers(rows, "count"), floats(rows, "sum")
    counted = np.where(histogram, count.astype(np.float64), amount)
    fell = follows & np.where(histogram, count < _before(count), amount < _before(amount))
    steps = [_Buckets(lists, length, follows) for length in lists.all_lengths()]
    for step in steps:
        fell[step.rows] |= step.fell
    # What is first seen at this very moment had counted before, for nobody knows how long.
    fresh = fell & (start == ts)

    def grown(column: Array) -> Array:
        found = np.where(fell, column, column - _before(column))
        found = np.where(fresh, column * 0, found)
        return np.where(delta, column, np.where(follows, found, np.nan))

    columns = {
        "increase": grown(counted),
        "resets": np.where(cumulative, fell.astype(np.float64), np.nan),
        "covered_seconds": np.where(
            delta & (start > 0), (ts - start) / 1e6, np.where(follows, since, np.nan)
        ),
        "sum_increase": np.where(histogram, grown(total), np.nan),
    }
    return columns, [step.grown(own, delta, fell, fresh) for step in steps]


class _Buckets:
    """Histograms whose lists are of one length."""

    def __init__(self, lists: Lists, length: int, follows: Array) -> None:
        self.rows = np.flatnonzero(lists.lengths == length)
        self._now = lists.matrix(self.rows, length)
        alike = follows[self.rows] & (_before(lists.lengths)[self.rows] == length)
        self._follows = alike
        self._then = np.zeros_like(self._now)
        self._then[alike] = lists.matrix(self.rows[alike] - 1, length)
        self.fell = alike & (self._now < self._then).any(axis=1)

    def grown(self, own: Array, delta: Array, fell: Array, fresh: Array) -> tuple[Array, Array]:
        """The rows that are `own` and that are known to have grown, and by what."""
        fell, fresh, delta = fell[self.rows], fresh[self.rows], delta[self.rows]
        found = self._now - self._then * ~(fell | delta)[:, None]
        found[fresh] = 0
        kept = own[self.rows] & (delta | fell | self._follows)
        return self.rows[kept], found[kept]


def _before(column: Array) -> Array:
    """Of each row what stands in the row before it; the first one's is its own."""
    return np.concatenate([column[:1], column[:-1]])


def _since_before(ts: Array) -> Array:
    return ts - _before(ts)


def _same(series_id: Array) -> Array:
    found: Array = series_id == _before(series_id)
    found[:1] = False
    return found
