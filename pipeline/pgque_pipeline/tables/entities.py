"""What is observed: a queue or a consumer of a database, with all labels that tell it from others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from pgque_pipeline.tables.runs import Array, integers

# Columns that every table of entities has of them.
COLUMNS = ("entity_id", "engine", "database", "queue", "consumer", "attributes")
# Columns that say which one it is. A map can't be grouped by; its entries, sorted, can.
ENTITY = ("entity_id", "engine", "database", "queue", "consumer", "entries")


def labels(entity_id: Array, series: pa.Table) -> dict[str, pa.ChunkedArray[Any]]:
    """All columns of these entities, by name, from the series of the day."""
    known = integers(series, "entity_id")
    order = np.argsort(known, kind="stable")
    found = series.select(COLUMNS).take(pa.array(order[np.searchsorted(known[order], entity_id)]))
    return dict(zip(COLUMNS, found.columns, strict=True))


def with_entries(rows: DataFrame) -> DataFrame:
    """`rows` with `attributes` in the form that can be grouped by."""
    return rows.withColumn("entries", sf.array_sort(sf.map_entries("attributes")))


def with_attributes(rows: DataFrame) -> DataFrame:
    """`rows` with `attributes` as a map again."""
    return rows.withColumn("attributes", sf.map_from_entries("entries"))
