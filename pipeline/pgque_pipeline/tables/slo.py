"""`slo`: how each objective was kept, over several windows up to the newest hour."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from pgque_pipeline.schemas import SLO
from pgque_pipeline.settings import Objective
from pgque_pipeline.tables.entities import ENTITY, with_attributes, with_entries

# An hour, six, a day, three days, a week, four weeks, a quarter.
WINDOW_HOURS = (1, 6, 24, 72, 168, 672, 2160)


def slo(sli: DataFrame, objectives: Sequence[Objective]) -> DataFrame:
    """From the indicators of all days."""
    targets = sf.create_map(*(sf.lit(word) for one in objectives for word in (one.name, one.target)))
    newest = sli.agg((sf.max("window_start") + sf.expr("interval 1 hour")).alias("as_of"))
    rows = (
        with_entries(sli)
        .crossJoin(sf.broadcast(newest))
        .withColumn("window_hours", sf.explode(sf.array(*(sf.lit(hours) for hours in WINDOW_HOURS))))
        .where("unix_seconds(as_of) - unix_seconds(window_start) <= window_hours * 3600")
    )
    totals = (
        rows.groupBy("as_of", "window_hours", "objective", *ENTITY)
        .agg(sf.sum("good").alias("good"), sf.sum("total").alias("total"))
        .withColumn("target", targets[sf.col("objective")])
        .where("total > 0 and target is not null")
        .withColumn("attainment", sf.expr("good / total"))
        .withColumn("burn", sf.expr("(1 - good / total) / (1 - target)"))
        .withColumn("budget_left", sf.expr("1 - burn"))
    )
    return SLO.shaped(with_attributes(totals))
