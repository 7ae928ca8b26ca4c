"""`latency`: percentiles by hour."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgque_pipeline.schemas import LATENCY
from pgque_pipeline.tables.entities import labels
from pgque_pipeline.tables.rollups import HOUR
from pgque_pipeline.tables.runs import Array, Lists, Runs, floats, in_order, integers, of_series, table

PROCESSING = "pgque.processing_latency_seconds"
LAG = "pgque.consumer.lag_seconds"
_PERCENTILES = (50, 90, 95, 99)


def latency(points: pa.Table, rollup_1h: pa.Table, series: pa.Table) -> pa.Table:
    """From a day's points, rollup by hour and series."""
    return pa.concat_tables([_of_histograms(rollup_1h, series), _of_samples(points, series)])


def _of_histograms(rollup_1h: pa.Table, series: pa.Table) -> pa.Table:
    """Observations are taken to lie evenly in each bucket.

    Below the first bound they lie from 0 on if that is above 0, beyond the last bound at that.
    """
    histograms = series.filter((pc.field("metric") == PROCESSING) & (pc.field("kind") == "histogram"))
    rows, place = of_series(rollup_1h.filter(pc.field("increase") > 0), histograms)
    counts, bounds = Lists(rows.column("bucket_increase")), Lists(histograms.column("bounds"))
    tables = [LATENCY.stored.empty_table()]
    for length in counts.all_lengths():
        mine = np.flatnonzero((counts.lengths == length) & (bounds.lengths[place] == length - 1))
        if length > 1 and len(mine):
            of_length = rows.take(pa.array(mine))
            increase, total = floats(of_length, "increase"), floats(of_length, "sum_increase")
            buckets = counts.matrix(mine, length), bounds.matrix(place[mine], length - 1)
            found = {
                "window_start": integers(of_length, "window_start"),
                **labels(integers(histograms, "entity_id")[place[mine]], histograms),
                **_told(PROCESSING, "histogram", len(mine)),
                "observations": increase,
                "mean": total / increase,
                **{f"p{q}": _within_buckets(q / 100 * increase, *buckets) for q in _PERCENTILES},
            }
            tables.append(table(LATENCY.stored, found))
    return pa.concat_tables(tables)


def _within_buckets(rank: Array, counts: Array, bounds: Array) -> Array:
    """The value of the observation of this rank, of each row."""
    row = np.arange(len(counts))
    below = np.cumsum(counts, axis=1)
    holds = (below >= rank[:, None]) & (counts > 0)
    at = holds.argmax(axis=1)
    count = counts[row, at]
    lower = np.where(at == 0, 0.0, bounds[row, np.maximum(at - 1, 0)])
    upper = bounds[row, np.minimum(at, bounds.shape[1] - 1)]
    share = (rank - (below[row, at] - count)) / np.maximum(count, 1)
    found = lower + (upper - lower) * share
    found = np.where((at == bounds.shape[1]) | ((at == 0) & (bounds[:, 0] <= 0)), upper, found)
    return np.where(holds.any(axis=1), found, np.nan)


def _of_samples(points: pa.Table, series: pa.Table) -> pa.Table:
    of_lag = series.filter(pc.field("metric") == LAG)
    samples, place = of_series(
        points.select(["series_id", "ts", "value"]).filter(pc.field("value").is_valid()), of_lag
    )
    entity_id, value = integers(of_lag, "entity_id")[place], floats(samples, "value")
    hour = integers(samples, "ts") // HOUR * HOUR
    order, runs = in_order(hour, entity_id, then=value)
    entity_id, value, hour = entity_id[order], value[order], hour[order]
    found = {
        "window_start": hour[runs.first],
        **labels(entity_id[runs.first], of_lag),
        **_told(LAG, "samples", len(runs)),
        "observations": runs.lengths.astype(np.float64),
        "mean": runs.total(value) / runs.lengths,
        **{f"p{q}": _between(value, runs, q / 100) for q in _PERCENTILES},
    }
    return table(LATENCY.stored, found)


def _between(value: Array, runs: Runs, q: float) -> Array:
    """A quantile of each run's values, which are in order; between two of them by the straight line."""
    place = q * (runs.lengths - 1)
    low, high = (value[runs.first + end(place).astype(np.int64)] for end in (np.floor, np.ceil))
    found: Array = low + (high - low) * (place - np.floor(place))
    return found


def _told(metric: str, source: str, size: int) -> dict[str, Any]:
    words = {"metric": metric, "source": source}
    return {name: pa.array([word]).take(pa.array(np.zeros(size, np.int64))) for name, word in words.items()}
