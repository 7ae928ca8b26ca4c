"""Driven by pg_cron itself: US-8 of the specification, and what start() and stop() leave behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from pgque_exporter.demo.cluster import Cluster
from tests.support.database import ENGINE_INSTALL, PACK_INSTALL, Connection, run_file, wait_until
from tests.support.debian import EXTENSIONS, postgres
from tests.support.pg_cron import postgres_with_pg_cron
from tests.support.queue import ack, create_queue, receive, rows, send, value
from tests.support.tools import Postgres, Unavailable

JOBS = [
    ("pgque_maint", "30 seconds", "select pgque.maint()"),
    ("pgque_retry_events", "30 seconds", "select pgque.maint_retry_events()"),
    ("pgque_rotate_step2", "10 seconds", "select pgque.maint_rotate_tables_step2()"),
    ("pgque_ticker", "1 second", "call pgque.ticker_loop()"),
]


@contextmanager
def with_pg_cron(server: Postgres) -> Iterator[Connection]:
    """A superuser's connection to pg_cron's own database, where the engine is too."""
    settings = {"shared_preload_libraries": "pg_cron", "cron.use_background_workers": "on"}
    with Cluster(server.bindir, env=server.env, settings=settings) as cluster:
        run_file(cluster.dsn(), ENGINE_INSTALL)
        with psycopg.connect(cluster.dsn(), autocommit=True) as db:
            db.execute("create extension pg_cron")
            yield db


@pytest.fixture(scope="module")
def cron() -> Iterator[Connection]:
    try:
        server = postgres_with_pg_cron()
    except Unavailable as error:
        pytest.skip(f"pg_cron: {error}")
    with with_pg_cron(server) as db:
        yield db


def jobs(db: Connection) -> list[tuple[object, ...]]:
    return rows(db, "select jobname, schedule, command from cron.job where active order by 1")


def test_start_makes_four_jobs_once_and_stop_removes_them(cron: Connection) -> None:
    value(cron, "select cron.schedule('mine', '0 0 1 1 *', 'select 1')")
    for _ in range(2):
        cron.execute("select pgque.start()")
        assert jobs(cron) == [("mine", "0 0 1 1 *", "select 1"), *JOBS]
    named = rows(
        cron,
        "select jobname from pgque.config join cron.job on jobid in"
        " (ticker_job_id, maint_job_id, retry_job_id, step2_job_id) order by 1",
    )
    assert named == [(name,) for name, *_ in JOBS]
    running = "select component from pgque.status() where status = 'running'"
    assert rows(cron, running) == [("ticker",), ("maintenance",), ("retries",), ("rotation",)]
    cron.execute("select cron.alter_job(ticker_job_id, active => false) from pgque.config")
    [(status, detail)] = rows(cron, "select status, detail from pgque.status() where component = 'ticker'")
    assert (status, "inactive" in detail) == ("stopped", True)

    for _ in range(2):
        cron.execute("select pgque.stop()")
        assert jobs(cron) == [("mine", "0 0 1 1 *", "select 1")]
    assert rows(cron, running) == []
    value(cron, "select cron.unschedule('mine')")


def test_an_admin_may_start_and_stop_without_any_right_in_pg_cron(cron: Connection) -> None:
    cron.execute("create role operator in role pgque_admin")
    try:
        cron.execute("set role operator")
        cron.execute("select pgque.start()")
        cron.execute("reset role")
        assert jobs(cron) == JOBS
        assert rows(cron, "select distinct username from cron.job") == [("postgres",)]
        cron.execute("set role operator")
        cron.execute("select pgque.stop()")
        cron.execute("reset role")
        assert jobs(cron) == []
    finally:
        cron.execute("reset role")
        cron.execute("drop role operator")


def test_us8_one_file_and_pg_cron_are_all_it_takes(cron: Connection) -> None:
    run_file(cron.info.dsn, ENGINE_INSTALL)
    run_file(cron.info.dsn, PACK_INSTALL)
    cron.execute("select pgque.start()")
    create_queue(cron, "orders", "app")
    value(cron, "select pgque.set_queue_config('orders', 'ticker_max_lag', '100 milliseconds')")
    for number in range(3):
        send(cron, "orders", str(number))
        wait_until(lambda: receive(cron, "orders", "app"), what=f"message {number}")
        [message] = receive(cron, "orders", "app")
        assert message.payload == str(number)
        assert ack(cron, message.batch_id) == 1
    detail = value(cron, "select detail from pgque.status() where component = 'ticker'")
    assert "last tick 00:00:0" in detail

    finished = "select count(*) from cron.job_run_details where status = 'succeeded' and command ~ %s"
    wait_until(lambda: value(cron, finished, "ticker_loop") >= 3, what="three runs of the ticker")
    assert rows(cron, "select * from cron.job_run_details where status = 'failed'") == []
    wait_until(
        lambda: rows(cron, "select check_name, status from pgque.queue_health() where status <> 'ok'") == [],
        what="every check is ok",
    )

    cron.execute("select pgque.stop()")
    assert jobs(cron) == []
    cron.execute("select pgque.start()")
    cron.execute("select pgque.uninstall()")
    assert jobs(cron) == []
    assert value(cron, "select to_regnamespace('pgque')") is None


def test_the_uninstall_file_removes_the_jobs_too(cron: Connection) -> None:
    run_file(cron.info.dsn, ENGINE_INSTALL)
    cron.execute("select pgque.start()")
    run_file(cron.info.dsn, ENGINE_INSTALL.with_name("uninstall.sql"))
    assert jobs(cron) == []
    assert value(cron, "select to_regnamespace('pgque')") is None


def test_an_old_pg_cron_is_told_from_a_missing_one() -> None:
    try:
        server = postgres(extensions=EXTENSIONS)
    except Unavailable as error:
        pytest.skip(f"pg_cron: {error}")
    with with_pg_cron(server) as db:
        with pytest.raises(psycopg.Error, match=r"pg_cron 1\.4\S* is too old") as caught:
            db.execute("select pgque.start()")
        assert "pgque-exporter ticker" in str(caught.value.diag.message_hint)
        assert jobs(db) == []
