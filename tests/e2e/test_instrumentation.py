"""What the instrumentation counts, at the ends of both ways out: counters and real histograms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import dict_row

from pgque_exporter.catalogue import MetricType, Source, load
from tests.e2e.conftest import ContractRow, contract_rows, run_service
from tests.support.collector import Histogram, Point, run_collector
from tests.support.database import INSTRUMENTATION_INSTALL, Database
from tests.support.observed import Queue
from tests.support.prometheus import promtool_check_metrics, run_prometheus

CATALOGUE = load()
INSTRUMENTED = [metric for metric in CATALOGUE if metric.source is Source.INSTRUMENTATION]
HISTOGRAMS = [metric for metric in INSTRUMENTED if metric.type is MetricType.HISTOGRAM]
NUMBERS = [metric for metric in INSTRUMENTED if metric.type is not MetricType.HISTOGRAM]


@pytest.fixture
def counted(watched: Database) -> Iterator[Database]:
    """The watched queues, instrumented before more happens to them."""
    watched.install(INSTRUMENTATION_INSTALL)
    with psycopg.connect(watched.dsn(), autocommit=True, row_factory=dict_row) as db:
        orders, webhooks = Queue(db, "orders"), Queue(db, 'web"hooks\\\n')
        for events, seconds in ((3, 0), (70, 2), (700, 45)):
            orders.send_and_tick(events)
            [first, *_] = orders.receive("app")
            orders.wait(seconds)
            db.execute("select pgque.ack(%s)", (first["batch_id"],))
        webhooks.send_and_tick(5)
        for retries, message in zip(("0", "0", "5", "5"), webhooks.receive("app"), strict=False):
            db.execute("select pgque.set_queue_config(%s, 'max_retries', %s)", (webhooks.name, retries))
            webhooks.nack("app", message)
        webhooks.consume("app")
        db.execute("update pgque.retry_queue set ev_retry_after = now()")
        db.execute("select pgque.maint_retry_events()")
        db.execute("select pgque.dlq_replay(min(dl_id)) from pgque.dead_letter")
        db.execute("select pgque.dlq_purge(%s, '0')", (webhooks.name,))
        yield watched


def test_prometheus_gets_counters_and_histograms(counted: Database, tmp_path: Path) -> None:
    with (
        run_service(tmp_path, {"PGQUE_DSN": counted.dsn(user="watcher")}) as service,
        run_prometheus(service.address, folder=tmp_path) as prometheus,
    ):
        prometheus.wait_for("pgque_up == 1")
        page = service.get("/metrics").text
        assert promtool_check_metrics(page) == []
        for metric in HISTOGRAMS:
            assert f"# TYPE {metric.prometheus_name} histogram\n" in page
        _, rows = contract_rows(counted)
        names = {metric.name for metric in NUMBERS}
        names |= {f"{metric.name}_{part}" for metric in HISTOGRAMS for part in ("bucket", "sum", "count")}
        assert names <= {row.name for row in rows}
        for name in names:
            found = {
                tuple(sorted((k, canonical(k, v)) for k, v in s.labels.items() if k in LABELS)): s.value
                for s in prometheus.query(name.replace(".", "_"))
            }
            wanted = {
                tuple((k, canonical(k, v)) for k, v in row.labels): row.value
                for row in rows
                if row.name == name
            }
            assert found == wanted, name
        assert prometheus.value("sum(pgque_message_nacked_total)") == 2
        # As dashboards ask: 773 events in three batches, the largest of which took 45 s.
        selector = '{queue="orders",consumer="app"}'
        average = f"pgque_batch_size_sum{selector} / pgque_batch_size_count{selector}"
        assert prometheus.value(average) == 773 / 3
        slowest = f"histogram_quantile(0.99, sum by (le) (pgque_processing_latency_seconds_bucket{selector}))"
        assert 30 < (prometheus.value(slowest) or 0) <= 60


LABELS = ("queue", "consumer", "le")


def canonical(label: str, text: str) -> str:
    """A bound as a number, as which Prometheus sees it."""
    return str(float(text)) if label == "le" else text


def test_a_collector_gets_counters_and_histograms(counted: Database, tmp_path: Path) -> None:
    with run_collector(tmp_path) as collector:
        environment = {
            "PGQUE_DSN": counted.dsn(user="watcher"),
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{collector.grpc_address}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        }
        with run_service(tmp_path, environment) as service:
            points = collector.sink.wait_for(
                lambda points: len({p.time for p in points if p.name == "pgque.batch.size"}) >= 2,
                "two snapshots at the collector",
            )
            otlp = service.get("/api/v1/status").json()["otlp"]
            assert (otlp["rejected"], sum(otlp["dropped"].values())) == (0, 0)
        _, rows = contract_rows(counted)

    first, second, *_ = sorted({p.time for p in points if p.name == "pgque.batch.size"})
    last = {(p.name, consumer_of(p)): p for p in points if p.time == second}
    for metric in HISTOGRAMS:
        of_consumer: dict[tuple[str | None, str | None], list[ContractRow]] = {}
        for row in rows:
            if row.name.startswith(f"{metric.name}_"):
                given = dict(row.labels)
                of_consumer.setdefault((given["queue"], given["consumer"]), []).append(row)
        assert len(of_consumer) == 4
        for consumer, parts in of_consumer.items():
            point = last[metric.name, consumer]
            assert (point.type, point.temporality, point.unit) == ("histogram", "cumulative", metric.unit)
            assert 0 < point.start_time <= first
            assert isinstance(point.value, Histogram)
            assert "le" not in dict(point.attributes)
            cumulative = [sum(point.value.counts[: index + 1]) for index in range(len(point.value.counts))]
            bounds = [*map(str, map(float, point.value.bounds)), "inf"]
            buckets = {canonical("le", dict(row.labels).get("le", "0")): row.value for row in parts}
            assert dict(zip(bounds, cumulative, strict=True)) == {
                bound: value for bound, value in buckets.items() if bound != "0.0"
            }
            values = {row.name: row.value for row in parts}
            assert point.value.sum == values[f"{metric.name}_sum"]
            assert point.value.count == values[f"{metric.name}_count"]
    kinds = {MetricType.GAUGE: "gauge", MetricType.COUNTER: "sum"}
    for metric in NUMBERS:
        found = {consumer: point for (name, consumer), point in last.items() if name == metric.name}
        wanted = {
            (dict(row.labels).get("queue"), dict(row.labels).get("consumer")): row.value
            for row in rows if row.name == metric.name
        }  # fmt: skip
        assert {consumer: point.value for consumer, point in found.items()} == wanted
        assert {point.type for point in found.values()} == {kinds[metric.type]}


def consumer_of(point: Point) -> tuple[str | None, str | None]:
    given = {name: str(value) for name, value in point.attributes}
    return given.get("queue"), given.get("consumer")
