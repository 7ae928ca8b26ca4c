"""The tables in an Iceberg catalogue: what is in the warehouse, and nothing written twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyspark.sql import SparkSession

from pgque_pipeline.catalogue import copy
from pgque_pipeline.schemas import TABLES
from pgque_pipeline.warehouse.manifest import Manifest
from pgque_pipeline.warehouse.store import open_warehouse
from tests.pipeline import compare
from tests.pipeline import otlp_lines as otlp
from tests.pipeline.history import HOUR, history
from tests.pipeline.test_run import BEGIN, Runs, write

NAMESPACE = "queues"


@pytest.fixture
def configured(tmp_path: Path) -> dict[str, str]:
    """A catalogue in SQLite, in PyIceberg's words."""
    (tmp_path / "lake").mkdir()
    return {"type": "sql", "uri": f"sqlite:///{tmp_path}/lake.db", "warehouse": f"file://{tmp_path}/lake"}


@pytest.fixture
def lake(configured: dict[str, str]) -> Catalog:
    return load_catalog("lake", **configured)


def copied(runs: Runs, lake: Catalog) -> dict[str, tuple[int, int]]:
    return {one.name: (one.written, one.removed) for one in copy(runs.warehouse, lake, NAMESPACE)}


def rows(table: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in table)


def differing(runs: Runs, lake: Catalog) -> list[str]:
    """Tables whose copies hold other rows."""
    return [
        name
        for name in TABLES
        if rows(runs.rows(name))
        != rows(compare.plain(lake.load_table(f"{NAMESPACE}.{name}").scan().to_arrow()))
    ]


def test_copies_hold_what_the_warehouse_does_and_only_what_changed_is_written(
    spark: SparkSession, tmp_path: Path, lake: Catalog
) -> None:
    runs = Runs(spark, tmp_path)
    write(runs.input / "first.json", [*history(1, BEGIN, 60), "no line of OTLP"])
    runs.run()
    first = copied(runs, lake)
    assert first["quarantine"] == (1, 0)
    assert differing(runs, lake) == []

    states = {name: lake.load_table(f"{NAMESPACE}.{name}").current_snapshot() for name in TABLES}
    assert set(copied(runs, lake).values()) == {(0, 0)}
    assert states == {name: lake.load_table(f"{NAMESPACE}.{name}").current_snapshot() for name in TABLES}

    point = otlp.point({"engine": "pgque", "database": "shop"}, BEGIN + 59 * HOUR, asDouble=1.0)
    write(runs.input / "second.json", [otlp.line([otlp.gauge("shop.size", [point])])])
    (runs.input / "first.json").write_text("", "utf-8")
    runs.run()
    second = copied(runs, lake)
    assert (second["points"], second["quarantine"]) == ((1, 0), (0, 1))
    assert first["points"][0] > 1
    assert differing(runs, lake) == []


def command(warehouse: Path, configured: dict[str, str]) -> subprocess.CompletedProcess[str]:
    told = {f"PYICEBERG_CATALOG__LAKE__{name.upper()}": value for name, value in configured.items()}
    words = [sys.executable, "-m", "pgque_pipeline", "catalogue", "--warehouse", str(warehouse)]
    words += ["--to", "lake"]
    environment = os.environ | told
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=120)


def test_the_command_says_what_it_has_copied_or_what_is_missing(
    tmp_path: Path, configured: dict[str, str]
) -> None:
    open_warehouse(tmp_path / "warehouse", create=True).commit(Manifest())
    done = command(tmp_path / "warehouse", configured)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"queues.{name}: 0 written, 0 removed" for name in TABLES]
    done = command(tmp_path / "warehouse", {})
    assert done.returncode == 2
    assert "can't open the Iceberg catalogue 'lake'" in done.stderr
    assert "PYICEBERG_CATALOG__LAKE__URI" in done.stderr
    assert "Traceback" not in done.stderr
