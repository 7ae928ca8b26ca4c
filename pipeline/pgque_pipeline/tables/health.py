"""`health`: the states of each health check in turn."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from pgque_pipeline.schemas import HEALTH
from pgque_pipeline.tables.entities import labelled

METRIC = "pgque.queue.health_state"
# From harmless to bad; of several states at a time the worst counts.
STATES = ("ok", "unknown", "warning", "critical")


def health(points: DataFrame, series: DataFrame, max_gap: int) -> DataFrame:
    """From a day's points and series.

    After `max_gap` seconds without a sample nothing is known of a state.
    """
    check = ("date", "entity_id", "check")
    states = series.where((sf.col("metric") == METRIC) & sf.col("state").isin(*STATES))
    samples = (
        points.where("value = 1")
        .join(states.select(*check, "series_id", _rank().alias("rank")), ["date", "series_id"])
        .groupBy(*check, "ts")
        .agg(sf.max("rank").alias("rank"))
    )
    in_turn = Window.partitionBy(*check).orderBy("ts")
    turns = (
        samples.withColumn("before", sf.lag(sf.struct("ts", "rank")).over(in_turn))
        .withColumn("after", sf.lead("ts").over(in_turn))
        .withColumn(
            "new", sf.expr(f"before is null or before.rank <> rank or {_gap('before.ts', 'ts')} > {max_gap}")
        )
        .withColumn("turn", sf.count(sf.when(sf.col("new"), 1)).over(in_turn))
        .groupBy(*check, "turn", "rank")
        .agg(
            sf.min("ts").alias("started"),
            sf.max(sf.expr(f"if({_gap('ts', 'after')} <= {max_gap}, after, ts)")).alias("ended"),
            sf.count("*").alias("samples"),
        )
    )
    names = sf.array(*(sf.lit(state) for state in STATES))
    named = turns.withColumn("state", sf.get(names, sf.col("rank")))
    return HEALTH.shaped(labelled(named, states))


def _rank() -> Column:
    return sf.array_position(sf.array(*(sf.lit(state) for state in STATES)), sf.col("state")).cast("int") - 1


def _gap(earlier: str, later: str) -> str:
    return f"(unix_micros({later}) - unix_micros({earlier})) / 1e6"
