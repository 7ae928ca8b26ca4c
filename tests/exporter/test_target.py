"""Polls that go wrong, against servers that do."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgque_exporter.connection import FailureKind
from pgque_exporter.demo.cluster import Cluster, embedded_bindir
from pgque_exporter.redaction import Redactor
from pgque_exporter.target import PollOutcome, Target
from tests.exporter.harness import (
    CATALOGUE,
    ToyPack,
    config,
    poll,
    poll_error,
    running,
    silent_server,
    target,
)
from tests.support.database import Database, wait_until


def outcomes_until(
    enough: Callable[[list[PollOutcome]], bool], dsn: str, *, seconds: float = 30, **options: Any
) -> list[PollOutcome]:
    """Run a target's loop until its outcomes are enough."""
    outcomes: list[PollOutcome] = []

    async def run() -> None:
        stop = asyncio.Event()

        def publish(outcome: PollOutcome) -> None:
            outcomes.append(outcome)
            if enough(outcomes):
                stop.set()

        one = Target(target(dsn, **options), CATALOGUE, Redactor(), publish)
        await asyncio.wait_for(one.run(stop), seconds)

    asyncio.run(run())
    return outcomes


def test_one_connection_serves_all_polls(database: Database, toy: ToyPack) -> None:
    seen: set[int] = set()
    watcher = database.connect()

    def enough(outcomes: list[PollOutcome]) -> bool:
        query = "select pid from pg_stat_activity where datname = %s and application_name = 'pgque-exporter'"
        seen.update(row[0] for row in watcher.execute(query, (database.name,)))
        return len(outcomes) == 4

    outcomes = outcomes_until(enough, database.dsn(), interval=0.05)
    assert len(seen) == 1
    assert all(outcome.failure is None for outcome in outcomes)


def test_polls_keep_to_the_grid_and_count_what_they_skip(database: Database, toy: ToyPack) -> None:
    toy.replace_metrics("select 'x', 'gauge', 1.0, '{}'::jsonb from pg_sleep(0.25)")
    outcomes = outcomes_until(lambda done: len(done) == 3, database.dsn(), interval=0.1)
    assert all(outcome.skipped >= 2 for outcome in outcomes)


def test_an_ended_connection_is_replaced_within_the_poll(database: Database, toy: ToyPack) -> None:
    toy.add("pgque.queue.depth", 1, queue="q")
    killer = database.connect()

    def enough(outcomes: list[PollOutcome]) -> bool:
        killer.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = %s and application_name = 'pgque-exporter'",
            (database.name,),
        )
        return len(outcomes) == 3

    assert [outcome.failure for outcome in outcomes_until(enough, database.dsn(), interval=0.1)] == [None] * 3


def test_a_server_that_never_answers_costs_one_deadline() -> None:
    with silent_server() as port:
        started = time.monotonic()
        error = poll_error(f"host=127.0.0.1 port={port} dbname=x user=x", timeout=0.5)
    assert error.kind is FailureKind.TIMEOUT
    assert "no answer within 0.5 s" in error.message
    assert time.monotonic() - started < 4


def test_a_query_that_hangs_is_given_up_and_ended(database: Database, toy: ToyPack) -> None:
    connection = database.connect()
    toy.replace_metrics("select 'x', 'gauge', 1.0, '{}'::jsonb from pg_sleep(600)")
    started = time.monotonic()
    assert poll_error(database.dsn(), timeout=0.5).kind is FailureKind.TIMEOUT
    assert time.monotonic() - started < 4
    query = "select count(*) from pg_stat_activity where datname = %s and application_name = 'pgque-exporter'"
    wait_until(
        lambda: connection.execute(query, (database.name,)).fetchall() == [(0,)],
        what="the server ends the query by its own time-out",
    )


def test_a_lock_is_waited_for_no_longer_than_the_deadline(database: Database, toy: ToyPack) -> None:
    blocker = database.connect(autocommit=False)
    blocker.execute("lock table toy_observability.row in access exclusive mode")
    assert poll_error(database.dsn(), timeout=0.5).kind is FailureKind.TIMEOUT


@pytest.mark.slow
def test_a_frozen_server_costs_one_deadline_and_recovers() -> None:
    with Cluster(embedded_bindir()) as cluster:
        with psycopg.connect(cluster.dsn(), autocommit=True) as connection:
            ToyPack(connection).add("pgque.queue.depth", 1, queue="q")
        children: list[int] = []

        def steer(outcomes: list[PollOutcome]) -> bool:
            latest = outcomes[-1]
            if len(outcomes) == 2:
                children[:] = [cluster.pid, *backends(cluster.pid)]
                for pid in children:
                    os.kill(pid, signal.SIGSTOP)
            elif latest.failure is FailureKind.TIMEOUT and children:
                for pid in children:
                    os.kill(pid, signal.SIGCONT)
                children.clear()
            return len(outcomes) > 3 and latest.failure is None

        outcomes = outcomes_until(steer, cluster.dsn(), interval=0.3, timeout=0.5)
        assert FailureKind.TIMEOUT in [outcome.failure for outcome in outcomes]
        assert all(outcome.duration < 3 for outcome in outcomes)


def backends(postmaster: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()]


def test_a_dead_database_costs_its_own_series_only(database: Database, toy: ToyPack) -> None:
    toy.add("pgque.queue.depth", 1, queue="q")
    with silent_server() as port:
        hung = target(f"host=127.0.0.1 port={port} dbname=x user=x", "hung", timeout=0.5)
        refused = target("host=127.0.0.1 port=1 dbname=x user=x", "refused")
        with running(config(target(database.dsn()), hung, refused)) as service:
            wait_until(lambda: service.get("/readyz").status == 200, what="all polled")
            wait_until(lambda: service.sample("pgque_queue_depth{") == 1, what="the good one's series")
            assert service.sample('pgque_up{database="shop"}') == 1
            assert service.sample('pgque_up{database="hung"}') == 0
            assert service.sample('pgque_up{database="refused"}') == 0
            before = service.sample('pgque_exporter_polls_total{database="shop",result="ok"}') or 0
            wait_until(
                lambda: (
                    (service.sample('pgque_exporter_polls_total{database="shop",result="ok"}') or 0)
                    > before + 3
                ),
                what="the good one goes on",
            )
            assert service.sample('pgque_exporter_polls_total{database="hung",result="timeout"}')
            assert service.sample('pgque_exporter_polls_total{database="refused",result="connection"}')
            health = service.get("/healthz")
            assert health.status == 503
            kinds = {one["name"]: one["error"] and one["error"]["kind"] for one in health.json["targets"]}
            assert kinds == {"shop": None, "hung": "timeout", "refused": "connection"}


@pytest.mark.slow
def test_a_server_that_stops_takes_up_to_0_and_comes_back() -> None:
    with Cluster(embedded_bindir()) as cluster:
        with psycopg.connect(cluster.dsn(), autocommit=True) as connection:
            ToyPack(connection).add("pgque.queue.depth", 1, queue="q")
        with running(config(target(cluster.dsn()))) as service:
            wait_until(lambda: service.sample("pgque_up{") == 1, what="up")
            cluster.stop()
            wait_until(lambda: service.sample("pgque_up{") == 0, what="down")
            assert service.sample("pgque_queue_depth{") == 1  # old, and its age says so
            assert service.get("/healthz").json["targets"][0]["checks"][0]["check"] == "database"
            assert service.get("/livez").status == 200
            cluster.start()
            wait_until(lambda: service.sample("pgque_up{") == 1, what="up again")


def test_a_failure_is_logged_once_and_so_is_the_recovery(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pgque_exporter.target")
    connection = database.connect()

    def enough(outcomes: list[PollOutcome]) -> bool:
        if len(outcomes) == 4:
            ToyPack(connection)
        return len(outcomes) == 8

    outcomes_until(enough, database.dsn(), interval=0.05)
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in lines] == ["WARNING", "INFO"]
    assert "shop: contract: no pack is installed; run `pgque-exporter sql install`" in lines[0][1]
    assert "shop: polled, 0 series of toy 7.1" in lines[1][1]


def test_a_partly_failed_poll_keeps_the_rows_and_is_not_up(database: Database, toy: ToyPack) -> None:
    toy.add("pgque.queue.depth", 1, queue="q")
    other = ToyPack(database.connect(), "broken_pack", "other")
    other.replace_metrics("select 'x', 'gauge', 1 / 0::numeric, '{}'::jsonb")
    [outcome] = outcomes_until(bool, database.dsn())
    assert outcome.failure is FailureKind.CONTRACT
    assert outcome.state.snapshot is not None
    assert outcome.state.snapshot.points == 1
    assert (outcome.state.up, outcome.state.last_success) == (False, None)


def test_a_missing_password_file_is_a_failure_with_a_name(tmp_path: Path) -> None:
    error = poll_error("dbname=x", password_file=tmp_path / "gone")
    assert error.kind is FailureKind.CONNECTION
    assert "can't read the password file" in error.message


def test_a_poll_on_another_time_zone_and_with_odd_settings(database: Database, toy: ToyPack) -> None:
    toy.add("pgque.queue.depth", 1, queue="q")
    connection = database.connect()
    connection.execute(f"alter database {database.name} set search_path = nowhere")
    connection.execute(f"alter database {database.name} set default_transaction_isolation = serializable")
    connection.execute(f"alter database {database.name} set statement_timeout = 1")
    assert poll(database.dsn()).snapshot.points == 1
