"""From a real PostgreSQL through the service into a real Prometheus, asked by its API."""

from __future__ import annotations

from pathlib import Path

from pgque_exporter.catalogue import MetricType, Source, load
from tests.e2e.conftest import ages, contract_rows, run_service
from tests.support.database import Database
from tests.support.prometheus import promtool_check_metrics, run_prometheus

CATALOGUE = load()
CONTRACT = [metric for metric in CATALOGUE if metric.source is Source.CONTRACT]


def test_every_contract_metric_reaches_prometheus_with_its_value(watched: Database, tmp_path: Path) -> None:
    environment = {"PGQUE_DSN": watched.dsn(user="watcher")}
    with (
        run_service(tmp_path, environment) as service,
        run_prometheus(service.address, folder=tmp_path) as prometheus,
    ):
        prometheus.wait_for("up == 1")
        prometheus.wait_for("pgque_up == 1")
        now, rows = contract_rows(watched)

        for metric in CONTRACT:
            samples = prometheus.query(metric.prometheus_name)
            found = {
                tuple(sorted((k, v) for k, v in sample.labels.items() if k in metric.labels)): sample
                for sample in samples
            }
            assert found, f"{metric.prometheus_name} is not in Prometheus"
            assert {sample.labels["engine"] for sample in samples} == {"pgque"}
            assert {sample.labels["database"] for sample in samples} == {watched.name}
            for row in rows:
                if row.name != metric.name:
                    continue
                sample = found[row.labels]
                if ages(row.name) and row.value:
                    assert abs((row.value - sample.value) - (now - sample.time)) < 5, row
                else:
                    assert sample.value == row.value, row
        # Health is a state set: exactly one state of each check is 1, and the status says which.
        assert prometheus.value("count(sum without (state) (pgque_queue_health_state) != 1)") is None
        critical = prometheus.query('pgque_queue_health_state{state="critical"} == 1')
        assert {(s.labels["queue"], s.labels["check"]) for s in critical} == {("billing", "consumer_lag")}
        assert prometheus.value('pgque_queue_health_status{queue="billing",consumer="app"}') == 2


def test_types_and_help_reach_prometheus(watched: Database, tmp_path: Path) -> None:
    with run_service(tmp_path, {"PGQUE_DSN": watched.dsn(user="watcher")}) as service:
        page = service.get("/metrics").text
        openmetrics = service.get("/metrics", Accept="application/openmetrics-text").text
    assert promtool_check_metrics(page) == []
    for metric in CONTRACT:
        name = metric.prometheus_name
        assert f"# TYPE {name} {metric.type}\n" in page
        assert f"# HELP {name} {metric.help}\n" in page
        family = name.removesuffix("_total") if metric.type is MetricType.COUNTER else name
        assert f"# TYPE {family} {metric.type}\n" in openmetrics
    assert openmetrics.endswith("# EOF\n")
