"""`incidents`: from the first sample that is warning or critical to the first that is ok again.

Between samples too far apart nothing is known: such a gap neither ends an incident nor counts as health.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from pgque_pipeline.schemas import INCIDENTS
from pgque_pipeline.tables.entities import ENTITY, with_attributes, with_entries


def incidents(health: DataFrame, max_gap: int) -> DataFrame:
    """From the health of all days; `max_gap` in seconds, as it was for them."""
    check = (*ENTITY, "check")
    in_turn = Window.partitionBy(*check).orderBy("started")
    seconds = "(unix_micros({}) - unix_micros({})) / 1e6"
    turns = (
        with_entries(health)
        .withColumn("next", sf.lead("started").over(in_turn))
        # A day's last state lasts until the next day's first sample, if that comes in time.
        .withColumn("ended", sf.expr(f"if({seconds.format('next', 'ended')} <= {max_gap}, next, ended)"))
        .withColumn("bad", sf.expr("state in ('warning', 'critical')"))
        .withColumn("healthy_before", sf.count(sf.when(sf.col("state") == "ok", 1)).over(in_turn))
    )
    known, silent = seconds.format("ended", "started"), seconds.format("next", "ended")
    in_episode = Window.partitionBy(*check, "healthy_before")
    episodes = turns.withColumn(
        "begin", sf.min(sf.when(sf.col("bad"), sf.col("started"))).over(in_episode)
    ).where("begin is not null and started >= begin")
    # The turn of health that precedes an episode has its number too, and begins before it.
    found = episodes.groupBy(*check, "healthy_before").agg(
        sf.min("begin").alias("started"),
        sf.max("started").alias("newest"),
        sf.max_by("next", "started").alias("ended"),
        sf.max(sf.when(sf.col("bad"), sf.col("ended"))).alias("last_seen"),
        sf.max(sf.col("state") == "critical").alias("critical"),
        *(
            sf.sum(sf.expr(f"if(state = '{state}', {known}, 0d)")).alias(f"{state}_seconds")
            for state in ("warning", "critical")
        ),
        sf.sum(sf.expr(f"if(state = 'unknown', {known}, 0d) + coalesce({silent}, 0d)")).alias(
            "unknown_seconds"
        ),
        sf.sum(sf.expr("if(bad, samples, 0L)")).alias("samples"),
    )
    return INCIDENTS.shaped(
        with_attributes(found.withColumn("worst", sf.expr("if(critical, 'critical', 'warning')")))
    )
