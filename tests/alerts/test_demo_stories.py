"""The demo's four stories with the shipped rules: what is well fires nothing, what isn't does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pgque_exporter.demo.cluster import free_port
from tests.alerts.stack import hurried_rules
from tests.support.processes import Process
from tests.support.prometheus import run_prometheus

# Alert, queue, consumer and check of each story that isn't one of health.
TOLD = {
    ("PgQueHealthCritical", "billing", "ledger", "consumer_lag"),
    ("PgQueDeadLettersGrowing", "webhooks", "", ""),
    ("PgQueHealthWarning", "emails", "mailer", "consumer_lag"),
}


@pytest.mark.slow
def test_only_the_stories_of_trouble_are_told(tmp_path: Path) -> None:
    """With every threshold as shipped. That no alert waits lets the healthy queue get away with less."""
    port = free_port()
    command = [sys.executable, "-u", "-m", "pgque_exporter", "demo"]
    job = {"job_name": "demo", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
    with (
        Process(command, log=tmp_path / "demo.log", env={"PORT": str(port)}) as demo,
        run_prometheus(
            folder=tmp_path, rule_files=hurried_rules(tmp_path), extra={"scrape_configs": [job]}
        ) as prometheus,
    ):
        demo.wait_for(lambda: prometheus.query("pgque_up == 1"), "the demo is scraped", timeout=60)
        fired = 'count_over_time(ALERTS{alertstate="firing", queue!=""}[1h])'
        seen = f"group by (alertname, queue, consumer, check) ({fired})"

        def told() -> set[tuple[str, ...]]:
            return {
                tuple(sample.labels.get(name, "") for name in ("alertname", "queue", "consumer", "check"))
                for sample in prometheus.query(seen)
            }

        demo.wait_for(lambda: told() >= TOLD, "the three stories of trouble are told", timeout=240)
        assert {queue for _, queue, *_ in told()} == {"billing", "webhooks", "emails"}
        assert prometheus.value('count(pgque_queue_health_state{queue="orders"})')
        assert [rule["lastError"] for rule in prometheus.rules() if "lastError" in rule] == []
