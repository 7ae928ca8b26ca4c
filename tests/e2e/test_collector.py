"""From a real PostgreSQL through the service into a real OTLP collector, compared point by point."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pgque_exporter.catalogue import MetricType, Source, load
from tests.e2e.conftest import ages, contract_rows, run_service
from tests.support.collector import Collector, Point, run_collector
from tests.support.database import Database
from tests.support.otelcol import run_otelcol
from tests.support.tools import Unavailable

CATALOGUE = load()
CONTRACT = {metric.name: metric for metric in CATALOGUE if metric.source is Source.CONTRACT}
# Configured by environment alone, the service has none of these.
OF_FILES_AND_LEADERS = {
    *(name for name in (metric.name for metric in CATALOGUE) if name.startswith("pgque.exporter.archive_")),
    "pgque.exporter.config_reload_success",
    "pgque.exporter.config_reload_timestamp_seconds",
    "pgque.exporter.leader",
    "pgque.exporter.web_config_reload_success",
}


def labels(point: Point) -> dict[str, str]:
    return {name: str(value) for name, value in point.attributes}


@pytest.fixture(params=["rotel", "otelcol"])
def collector(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Collector]:
    """A collector that was written independently of us, and the one that defines what a collector is."""
    run = run_collector if request.param == "rotel" else run_otelcol
    try:
        with run(tmp_path) as running:
            yield running
    except Unavailable as error:
        pytest.skip(f"{request.param}: {error}")


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_every_row_of_the_contract_arrives_as_it_is(
    watched: Database, collector: Collector, tmp_path: Path, protocol: str
) -> None:
    endpoint = f"http://{collector.grpc_address}" if protocol == "grpc" else collector.http_url
    environment = {
        "PGQUE_DSN": watched.dsn(user="watcher"),
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
    }
    with run_service(tmp_path, environment):
        # Two polls, so that counters have a history.
        points = collector.sink.wait_for(
            lambda points: len({p.time for p in points if p.name == "pgque.queue.depth"}) >= 2,
            "two snapshots at the collector",
        )
    now, rows = contract_rows(watched)

    times = sorted({p.time for p in points if p.name == "pgque.queue.depth"})
    taken_at = times[1]
    one_snapshot = [p for p in points if p.time == taken_at and p.name in CONTRACT]
    by_series = {(p.name, tuple(sorted(labels(p).items()))): p for p in one_snapshot}
    assert len(by_series) == len(one_snapshot), "a series arrived twice in one snapshot"

    expected = 0
    for row in rows:
        metric = CONTRACT[row.name]
        attributes = {"engine": "pgque", "database": watched.name, **dict(row.labels)}
        attributes |= {"messaging.system": "pgque", "messaging.destination.name": attributes["queue"]}
        if "consumer" in attributes:
            attributes["messaging.consumer.group.name"] = attributes["consumer"]
        point = by_series.pop((row.name, tuple(sorted(attributes.items()))))
        expected += 1

        assert point.unit == metric.unit
        assert point.description == metric.help
        assert isinstance(point.value, float)
        if ages(row.name) and row.value:
            assert abs((row.value - point.value) - (now - taken_at / 1e9)) < 5, row
        else:
            assert point.value == row.value, row
        if row.type == "counter":
            assert (point.type, point.monotonic, point.temporality) == ("sum", True, "cumulative")
            assert 0 < point.start_time <= times[0]
        else:
            assert point.type == "gauge"
        assert dict(point.resource)["service.name"] == "pgque-exporter"
        assert dict(point.resource)["db.namespace"] == watched.name
    # What is left completes the state sets: states that a check isn't in, and checks that are ok.
    for (name, attributes_left), point in by_series.items():
        given = dict(attributes_left)
        assert name == "pgque.queue.health_state", (name, given)
        assert point.value == 0 or given["state"] == "ok", given
    in_a_state = [p for p in one_snapshot if p.name == "pgque.queue.health_state" and p.value == 1]
    assert len(in_a_state) == watched_checks(watched)
    assert expected == len(rows) > 50
    assert {row.name for row in rows} == set(CONTRACT)


def watched_checks(database: Database) -> int:
    """How many checks the database makes."""
    row = database.connect().execute("select count(*) from pgque.queue_health()").fetchone()
    assert row is not None
    return int(row[0])


def test_types_at_the_collector_are_those_of_the_catalogue(
    watched: Database, collector: Collector, tmp_path: Path
) -> None:
    environment = {
        "PGQUE_DSN": watched.dsn(user="watcher"),
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{collector.grpc_address}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
    }
    with run_service(tmp_path, environment):
        points = collector.sink.wait_for(
            lambda points: (
                any(p.name == "pgque.exporter.otlp_points_sent_total" and p.value for p in points)
                and any(p.name == "pgque.exporter.event_loop_lag_seconds" for p in points)
            ),
            "the service's own metrics at the collector",
        )
    kinds = {MetricType.GAUGE: "gauge", MetricType.COUNTER: "sum", MetricType.HISTOGRAM: "histogram"}
    for name in {point.name for point in points}:
        metric = CATALOGUE[name]
        seen = {(p.type, p.unit) for p in points if p.name == name}
        assert seen == {(kinds[metric.type], metric.unit)}, name
    service_metrics = {metric.name for metric in CATALOGUE if metric.source is Source.SERVICE}
    assert service_metrics - {point.name for point in points} == OF_FILES_AND_LEADERS


def test_deltas_and_the_end_of_series_come_through(
    watched: Database, collector: Collector, tmp_path: Path
) -> None:
    environment = {
        "PGQUE_DSN": watched.dsn(user="watcher"),
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{collector.grpc_address}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta",
    }
    with run_service(tmp_path, environment):
        collector.sink.wait_for(
            lambda points: len([p for p in points if p.name == "pgque.message.sent_total"]) >= 6,
            "two differences of each queue",
        )
        watched.connect().execute("select pgque.drop_queue('orders', true)")
        points = collector.sink.wait_for(lambda points: any(p.flags for p in points), "the end of a series")
    ended = [p for p in points if p.flags == 1]
    assert {labels(p)["queue"] for p in ended} == {"orders"}
    assert {p.value for p in ended} == {None}
    assert len({(p.name, p.attributes) for p in ended}) == len(ended)
    assert {p.temporality for p in points if p.type != "gauge"} == {"delta"}
    sent = [p for p in points if p.name == "pgque.message.sent_total"]
    assert {p.value for p in sent} == {0.0}  # nothing moves
    assert all(0 < p.start_time < p.time for p in sent)
