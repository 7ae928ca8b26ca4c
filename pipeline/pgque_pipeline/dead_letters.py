"""One look at the dead letters of all databases, which replaces the table of the last one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from pgque_exporter.config import TargetConfig
from pgque_pipeline import dead_letter_source
from pgque_pipeline.schemas import DEAD_LETTERS
from pgque_pipeline.tables import dead_letters
from pgque_pipeline.warehouse.lock import only_run
from pgque_pipeline.warehouse.store import Warehouse


@dataclass(frozen=True)
class Look:
    """What was seen. `failures` are (database, why it can't be read): nothing of those is in the table."""

    faults: int
    letters: int
    failures: Sequence[tuple[str, str]]


def look(spark: SparkSession, warehouse: Warehouse, targets: Sequence[TargetConfig]) -> Look:
    """Replace the table. Raises UserError while another run is at work on the warehouse."""
    with only_run(warehouse.root):
        warehouse = Warehouse(warehouse.root)  # as it is now that nobody else writes
        warehouse.sweep()
        # What is counted is little, and is kept: every database is asked only once.
        faults = dead_letters.by_fault(dead_letter_source.read(spark, targets)).cache()
        try:
            failed = faults.where("failure is not null").select("database", "failure").collect()
            folder = warehouse.write_whole(DEAD_LETTERS, dead_letters.dead_letters(faults))
        finally:
            faults.unpersist()
        before = warehouse.manifest
        warehouse.commit(replace(before, whole={**before.whole, DEAD_LETTERS.name: folder}))
        warehouse.sweep()
        (seen,) = (
            warehouse.read(spark, DEAD_LETTERS)
            .agg(
                sf.count("*").alias("faults"), sf.coalesce(sf.sum("dead_letters"), sf.lit(0)).alias("letters")
            )
            .collect()
        )
        return Look(
            seen["faults"], seen["letters"], sorted((row["database"], row["failure"]) for row in failed)
        )
