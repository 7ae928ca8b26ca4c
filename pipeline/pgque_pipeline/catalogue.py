"""The tables in an Iceberg catalogue: copied there for whoever reads tables by name.

A day is copied again when it is another folder of the warehouse than the last time; which ones the copies
were made of, a property of the Iceberg table tells. All changes of a table become visible at once.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, EqualTo
from pyiceberg.table import Table as IcebergTable

from pgque_exporter.errors import UserError
from pgque_pipeline.parts import files
from pgque_pipeline.schemas import TABLES, Table
from pgque_pipeline.warehouse.store import Warehouse

_COPIED = "pgque.folders"
_WHOLE = ""  # the key of a table without days


@dataclass(frozen=True)
class Copied:
    """What became of a table: how many days (or wholes) were written, and how many removed."""

    name: str
    written: int
    removed: int


def open_catalogue(name: str) -> Catalog:
    """The catalogue that PyIceberg's configuration calls so. Raises UserError if there is none."""
    try:
        return load_catalog(name)
    except (ValueError, OSError, ImportError) as error:
        raise UserError(
            f"can't open the Iceberg catalogue {name!r}: {error}",
            hint=f"tell PyIceberg of it in ~/.pyiceberg.yaml or by PYICEBERG_CATALOG__{name.upper()}__URI",
        ) from None


def copy(warehouse: Warehouse, catalogue: Catalog, namespace: str) -> Iterator[Copied]:
    """Have each table of a namespace, made where it is missing, hold what the warehouse does."""
    catalogue.create_namespace_if_not_exists(namespace)
    for table in TABLES.values():
        yield _copy_table(warehouse, table, _opened(catalogue, f"{namespace}.{table.name}", table))


def _opened(catalogue: Catalog, name: str, table: Table) -> IcebergTable:
    try:
        return catalogue.load_table(name)
    except NoSuchTableError:
        with catalogue.create_table_transaction(name, schema=_schema(table)) as made:
            if table.extent == "day":
                with made.update_spec() as spec:
                    spec.add_identity("date")
        return catalogue.load_table(name)


def _schema(table: Table) -> pa.Schema:
    day = [pa.field("date", pa.date32())] if table.extent == "day" else []
    return pa.schema([*day, *table.stored])


def _copy_table(warehouse: Warehouse, table: Table, target: IcebergTable) -> Copied:
    before: dict[str, list[str]] = json.loads(target.properties.get(_COPIED, "{}"))
    now = _folders(warehouse, table)
    written = [key for key in sorted(now) if before.get(key) != now[key]]
    removed = sorted(before.keys() - now)
    if not written and not removed:
        return Copied(table.name, 0, 0)
    try:
        with warnings.catch_warnings(), target.transaction() as change:
            warnings.filterwarnings("ignore", "Delete operation did not match any records")  # nor need it
            for key in (*removed, *(key for key in written if key in before)):
                change.delete(_where(key))
            for key in written:
                for rows in _rows(warehouse, table, key, now[key]):
                    change.append(rows)
            change.set_properties({_COPIED: json.dumps(now)})
    except CommitFailedException:
        raise UserError("somebody else has changed it meanwhile", where=".".join(target.name())) from None
    return Copied(table.name, len(written), len(removed))


def _folders(warehouse: Warehouse, table: Table) -> Mapping[str, list[str]]:
    if table.extent != "day":
        found = warehouse.folders(table)
        return {_WHOLE: found} if found else {}
    held = warehouse.manifest.days.get(table.name, {})
    return {day.isoformat(): [folder] for day, folder in held.items()}


def _where(key: str) -> BooleanExpression:
    return EqualTo("date", key) if key != _WHOLE else AlwaysTrue()  # type: ignore[call-arg,arg-type]


def _rows(warehouse: Warehouse, table: Table, key: str, folders: list[str]) -> Iterator[pa.Table]:
    """A file at a time: a day may be larger than the memory."""
    for file in files(warehouse.paths(folders)):
        found = pq.read_table(file, schema=table.stored, partitioning=None)
        if key != _WHOLE:
            days = pa.array(np.full(len(found), date.fromisoformat(key)), pa.date32())
            found = found.add_column(0, pa.field("date", pa.date32()), days)
        yield found
