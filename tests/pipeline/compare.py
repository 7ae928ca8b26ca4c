"""Spark's tables in the terms of the oracle, and what differs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

Row = dict[str, Any]


def rows(table: DataFrame) -> list[Row]:
    """All rows: times as microseconds, maps as sorted tuples of pairs."""
    return plain(table.toArrow())


def plain(table: pa.Table) -> list[Row]:
    """The same of Arrow's rows."""
    return [{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return round((value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000)
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return tuple(sorted(value))
    return value


def series_keys(series: DataFrame) -> dict[int, Any]:
    """What the oracle calls a series, by its id. Fails where two series share an id."""
    names = (
        "metric",
        "kind",
        "engine",
        "database",
        "queue",
        "consumer",
        "check",
        "state",
        "attributes",
        "bounds",
    )
    found: dict[int, Any] = {}
    for row in rows(series.select("series_id", *names)):
        labels = tuple(row[name] for name in names[2:8])
        bounds = None if row["bounds"] is None else tuple(row["bounds"])
        key = (row["metric"], row["kind"], labels, tuple(row["attributes"]), bounds)
        assert found.setdefault(row["series_id"], key) == key
    assert len(set(found.values())) == len(found)
    return found


def named(table: Iterable[Row], series: Mapping[int, Any]) -> list[Row]:
    """Rows with the oracle's keys instead of ids, and without the labels that these hold."""
    return [_named(row, series) for row in table]


def _named(row: Row, series: Mapping[int, Any]) -> Row:
    found = dict(row)
    if "attributes" in found:
        labels = tuple(found.pop(name) for name in ("engine", "database", "queue", "consumer"))
        found["entity"] = (*labels, tuple(found.pop("attributes")))
    if "series_id" in found:
        found["series"] = series[found.pop("series_id")]
        for name in ("metric", "kind", "check", "state", "bounds"):
            found.pop(name, None)
    found.pop("entity_id", None)
    return found


def difference(mine: Sequence[Row], other: Sequence[Row], key: Sequence[str]) -> list[str]:
    """What differs between two tables, in words; rows are matched by `key`. Empty if nothing does."""
    left, right = ({_key(row, key): row for row in table} for table in (mine, other))
    found = [
        f"{name}: rows of the same key"
        for name, a, b in (("first", mine, left), ("second", other, right))
        if len(a) != len(b)
    ]
    found += [f"only in the first: {row}" for one, row in left.items() if one not in right]
    found += [f"only in the second: {row}" for one, row in right.items() if one not in left]
    for one, row in left.items():
        if one in right:
            if row.keys() != right[one].keys():
                found.append(f"columns: {sorted(row.keys() ^ right[one].keys())}")
            found += [
                f"{one}: {name} is {value!r}, not {right[one][name]!r}"
                for name, value in row.items()
                if name in right[one] and not _same(value, right[one][name])
            ]
    return found


def _key(row: Row, key: Sequence[str]) -> str:
    return repr([row[name] for name in key])


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(one, date | str | int) or one is None:
        return bool(one == other)
    return list(one) == list(other)
