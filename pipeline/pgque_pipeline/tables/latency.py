"""`latency`: percentiles by hour."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from pgque_pipeline.schemas import LATENCY
from pgque_pipeline.tables.entities import COLUMNS, labelled

PROCESSING = "pgque.processing_latency_seconds"
LAG = "pgque.consumer.lag_seconds"
_PERCENTILES = (50, 90, 95, 99)


def latency(points: DataFrame, rollup_1h: DataFrame, series: DataFrame) -> DataFrame:
    """From a day's points, rollup by hour and series."""
    return LATENCY.shaped(_of_histograms(rollup_1h, series).unionByName(_of_samples(points, series)))


def _of_histograms(rollup_1h: DataFrame, series: DataFrame) -> DataFrame:
    histograms = series.where((sf.col("metric") == PROCESSING) & (sf.col("kind") == "histogram"))
    labels = histograms.select("date", "series_id", "metric", "bounds", *COLUMNS)
    rows = rollup_1h.where("increase > 0 and size(bucket_increase) > 1").join(labels, ["date", "series_id"])
    return rows.select(
        "date",
        "window_start",
        "metric",
        *COLUMNS,
        sf.lit("histogram").alias("source"),
        sf.col("increase").alias("observations"),
        sf.expr("sum_increase / increase").alias("mean"),
        *(_within_buckets(q / 100).alias(f"p{q}") for q in _PERCENTILES),
    )


def _within_buckets(q: float) -> Column:
    """A quantile of bucketed observations, taken to lie evenly in each bucket.

    Below the first bound they lie from 0 on if that is above 0, beyond the last bound at that.
    """
    step = f"""
        named_struct(
            'i', seen.i + 1,
            'below', seen.below + n,
            'value', coalesce(seen.value, case when seen.below + n >= {q}d * increase and n > 0 then
                case when seen.i = size(bounds) then bounds[seen.i - 1]
                    when seen.i = 0 and bounds[0] <= 0 then bounds[0]
                    else if(seen.i = 0, 0d, get(bounds, seen.i - 1))
                        + (bounds[seen.i] - if(seen.i = 0, 0d, get(bounds, seen.i - 1)))
                        * (({q}d * increase - seen.below) / n) end end))"""
    start = "named_struct('i', 0, 'below', 0L, 'value', cast(null as double))"
    return sf.expr(f"aggregate(bucket_increase, {start}, (seen, n) -> {step}, seen -> seen.value)")


def _of_samples(points: DataFrame, series: DataFrame) -> DataFrame:
    of_lag = series.where(sf.col("metric") == LAG)
    samples = points.where("value is not null").join(
        of_lag.select("date", "series_id", "entity_id"), ["date", "series_id"]
    )
    hours = samples.withColumn("window_start", sf.date_trunc("hour", "ts"))
    at = sf.array(*(sf.lit(q / 100) for q in _PERCENTILES))
    found = hours.groupBy("date", "window_start", "entity_id").agg(
        sf.count("*").cast("double").alias("observations"),
        sf.mean("value").alias("mean"),
        sf.percentile("value", at).alias("percentiles"),
    )
    return labelled(found, of_lag).select(
        "date",
        "window_start",
        sf.lit(LAG).alias("metric"),
        *COLUMNS,
        sf.lit("samples").alias("source"),
        "observations",
        "mean",
        *(sf.col("percentiles")[i].alias(f"p{q}") for i, q in enumerate(_PERCENTILES)),
    )
