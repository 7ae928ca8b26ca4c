"""What the service archives is what a collector's file exporter writes of the same polls."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from pgque_exporter.catalogue import Source, load
from pgque_exporter.config import ArchiveConfig, OtlpConfig
from tests.exporter.harness import config, running, target
from tests.support.collector import Point, points
from tests.support.database import Database, wait_until
from tests.support.otelcol import run_archiving_otelcol
from tests.support.tools import Unavailable

CONTRACT = {metric.name for metric in load() if metric.source is not Source.SERVICE}


def read(*paths: Path) -> list[Point]:
    lines = [line for path in paths for line in path.read_bytes().splitlines()]
    return [
        point
        for point in points(Parse(line, ExportMetricsServiceRequest()) for line in lines)
        if point.name in CONTRACT
    ]


def test_a_collector_writes_the_same(watched: Database, tmp_path: Path) -> None:
    theirs, mine = tmp_path / "collector.jsonl", tmp_path / "archive"
    try:
        with run_archiving_otelcol(tmp_path, theirs) as endpoint:
            given = config(
                target(watched.dsn(user="watcher"), interval=0.5),
                otlp=OtlpConfig(endpoint, "http", {}),
                archive=ArchiveConfig(mine, compress=False),
            )
            with running(given) as service:
                polls = 'pgque_exporter_polls_total{database="shop",result="ok"}'
                wait_until(lambda: (service.sample(polls) or 0) >= 3, what="three polls")
    except Unavailable as error:
        pytest.skip(f"otelcol: {error}")
    written = read(*mine.glob("*.jsonl"))
    assert len({point.time for point in written}) >= 3
    assert len(written) > 100
    assert sorted(map(repr, written)) == sorted(map(repr, read(theirs)))
