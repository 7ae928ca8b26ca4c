"""What a real collector and the service's archive write, read as it is."""

from __future__ import annotations

import gzip
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from pyspark.sql import SparkSession

from pgque_exporter.config import ArchiveConfig, OtlpConfig
from pgque_pipeline.tables import points as points_table
from tests.exporter.harness import ToyPack, config, running, target
from tests.pipeline import compare
from tests.pipeline.intake import points_and_series, taken_and_refused
from tests.support.collector import Histogram, points
from tests.support.database import Database, wait_until
from tests.support.otelcol import run_archiving_otelcol
from tests.support.tools import Unavailable

LABELS = ("engine", "database", "queue", "consumer", "check", "state")

Point = tuple[Any, ...]


def expected(archived: Path) -> list[Point]:
    """The points of the archive's files by protobuf's own reader: a second opinion on all of them."""
    texts = (gzip.decompress(path.read_bytes()) for path in archived.glob("*.gz"))
    lines = [line for text in texts for line in text.splitlines()]
    found: list[Point] = []
    for one in points(Parse(line, ExportMetricsServiceRequest()) for line in lines):
        given = dict(one.attributes)
        value = one.value.count if isinstance(one.value, Histogram) else one.value
        value = None if one.flags else value  # the mark that a series has ended
        labels = tuple(given.get(name) for name in LABELS)
        found.append(_point(one.name, one.time // 1000, one.start_time // 1000 or None, value, labels))
    return sorted(found, key=repr)


def read(spark: SparkSession, *files: Path) -> list[Point]:
    """Those that the pipeline reads; nothing may be refused."""
    found: list[Point] = []
    with tempfile.TemporaryDirectory() as folder:
        _, refused = taken_and_refused(spark, Path(folder), files, datetime.now(UTC))
        assert refused == []
        tables = points_and_series(spark, Path(folder), files, datetime.now(UTC))
        rows = compare.rows(points_table.with_labels(*tables))
    for row in rows:
        if not row["metric"].startswith("pgque.exporter.") and row["engine"] is not None:
            value = row["count"] if row["kind"] == "histogram" else row["value"]
            labels = tuple(row[name] for name in LABELS)
            found.append(_point(row["metric"], row["ts"], row["start"], value, labels))
    return sorted(found, key=repr)


def _point(metric: str, time: int, start: int | None, value: Any, labels: Any) -> Point:
    # Since when something counted that has ended is nobody's concern.
    return metric, time, start if value is not None else None, value, labels


@pytest.mark.servers("pg18")
@pytest.mark.parametrize("compression", ["", "zstd"])
def test_files_of_a_collector_and_of_the_archive_tell_the_same(
    compression: str, spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    toy = ToyPack(database.connect())
    toy.add("pgque.queue.depth", "2.5", queue="orders")
    toy.add("pgque.message.sent_total", 12, queue='bill"ing\\\n')
    for part, value, labels in (
        ("bucket", 3, {"le": "1"}), ("bucket", 4, {"le": "+Inf"}), ("sum", 7.5, {}), ("count", 4, {}),
    ):  # fmt: skip
        toy.add(f"pgque.batch.size_{part}", value, queue="orders", consumer="c", **labels)
    theirs, mine = tmp_path / "collected.jsonl", tmp_path / "archive"
    try:
        with run_archiving_otelcol(tmp_path, theirs, compression=compression) as endpoint:
            given = config(
                target(database.dsn(), interval=0.2),
                otlp=OtlpConfig(endpoint, "http", {}),
                archive=ArchiveConfig(mine, rotate_after=0.5),
            )
            with running(given) as service:
                written = "pgque_exporter_archive_points_written_total"
                wait_until(lambda: (service.sample(written) or 0) >= 30, what="polls in the archive")
                toy.clear()
                toy.add("pgque.queue.depth", 1, queue="orders")
                wait_until(lambda: (service.sample(written) or 0) >= 60, what="polls of what is left")
                wait_until(lambda: len(list(mine.glob("*.gz"))) >= 3, what="files that were closed")
    except Unavailable as error:
        pytest.skip(f"otelcol: {error}")
    for path in mine.glob("*.jsonl"):  # the last is left as it is at the end
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    wanted = expected(mine)
    assert len(wanted) > 30
    assert any(value is None for _, _, _, value, _ in wanted), "a series has ended"
    assert read(spark, *mine.glob("*.gz")) == wanted
    assert read(spark, theirs) == wanted
