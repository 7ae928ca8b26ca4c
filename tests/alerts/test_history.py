"""From what was published to an alert: a queue that lags, its history, the service's page, the rules."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import dict_row

from pgque_exporter.config import TargetConfig
from pgque_pipeline.publishing import publish
from tests.alerts.documents import FOLDER
from tests.exporter.harness import config, running, target
from tests.support.database import Database, new_database, wait_until
from tests.support.observed import Queue
from tests.support.prometheus import promtool
from tests.support.warehouse import small_warehouse

RULES = FOLDER / "rules" / "pgque-history.yml"
ALERTS = ("PgQueConsumerLagUnusual", "PgQueRotationWillBeBlocked")
ENTITY = {"engine": "pgque", "database": "shop", "queue": "q", "consumer": "app"}
LAG = 3600.0  # seconds


@pytest.fixture
def lagging(pack_database: Database) -> Database:
    """A database whose consumer `app` of queue `q` is an hour behind."""
    with psycopg.connect(pack_database.dsn(), autocommit=True, row_factory=dict_row) as connection:
        connection.execute("select pgque.create_queue('q')")
        connection.execute("select pgque.set_queue_config('q', 'ticker_max_count', '1')")
        queue = Queue(connection, "q")
        queue.subscribe("app")
        queue.send_and_tick(3)
        queue.wait(LAG)
        queue.send_and_tick(1)
    return pack_database


def page(lagging: Database, folder: Path, *, usual: float, left: float) -> str:
    """What the service shows of the queue, and of its history: a lag up to `usual`, `left` seconds to go."""
    metric = {"metric": "pgque.consumer.lag_seconds"}
    band = {"median": usual / 2, "low": 0.0, "high": usual, "hours": 4}
    ends = {"seconds_left": left, "seconds_left_low": left / 2, "seconds_left_high": 2 * left}
    now = datetime.now(UTC)
    warehouse = small_warehouse(
        folder,
        as_of=now,
        baselines=[ENTITY | metric | band | {"hour_of_week": hour} for hour in range(168)],
        forecast=[ENTITY | {"as_of": now} | ends],
    )
    with new_database(lagging.cluster) as database:
        publish(warehouse, TargetConfig("history", database.dsn()))
        targets = (target(lagging.dsn()), target(database.dsn(), "history", history=True))
        with running(config(*targets)) as service:
            wait_until(lambda: service.sample("pgque_baseline_high"), what="its history is on the page")
            wait_until(lambda: service.sample("pgque_consumer_lag_seconds"), what="the queue is as well")
            return service.get("/metrics").text


def judge(text: str, folder: Path, *, fires: bool) -> None:
    """Let promtool judge whether the alerts fire once the page has stayed as it is for half an hour."""
    series = [
        {"series": f'{match[1]}{{job="pgque-exporter",{match[2]}}}', "values": f"{float(match[3])}x120"}
        for match in re.finditer(r"^(pgque_\w+){([^}]*)} (\S+)$", text, re.MULTILINE)
        if match[1].startswith(("pgque_baseline", "pgque_forecast", "pgque_consumer_lag"))
    ]
    assert len(series) == 7
    samples = []
    for alert in ALERTS:
        labels = {"alertname": alert, "alertstate": "firing", "severity": "warning", "job": "pgque-exporter"}
        given = ", ".join(f"{name}={json.dumps(value)}" for name, value in {**labels, **ENTITY}.items())
        samples.append({"labels": f"ALERTS{{{given}}}", "value": 1})
    asked = {"expr": 'ALERTS{alertstate="firing"}', "eval_time": "30m"}
    case = {
        "interval": "15s",
        "input_series": series,
        "promql_expr_test": [asked | {"exp_samples": samples if fires else []}],
    }
    file = folder / "case.yml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "15s", "tests": [case]}))
    result = promtool("test", "rules", file)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.servers("pg15")
@pytest.mark.parametrize(
    ("usual", "left", "fires"), [(60.0, 7200.0, True), (7200.0, 90_000.0, False)], ids=["unusual", "usual"]
)
def test_what_was_published_fires_its_alerts(
    lagging: Database, tmp_path: Path, usual: float, left: float, fires: bool
) -> None:
    judge(page(lagging, tmp_path / "warehouse", usual=usual, left=left), tmp_path, fires=fires)
