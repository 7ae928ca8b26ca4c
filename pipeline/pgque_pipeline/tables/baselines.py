"""`baselines`: what is normal in each hour of the week.

Median and median absolute deviation: a bad week among several moves neither much, so incidents need not
be cut out. Hours are those of the clock on the wall of the given time zone. An hour that a change of the
clock repeats counts twice, one that it skips not at all.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from pgque_pipeline.schemas import BASELINES
from pgque_pipeline.tables.entities import COLUMNS

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


def baselines(rollup_1h: DataFrame, series: DataFrame, *, time_zone: str, weeks: int) -> DataFrame:
    """From the hours of all days, of which the newest `weeks` count; `series` has one row for each."""
    labels = series.where(sf.col("metric").isin(*METRICS)).select("series_id", "metric", "kind", *COLUMNS)
    newest = rollup_1h.agg((sf.max("window_start") + sf.expr("interval 1 hour")).alias("as_of"))
    hours = (
        rollup_1h.crossJoin(sf.broadcast(newest))
        .where(f"unix_seconds(as_of) - unix_seconds(window_start) <= {weeks} * 604800")
        .join(labels.select("series_id", "kind"), "series_id")
        .withColumn(
            "value", sf.expr("if(kind = 'gauge', sum / samples, try_divide(increase, covered_seconds))")
        )
        .where("value is not null")
        .withColumn("hour_of_week", _hour_of_week(time_zone))
    )
    found = (
        hours.groupBy("series_id", "hour_of_week")
        .agg(sf.array_sort(sf.collect_list("value")).alias("values"))
        .withColumn("hours", sf.size("values"))
        .where(f"hours >= {MIN_HOURS}")
        .withColumn("median", _median("values"))
        .withColumn("deviations", sf.expr("array_sort(transform(values, v -> abs(v - median)))"))
        .withColumn("mad", _median("deviations"))
        .withColumn("width", sf.expr(f"greatest({BAND_MADS}d * mad, {MIN_BAND}d * abs(median))"))
        .withColumn("low", sf.expr("greatest(0d, median - width)"))
        .withColumn("high", sf.expr("median + width"))
    )
    return BASELINES.shaped(found.join(labels.drop("kind"), "series_id"))


def _hour_of_week(time_zone: str) -> Column:
    local = sf.from_utc_timestamp("window_start", time_zone)
    return sf.weekday(local) * 24 + sf.hour(local)


def _median(sorted_values: str) -> Column:
    middle = f"size({sorted_values}) div 2"
    return sf.expr(
        f"if(size({sorted_values}) % 2 = 1, {sorted_values}[int({middle})], "
        f"({sorted_values}[int({middle}) - 1] + {sorted_values}[int({middle})]) / 2)"
    )
