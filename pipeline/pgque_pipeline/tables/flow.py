"""`flow`: what went through each queue and consumer, by hour."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from pgque_pipeline.schemas import FLOW, FLOWS
from pgque_pipeline.tables.entities import ENTITY, with_attributes, with_entries


def flow(rollup_1h: DataFrame, series: DataFrame) -> DataFrame:
    """From a day's rollup by hour and its series."""
    wanted = with_entries(series.where(sf.col("metric").isin(*FLOWS.values())))
    rows = rollup_1h.select("date", "series_id", "window_start", "increase", "covered_seconds").join(
        wanted.select("date", "series_id", "metric", *ENTITY), ["date", "series_id"]
    )
    amounts = []
    for name, metric in FLOWS.items():
        of_metric = sf.col("metric") == metric
        amount = sf.sum(sf.when(of_metric, sf.col("increase")))
        amounts += [
            amount.alias(name),
            # Growth of no known time (differences without a start) has no rate.
            sf.try_divide(
                sf.sum(sf.when(of_metric & sf.col("covered_seconds").isNotNull(), sf.col("increase"))),
                sf.sum(sf.when(of_metric, sf.col("covered_seconds"))),
            ).alias(f"{name}_per_second"),
        ]
    found = rows.where("increase is not null").groupBy("date", "window_start", *ENTITY).agg(*amounts)
    return FLOW.shaped(with_attributes(found))
