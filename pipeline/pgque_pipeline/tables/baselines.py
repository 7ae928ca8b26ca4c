"""`baselines`: what is normal in each hour of the week.

Median and median absolute deviation: a bad week among several moves neither much, so incidents need not
be cut out. Hours are those of the clock on the wall of the given time zone. An hour that a change of the
clock repeats counts twice, one that it skips not at all.
"""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgque_pipeline.schemas import BASELINES
from pgque_pipeline.tables.entities import labels
from pgque_pipeline.tables.rollups import HOUR
from pgque_pipeline.tables.runs import Array, Runs, floats, in_order, integers, is_one_of, of_series, table

# Gauges by their mean of the hour, counters by their rate.
METRICS = (
    "pgque.queue.depth",
    "pgque.queue.oldest_message_age_seconds",
    "pgque.message.sent_total",
    "pgque.message.acked_total",
    "pgque.message.nacked_total",
    "pgque.message.dead_lettered_total",
    "pgque.message.retry_waiting",
    "pgque.consumer.lag_seconds",
    "pgque.consumer.pending_events",
)
MIN_HOURS = 3
# The band: three standard deviations, were the values normal, and at least a tenth of the median.
BAND_MADS = 3 * 1.4826
MIN_BAND = 0.1


def baselines(
    rollup_1h: pa.Table, series: pa.Table, *, time_zone: str, weeks: int, as_of: int
) -> pa.Table:
    """From the hours of all days, of which the newest `weeks` until `as_of` count; microseconds since 1970.

    `series` has one row for each, in the order of ids.
    """
    wanted = series.filter(pc.field("metric").isin(METRICS))
    rows, place = of_series(rollup_1h, wanted)
    begin = integers(rows, "window_start")
    value = _values(rows, is_one_of(wanted.column("kind"), "gauge")[place])
    kept = ~np.isnan(value) & (as_of - begin <= weeks * 7 * 24 * HOUR)
    place, value, hour = place[kept], value[kept], _hour_of_week(begin[kept], time_zone)

    order, runs = in_order(place, hour, then=value)
    place, value, hour = place[order], value[order], hour[order]
    median = _median(value, runs)
    deviation = np.abs(value - median[runs.of])
    mad = _median(deviation[in_order(runs.of, then=deviation)[0]], runs)
    width = np.maximum(BAND_MADS * mad, MIN_BAND * np.abs(median))
    series_of_run = wanted.take(pa.array(place[runs.first]))
    found = table(
        BASELINES.stored,
        {
            "series_id": series_of_run.column("series_id"),
            **labels(integers(series_of_run, "entity_id"), wanted),
            "metric": series_of_run.column("metric"),
            "hour_of_week": hour[runs.first],
            "hours": runs.lengths,
            "median": median,
            "mad": mad,
            "low": np.maximum(0.0, median - width),
            "high": median + width,
        },
    )
    return found.filter(pa.array(runs.lengths >= MIN_HOURS))


def _values(rollup_1h: pa.Table, gauge: Array) -> Array:
    samples, seconds = integers(rollup_1h, "samples"), floats(rollup_1h, "covered_seconds")
    seconds = np.where(seconds == 0, np.nan, seconds)  # growth in no time has no rate
    found: Array = np.where(
        gauge, floats(rollup_1h, "sum") / samples, floats(rollup_1h, "increase") / seconds
    )
    return found


def _hour_of_week(begin: Array, time_zone: str) -> Array:
    zone = ZoneInfo(time_zone)
    hours, place = np.unique(begin, return_inverse=True)
    local = [datetime.fromtimestamp(hour / 1e6, UTC).astimezone(zone) for hour in hours.tolist()]
    found: Array = np.array([one.weekday() * 24 + one.hour for one in local], np.int64)[place]
    return found


def _median(value: Array, runs: Runs) -> Array:
    """Of each run's values, which are in order."""
    low, high = (value[runs.first + at] for at in ((runs.lengths - 1) // 2, runs.lengths // 2))
    found: Array = (low + high) / 2
    return found
