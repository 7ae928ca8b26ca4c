"""`forecast`: when a consumer's lag passes its queue's rotation period, and how sure that is.

A straight line by least squares through the last values of the newest minutes. The interval is that of
the line's slope; the time left is counted from the newest lag, not from the line.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pgque_pipeline.schemas import FORECAST
from pgque_pipeline.tables.entities import labels
from pgque_pipeline.tables.rollups import HOUR
from pgque_pipeline.tables.runs import Array, Runs, floats, in_order, integers, of_series, table

LAG = "pgque.consumer.lag_seconds"
PERIOD = "pgque.queue.rotation_period_seconds"
MIN_SAMPLES = 10
MIN_SPAN_SECONDS = 1800
# Two-sided 95 % of a normal distribution.
DEVIATIONS = 1.96

_QUEUE = ("engine", "database", "queue", "attributes")


def forecast(
    rollup_1m: pa.Table, rollup_1d: pa.Table, lags: pa.Table, periods: pa.Table, *, hours: int, as_of: int
) -> pa.Table:
    """From the minutes of lags, of which the last `hours` until `as_of` count, and the days of periods.

    lags, periods  the series of LAG and of PERIOD, one row for each, in the order of ids
    as_of          microseconds since 1970

    A consumer without samples in that time, or with too few, has no row.
    """
    minutes, place = of_series(rollup_1m.filter(pa.array(_recent(rollup_1m, hours, as_of))), lags)
    entity_id, x = integers(lags, "entity_id")[place], (integers(minutes, "last_ts") - as_of) / 1e6
    order, runs = in_order(entity_id, then=x)
    lag = floats(minutes, "last")[order]
    first, x = order[runs.first], x[order]
    period_of = _newest(rollup_1d.filter(pa.array(_recent(rollup_1d, hours, as_of))), periods)
    found: dict[str, Any] = {
        **labels(entity_id[first], lags),
        "as_of": np.full(len(runs), as_of),
        "lag_seconds": lag[runs.last],
        "samples": runs.lengths,
    }
    keys = zip(*(found[name].to_pylist() for name in _QUEUE), strict=True)
    period = np.array([period_of.get(_key(*key), np.nan) for key in keys], np.float64)
    room = period - lag[runs.last]
    slope, error = _line(x, lag, runs)
    found |= {
        "rotation_period_seconds": period,
        "slope": slope,
        "slope_low": slope - DEVIATIONS * error,
        "slope_high": slope + DEVIATIONS * error,
    }
    found["seconds_left"] = _left(room, slope)
    found["seconds_left_low"] = _left(room, found["slope_high"])
    found["seconds_left_high"] = _left(room, found["slope_low"])
    enough = (runs.lengths >= MIN_SAMPLES) & (x[runs.last] - x[runs.first] >= MIN_SPAN_SECONDS)
    return table(FORECAST.stored, found).filter(pa.array(enough & (period > 0)))


def _recent(rollup: pa.Table, hours: int, as_of: int) -> Array:
    found: Array = as_of - integers(rollup, "last_ts") <= hours * HOUR
    return found


def _newest(rollup_1d: pa.Table, periods: pa.Table) -> dict[Any, float]:
    """The newest rotation period of each queue."""
    rows, place = of_series(rollup_1d.filter(pc.field("last").is_valid()), periods)
    order = np.argsort(integers(rows, "last_ts"), kind="stable")
    queues = periods.select(_QUEUE).take(pa.array(place[order]))
    keys = zip(*(column.to_pylist() for column in queues.columns), strict=True)
    return {_key(*key): last for key, last in zip(keys, floats(rows, "last")[order].tolist(), strict=True)}


def _key(engine: str | None, database: str | None, queue: str | None, attributes: Any) -> Any:
    return engine, database, queue, tuple(sorted(attributes))


def _line(x: Array, y: Array, runs: Runs) -> tuple[Array, Array]:
    """The slope of the line through each run's points, and its standard error; NaN of too few points."""
    with np.errstate(divide="ignore", invalid="ignore"):
        dx, dy = (one - (runs.total(one) / runs.lengths)[runs.of] for one in (x, y))
        sxx, sxy, syy = (runs.total(product) for product in (dx * dx, dx * dy, dy * dy))
        slope = sxy / sxx
        error = np.sqrt(np.maximum(0.0, syy - slope * slope * sxx) / (runs.lengths - 2) / sxx)
    return slope, error


def _left(room: Array, slope: Array) -> Array:
    """Seconds until nothing is left of the room; NaN if it doesn't shrink."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(room <= 0, 0.0, np.where(slope > 0, room / slope, np.nan))
