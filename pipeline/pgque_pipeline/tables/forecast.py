"""`forecast`: when a consumer's lag passes its queue's rotation period, and how sure that is.

A straight line by least squares through the last values of the newest minutes. The interval is that of
the line's slope; the time left is counted from the newest lag, not from the line.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from pgque_pipeline.schemas import FORECAST

LAG = "pgque.consumer.lag_seconds"
PERIOD = "pgque.queue.rotation_period_seconds"
MIN_SAMPLES = 10
MIN_SPAN_SECONDS = 1800
# Two-sided 95 % of a normal distribution.
DEVIATIONS = 1.96

_QUEUE = ("engine", "database", "queue", "entries")


def forecast(rollup_1m: DataFrame, series: DataFrame, *, hours: int) -> DataFrame:
    """From the minutes of the newest days, of which the last `hours` count; `series` has one row for each.

    A consumer without samples in that time, or with too few, has no row.
    """
    labels = series.where(sf.col("metric").isin(LAG, PERIOD)).withColumn(
        "entries", sf.array_sort(sf.map_entries("attributes"))
    )
    newest = rollup_1m.agg(sf.max("last_ts").alias("as_of"))
    minutes = (
        rollup_1m.select("series_id", "last_ts", "last")
        .crossJoin(sf.broadcast(newest))
        .withColumn("x", sf.expr("(unix_micros(last_ts) - unix_micros(as_of)) / 1e6"))
        .where(f"x >= -{hours} * 3600")
        .join(
            labels.select(
                "series_id", "metric", "entity_id", "engine", "database", "queue", "consumer", "entries"
            ),
            "series_id",
        )
    )
    periods = (
        minutes.where(sf.col("metric") == PERIOD)
        .groupBy(*_QUEUE)
        .agg(sf.max_by("last", "x").alias("rotation_period_seconds"))
    )
    lags = minutes.where(sf.col("metric") == LAG)
    sums = lags.groupBy("as_of", "entity_id", *_QUEUE, "consumer").agg(
        sf.count("*").alias("samples"),
        sf.max_by("last", "x").alias("lag_seconds"),
        (sf.max("x") - sf.min("x")).alias("span"),
        sf.regr_slope("last", "x").alias("slope"),
        sf.regr_sxx("last", "x").alias("sxx"),
        sf.regr_syy("last", "x").alias("syy"),
    )
    matched = sums.join(sf.broadcast(periods), _same_queue(sums, periods)).select(
        *(sums[name] for name in sums.columns), "rotation_period_seconds"
    )
    found = (
        matched.where(
            f"samples >= {MIN_SAMPLES} and span >= {MIN_SPAN_SECONDS} and rotation_period_seconds > 0"
        )
        .withColumn("error", sf.expr("sqrt(greatest(0d, syy - slope * slope * sxx) / (samples - 2) / sxx)"))
        .withColumn("slope_low", sf.expr(f"slope - {DEVIATIONS}d * error"))
        .withColumn("slope_high", sf.expr(f"slope + {DEVIATIONS}d * error"))
        .withColumn("room", sf.expr("rotation_period_seconds - lag_seconds"))
    )
    for name, slope in (("", "slope"), ("_low", "slope_high"), ("_high", "slope_low")):
        left = f"case when room <= 0 then 0d when {slope} > 0 then room / {slope} end"
        found = found.withColumn(f"seconds_left{name}", sf.expr(left))
    return FORECAST.shaped(found.withColumn("attributes", sf.map_from_entries("entries")))


def _same_queue(left: DataFrame, right: DataFrame) -> Column:
    conditions = [left[name].eqNullSafe(right[name]) for name in _QUEUE]
    return conditions[0] & conditions[1] & conditions[2] & conditions[3]
