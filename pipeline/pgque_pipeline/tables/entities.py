"""What is observed: a queue or a consumer of a database, with all labels that tell it from others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pgque_pipeline.tables.runs import Array, integers

# Columns that every table of entities has of them.
COLUMNS = ("entity_id", "engine", "database", "queue", "consumer", "attributes")


def labels(entity_id: Array, told: pa.Table) -> dict[str, pa.ChunkedArray[Any]]:
    """All columns of these entities, by name, from a table that tells each of them at least once."""
    known = integers(told, "entity_id")
    order = np.argsort(known, kind="stable")
    found = told.select(COLUMNS).take(pa.array(order[np.searchsorted(known[order], entity_id)]))
    return dict(zip(COLUMNS, found.columns, strict=True))
