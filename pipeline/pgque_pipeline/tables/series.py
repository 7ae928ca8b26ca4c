"""`series`: what the ids of a day's rows stand for."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from pgque_pipeline.schemas import SERIES

_KEYS = (
    "series_id",
    "entity_id",
    "metric",
    "kind",
    "unit",
    "engine",
    "database",
    "queue",
    "consumer",
    "check",
    "state",
)


def series(points: DataFrame) -> DataFrame:
    """One row for each series of each day of `points`."""
    # A map can't be grouped by, its entries can; and keys of any type leave the hash aggregate as it is.
    keys = ("date", *_KEYS, "entries", "bounds")
    rows = points.withColumn("entries", sf.array_sort(sf.map_entries("attributes")))
    found = rows.groupBy(*keys).agg(
        sf.min("ts").alias("first_seen"), sf.max("ts").alias("last_seen"), sf.count("*").alias("points")
    )
    return SERIES.shaped(found.withColumn("attributes", sf.map_from_entries("entries")))


def latest(series_of_days: DataFrame) -> DataFrame:
    """One row for each series, as on its newest day."""
    newest = sf.max_by(sf.struct(*series_of_days.columns), "date").alias("newest")
    return series_of_days.groupBy("series_id").agg(newest).select("newest.*")
