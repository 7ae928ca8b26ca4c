"""PgQ driven by its own daemon, watched through its pack."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pgque_exporter.demo.cluster import Cluster
from tests.support.database import Database
from tests.support.pgq import PgqQueue, pgqd
from tests.support.processes import Process
from tests.support.tools import Unavailable


@pytest.fixture
def daemon(pgq_server: Cluster, pgq_database: Database, tmp_path: Path) -> Iterator[Process]:
    """A running pgqd, which does everything every few moments."""
    periods = {"retry_period": 0.2, "maint_period": 0.2}
    try:
        process = pgqd(pgq_server, pgq_database.name, tmp_path / "pgqd", periods)
    except Unavailable as error:
        pytest.skip(f"pgqd: {error}")
    with process:
        yield process


def ticks(queue: PgqQueue) -> int:
    """How many ticks there were so far."""
    return int(queue.run("select max(tick_id) as id from pgq.tick")[0]["id"])


def test_events_flow_and_all_is_well(queue: PgqQueue, daemon: Process) -> None:
    queue.subscribe("app")
    queue.send(30)
    messages = daemon.wait_for(lambda: queue.receive("app"), "a batch to take")
    queue.nack("app", messages[0])
    queue.finish(messages)

    assert len(messages) == 30
    assert queue.troubles() == {}
    assert queue.stats()["depth"] == 0
    assert queue.metrics()[("pgque.message.retry_waiting", None)] == 1

    queue.wait(3600)  # the retry is due
    daemon.wait_for(lambda: queue.consume("app") == 1, "the retry to come back")
    assert queue.metrics()[("pgque.message.retry_waiting", None)] == 0
    assert queue.consumer("app")["pending_events"] == 0
    daemon.wait_for(lambda: queue.troubles() == {}, "a new tick")


def test_an_idle_queue_stays_well_between_its_rare_ticks(queue: PgqQueue, daemon: Process) -> None:
    queue.subscribe("app")
    queue.configure("ticker_idle_period", "1 second")
    queue.run("update pgq_observability.health_threshold set tick_grace = '20 seconds'")
    queue.send(5)
    daemon.wait_for(lambda: queue.consume("app"), "the events")
    seen = ticks(queue)
    watched = 0

    def five_idle_ticks_later() -> bool:
        nonlocal watched
        watched += 1
        assert queue.troubles() == {}
        assert queue.stats()["depth"] == 0
        queue.consume("app")
        return ticks(queue) >= seen + 5

    daemon.wait_for(five_idle_ticks_later, "five idle ticks", timeout=60)
    assert watched > 10


def test_rotation_by_the_daemon_is_no_trouble(queue: PgqQueue, daemon: Process) -> None:
    queue.subscribe("app")
    queue.configure("rotation_period", "1 second")
    tables = set()

    def rotated_through_all_tables() -> bool:
        queue.send(3)
        queue.consume("app")
        assert "rotation_health" not in queue.troubles()
        assert "missing_tick:app" not in queue.troubles()
        tables.add(queue.stats()["cur_table"])
        return len(tables) == 3

    daemon.wait_for(rotated_through_all_tables, "rotation through all tables", timeout=60)


def test_a_dead_daemon_is_critical_and_a_new_one_mends_it(queue: PgqQueue, daemon: Process) -> None:
    queue.subscribe("app")
    queue.send(5)
    daemon.wait_for(lambda: queue.consume("app"), "the events")
    assert queue.troubles() == {}

    daemon.stop()
    queue.send(100)
    queue.wait(14)
    assert queue.troubles() == {"ticker_running": "critical"}
    assert queue.stats().items() >= {"depth": 100, "events_per_sec": None}.items()
    assert queue.run("select ev_per_sec is not null as told from pgq.get_queue_info('q')") == [{"told": True}]

    daemon.start()
    daemon.wait_for(lambda: queue.consume("app"), "the events that waited")
    assert queue.troubles() == {}
    assert queue.stats()["depth"] == 0
