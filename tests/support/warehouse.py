"""A small warehouse with given rows, as a run would have left it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pgque_pipeline.schemas import ROLLUP_1H, TABLES, Table
from pgque_pipeline.settings import Settings
from pgque_pipeline.warehouse.manifest import Manifest, commit, existing, load
from pgque_pipeline.warehouse.store import Warehouse

Row = Mapping[str, Any]

# Spark would have to run to tell these.
_TYPES = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "array<bigint>": pa.list_(pa.int64()),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}


def small_warehouse(
    root: Path, *, as_of: datetime, time_zone: str = "UTC", **tables: Iterable[Row]
) -> Warehouse:
    """The next state of the warehouse in `root`: these tables without days, and a newest metric at `as_of`.

    Rows are given by column; what is left out is NULL.
    """
    number = load(root).number + 1 if existing(root) else 1
    whole = {}
    for name, rows in tables.items():
        folder = f"{name}/{number:012d}-small"
        # In two files, as a table that several tasks have written.
        given = list(rows)
        for index, part in enumerate((given[::2], given[1::2])):
            _write(root / folder / f"part-{index}.parquet", TABLES[name], part)
        whole[name] = folder
    day = as_of.date()
    newest = f"{ROLLUP_1H.name}/{number:012d}-small/date={day}"
    _write(root / newest / "part-0.parquet", ROLLUP_1H, [{"last_ts": as_of}, {"last_ts": None}])
    settings = json.dumps(asdict(replace(Settings(), time_zone=time_zone)), sort_keys=True)
    state = Manifest(
        number=number - 1, whole=whole, days={ROLLUP_1H.name: {day: newest}}, newest=day, settings=settings
    )
    commit(root, state)
    return Warehouse(root)


def _write(path: Path, table: Table, rows: Iterable[Row]) -> None:
    schema = pa.schema([(field.name, _TYPES[field.type]) for field in table.fields])
    columns = {name: [row.get(name) for row in rows] for name in schema.names}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns, schema=schema), path)
