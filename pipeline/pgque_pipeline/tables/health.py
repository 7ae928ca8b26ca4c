"""`health`: the states of each health check in turn."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from pgque_pipeline.schemas import HEALTH
from pgque_pipeline.tables.entities import ENTITY, with_attributes, with_entries

METRIC = "pgque.queue.health_state"
# From harmless to bad; of several states at a time the worst counts.
STATES = ("ok", "unknown", "warning", "critical")


def health(points: DataFrame, max_gap: int) -> DataFrame:
    """From a day's points. After `max_gap` seconds without a sample nothing is known of a state."""
    check = (*ENTITY, "check")
    samples = (
        with_entries(points.where((sf.col("metric") == METRIC) & (sf.col("value") == 1)))
        .where(sf.col("state").isin(*STATES))
        .groupBy("date", *check, "ts")
        .agg(sf.max(_rank()).alias("rank"))
    )
    in_turn = Window.partitionBy("date", *check).orderBy("ts")
    turns = (
        samples.withColumn("before", sf.lag(sf.struct("ts", "rank")).over(in_turn))
        .withColumn("after", sf.lead("ts").over(in_turn))
        .withColumn(
            "new", sf.expr(f"before is null or before.rank <> rank or {_gap('before.ts', 'ts')} > {max_gap}")
        )
        .withColumn("turn", sf.count(sf.when(sf.col("new"), 1)).over(in_turn))
        .groupBy("date", *check, "turn", "rank")
        .agg(
            sf.min("ts").alias("started"),
            sf.max(sf.expr(f"if({_gap('ts', 'after')} <= {max_gap}, after, ts)")).alias("ended"),
            sf.count("*").alias("samples"),
        )
    )
    names = sf.array(*(sf.lit(state) for state in STATES))
    return HEALTH.shaped(with_attributes(turns.withColumn("state", sf.get(names, sf.col("rank")))))


def _rank() -> Column:
    return sf.array_position(sf.array(*(sf.lit(state) for state in STATES)), sf.col("state")).cast("int") - 1


def _gap(earlier: str, later: str) -> str:
    return f"(unix_micros({later}) - unix_micros({earlier})) / 1e6"
