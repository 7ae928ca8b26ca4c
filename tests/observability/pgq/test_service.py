"""The service polls PgQ's pack as it polls any other, also beside PgQue's."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from psycopg import sql

from tests.cli.conftest import Run, run  # noqa: F401
from tests.exporter.harness import config, running, target
from tests.support.database import ENGINE_INSTALL, Database
from tests.support.database import PACK_INSTALL as PGQUE_PACK_INSTALL
from tests.support.observed import Connection, Queue
from tests.support.pgq import PgqQueue
from tests.support.processes import wait_for


@pytest.fixture
def exporter(db: Connection) -> Iterator[str]:
    """A login role that is nothing but a monitor."""
    role = "exporter_of_both"
    db.execute(sql.SQL("create role {} login in role pgque_monitor").format(sql.Identifier(role)))
    yield role
    db.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))


@pytest.fixture
def both(queue: PgqQueue, pgq_database: Database) -> PgqQueue:
    """A queue `q` of each engine in one database: 3 events wait in PgQ's, 5 in PgQue's."""
    pgq_database.install(ENGINE_INSTALL)
    pgq_database.install(PGQUE_PACK_INSTALL)
    other = Queue(queue.db, "q")
    other.run("select {engine}.create_queue('q')")
    other.configure("ticker_max_count", "1")
    for each, events in ((queue, 3), (other, 5)):
        each.subscribe("app")
        each.send_and_tick(events)
    return queue


def test_check_finds_both_packs_and_what_is_wrong_with_each(
    run: Run, both: PgqQueue, pgq_database: Database, exporter: str  # noqa: F811
) -> None:
    both.wait(3600)
    code, out, error = run("check", "--json", "--dsn", pgq_database.dsn(user=exporter))
    assert (code, error) == (0, "")
    (found,) = json.loads(out)["targets"]
    assert [(pack["engine"], pack["schema"]) for pack in found["packs"]] == [
        ("pgq", "pgq_observability"),
        ("pgque", "pgque"),
    ]
    assert found["packs"][0]["engine_version"] == "3.5"
    assert all(count == 0 for count in found["dropped"].values())
    # An hour without a ticker: PgQue's queue wasn't aged.
    assert {(check["engine"], check["status"]) for check in found["checks"]} >= {("pgq", "critical")}
    assert {check["engine"] for check in found["checks"]} == {"pgq"}
    assert any("last tick 01:00" in check["detail"] for check in found["checks"])


def test_a_scrape_shows_both_engines_under_their_labels(
    both: PgqQueue, pgq_database: Database, exporter: str
) -> None:
    with running(config(target(pgq_database.dsn(user=exporter)))) as service:
        wait_for(lambda: service.sample("pgque_up{") == 1, "a successful poll")
        page = service.get("/metrics").text
        status = service.get("/api/v1/status").json

    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]

    def of_engine(metric: str) -> dict[str, float]:
        return {sample.labels["engine"]: sample.value for sample in samples if sample.name == metric}

    assert of_engine("pgque_queue_depth") == {"pgq": 3, "pgque": 5}
    assert of_engine("pgque_consumer_pending_events") == {"pgq": 3, "pgque": 5}
    assert of_engine("pgque_message_sent_total") == {"pgq": 3, "pgque": 5}
    assert of_engine("pgque_message_dead_lettered") == {"pgque": 0}  # PgQ has none to count
    assert {sample.value for sample in samples if sample.name == "pgque_exporter_series_dropped_total"} <= {0}
    assert {row["engine"] for row in status["targets"][0]["queues"]} == {"pgq", "pgque"}
    checks = Counter(s.labels["engine"] for s in samples if s.name == "pgque_queue_health_status")
    assert checks["pgq"] > 0
    assert checks["pgque"] > 0


def test_a_pack_whose_engine_is_gone_costs_the_other_nothing(
    run: Run, both: PgqQueue, pgq_database: Database, exporter: str  # noqa: F811
) -> None:
    both.run("drop extension pgq cascade")
    code, out, _ = run("check", "--json", "--dsn", pgq_database.dsn(user=exporter))
    assert code == 1
    (found,) = json.loads(out)["targets"]
    assert [pack["engine"] for pack in found["packs"]] == ["pgque"]
    (told,) = found["errors"]
    assert told["kind"] == "contract"
    assert 'relation "pgq.' in told["message"]
    assert "does not exist" in told["message"]
