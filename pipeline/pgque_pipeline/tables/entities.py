"""What is observed: a queue or a consumer of a database, with all labels that tell it from others."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

# Columns that every table of entities has of them.
COLUMNS = ("entity_id", "engine", "database", "queue", "consumer", "attributes")
# Columns that say which one it is. A map can't be grouped by; its entries, sorted, can.
ENTITY = ("entity_id", "engine", "database", "queue", "consumer", "entries")


def labelled(rows: DataFrame, series: DataFrame) -> DataFrame:
    """Rows with `date` and `entity_id`, and the other columns of their entity from `series` of these days."""
    entities = series.dropDuplicates(["date", "entity_id"]).select("date", *COLUMNS)
    return rows.join(entities, ["date", "entity_id"])


def with_entries(rows: DataFrame) -> DataFrame:
    """`rows` with `attributes` in the form that can be grouped by."""
    return rows.withColumn("entries", sf.array_sort(sf.map_entries("attributes")))


def with_attributes(rows: DataFrame) -> DataFrame:
    """`rows` with `attributes` as a map again."""
    return rows.withColumn("attributes", sf.map_from_entries("entries"))
