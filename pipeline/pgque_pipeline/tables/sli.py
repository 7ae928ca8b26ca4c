"""`sli`: what counts for and against each objective, by hour."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from pgque_pipeline.schemas import SLI
from pgque_pipeline.settings import Objective, Ratio, Threshold
from pgque_pipeline.tables.entities import labelled


def sli(
    points: DataFrame, rollup_1h: DataFrame, series: DataFrame, objectives: Sequence[Objective]
) -> DataFrame:
    """From a day's points, rollup by hour and series. At least one objective has to be given."""
    thresholds = [one for one in objectives if isinstance(one, Threshold)]
    ratios = [one for one in objectives if isinstance(one, Ratio)]
    parts = [_of_samples(points, series, thresholds)] if thresholds else []
    parts += [_of_events(rollup_1h, series, ratios)] if ratios else []
    return SLI.shaped(labelled(reduce(DataFrame.unionByName, parts), series))


def _of_samples(points: DataFrame, series: DataFrame, objectives: Sequence[Threshold]) -> DataFrame:
    rows = points.where("value is not null").join(
        _series_of(series, {one.metric for one in objectives}), ["date", "series_id"]
    )
    judged = rows.withColumn(
        "judged",
        _each(
            *(
                (
                    sf.col("metric") == one.metric,
                    one.name,
                    (sf.col("value") <= one.most).cast("double"),
                    sf.lit(1.0),
                )
                for one in objectives
            )
        ),
    )
    return _by_hour(judged.withColumn("window_start", sf.date_trunc("hour", "ts")))


def _of_events(rollup_1h: DataFrame, series: DataFrame, objectives: Sequence[Ratio]) -> DataFrame:
    metrics = {name for one in objectives for name in (one.good, one.bad)}
    rows = rollup_1h.where("increase is not null").join(_series_of(series, metrics), ["date", "series_id"])
    judged = rows.withColumn(
        "judged",
        _each(
            *(
                (sf.col("metric").isin(one.good, one.bad), one.name, _amount_if(one.good), sf.col("increase"))
                for one in objectives
            )
        ),
    )
    return _by_hour(judged).where("total > 0")


def _series_of(series: DataFrame, metrics: Iterable[str]) -> DataFrame:
    wanted = series.where(sf.col("metric").isin(*metrics))
    return wanted.select("date", "series_id", "entity_id", "metric")


def _amount_if(metric: str) -> Column:
    return sf.when(sf.col("metric") == metric, sf.col("increase")).otherwise(0.0)


def _each(*judgements: tuple[Column, str, Column, Column]) -> Column:
    """(objective, good, total) for each objective that the row matters to."""
    found = [
        sf.when(applies, sf.struct(sf.lit(name).alias("objective"), good.alias("good"), total.alias("total")))
        for applies, name, good, total in judgements
    ]
    return sf.array_compact(sf.array(*found))


def _by_hour(judged: DataFrame) -> DataFrame:
    each = judged.select("date", "window_start", "entity_id", sf.inline("judged"))
    return each.groupBy("date", "window_start", "objective", "entity_id").agg(
        sf.sum("good").alias("good"), sf.sum("total").alias("total")
    )
