"""On a hot standby the contract answers as on the primary, and nothing of it writes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import dict_row

from pgque_exporter.demo.cluster import Cluster
from tests.support.database import Database
from tests.support.observed import CONTRACT, Connection, Queue, Row
from tests.support.processes import Process
from tests.support.standby import Standby

CALLS = (*CONTRACT, "exact_backlog('q')", "health_checks()")
LOGGED_AHEAD = 32  # numbers of a sequence that PostgreSQL logs beforehand


@pytest.fixture(scope="module")
def standby(cluster: Cluster) -> Iterator[Standby]:
    """A standby of the running server."""
    with Standby(cluster) as running:
        yield running


@pytest.fixture
def queue(pack_database: Database) -> Iterator[Queue]:
    """A queue `q` in every kind of trouble: its consumer `app` holds a batch, `idle` has all behind it."""
    with psycopg.connect(pack_database.dsn(), autocommit=True, row_factory=dict_row) as db:
        for name in ("q", "unused", "unread"):
            db.execute("select pgque.create_queue(%s)", (name,))
        db.execute("select pgque.set_queue_config(queue_name, 'ticker_max_count', '1') from pgque.queue")
        Queue(db, "unread").send_and_tick(4)
        queue = Queue(db, "q")
        for consumer in ("app", "idle", "failing"):
            queue.subscribe(consumer)
        queue.send_and_tick(20)
        queue.wait(60)
        queue.send_and_tick(30)
        queue.consume("idle")
        messages = queue.receive("failing")
        db.execute("select pgque.set_queue_config('q', 'max_retries', '0')")
        for message in messages[:3]:
            queue.nack("failing", message)
        db.execute("select pgque.set_queue_config('q', 'max_retries', '5')")
        for message in messages[3:8]:
            queue.nack("failing", message)
        queue.consume("failing")
        assert queue.receive("app")
        yield queue


@pytest.fixture
def following(standby: Standby, queue: Queue) -> Iterator[Connection]:
    """A connection to the same database on the standby."""
    standby.catch_up()
    name = queue.db.info.dbname
    with psycopg.connect(standby.dsn(name), autocommit=True, row_factory=dict_row) as connection:
        yield connection


def answers(db: Connection) -> dict[str, list[Row]]:
    found = {call: db.execute(f"select * from pgque.{call}".encode()).fetchall() for call in CALLS}
    found["otel_metrics()"].sort(key=lambda row: (row["metric_name"], str(row["labels"])))
    return found


def assert_same(standby: Standby, primary: Connection, following: Connection) -> dict[str, list[Row]]:
    """What grows while time passes lies between the primary's answers before and after; all else is equal."""
    standby.catch_up()
    before, there, after = answers(primary), answers(following), answers(primary)
    for call in CALLS:
        assert len(there[call]) == len(before[call]), call
        for first, row, last in zip(before[call], there[call], after[call], strict=True):
            for column, found in row.items():
                where = f"{call}: {column} of {row}"
                if first[column] == last[column] and row.get("metric_name") != "pgque.message.sent_total":
                    assert found == first[column], where
                elif isinstance(found, str):
                    digits = [re.sub(r"\d+", "#", str(text)) for text in (found, first[column])]
                    assert digits[0] == digits[1], where
                elif row.get("metric_name") == "pgque.message.sent_total" and column == "value":
                    assert 0 <= first[column] - found < LOGGED_AHEAD, where
                elif isinstance(found, timedelta | Decimal):
                    assert first[column] <= found <= last[column], where
                else:
                    assert found == first[column], where
    return there


def statuses(rows: dict[str, list[Row]]) -> set[tuple[str, str]]:
    return {(row["check_name"], row["status"]) for row in rows["queue_health()"] if row["status"] != "ok"}


def test_every_function_answers_as_on_the_primary(
    standby: Standby, queue: Queue, following: Connection
) -> None:
    there = assert_same(standby, queue.db, following)
    assert statuses(there) == {("no_consumers", "warning")}
    assert sum(row["estimated_events"] for row in there["in_flight('q')"]) == 20

    # The ticker died with events waiting, retries overdue and a send rolled back, one still running.
    with psycopg.connect(queue.db.info.dsn, user="postgres") as sender:
        sender.execute("select pgque.send('q', 'not committed yet')")
        queue.send(7)
        with queue.db.transaction(force_rollback=True):
            queue.send(50)
        queue.wait(4000)
        there = assert_same(standby, queue.db, following)
        assert {("ticker_running", "critical"), ("retry_overdue", "warning")} <= statuses(there)
        (stats,) = (row for row in there["queue_stats()"] if row["queue_name"] == "q")
        assert stats["depth"] == 57
        assert stats["dlq_count"] == 3
        sender.commit()
    assert_same(standby, queue.db, following)

    queue.db.execute("select pgque.maint_retry_events()")
    queue.tick()
    assert_same(standby, queue.db, following)
    queue.db.execute("delete from pgque.tick where tick_id < 3")
    there = assert_same(standby, queue.db, following)
    assert ("missing_tick:app", "critical") in statuses(there)


def test_sequence_numbers_logged_beforehand_are_no_events(
    standby: Standby, queue: Queue, following: Connection
) -> None:
    """However many queues: only some of them are looked up in the event tables."""
    queue.db.execute(
        "select pgque.create_queue('more_' || i), pgque.subscribe('more_' || i, 'app')"
        " from generate_series(1, 60) i"
    )
    queue.db.execute("select pgque.create_queue('more_of_no_use')")
    queue.db.execute("select pgque.set_queue_config(queue_name, 'ticker_max_count', '1') from pgque.queue")
    queue.db.execute("select pgque.send(queue_name, 'x') from pgque.queue where queue_name ~ '^more'")
    queue.db.execute("select pgque.ticker()")
    queue.db.execute(
        "delete from pgque.tick t using pgque.queue q where q.queue_id = t.tick_queue"
        " and q.queue_name = 'more_of_no_use' and t.tick_event_seq = 0"
    )
    there = assert_same(standby, queue.db, following)
    assert {row["depth"] for row in there["queue_stats()"] if row["queue_name"].startswith("more_")} == {0, 1}
    discarding = {row["queue_name"] for row in there["queue_health()"] if row["check_name"] == "no_consumers"
                  and row["status"] != "ok"}
    assert discarding == {"unread"}


def test_nothing_takes_a_transaction_id(queue: Queue, following: Connection) -> None:
    with queue.db.transaction():
        answers(queue.db)
        assert queue.db.execute("select pg_current_xact_id_if_assigned() as id").fetchone() == {"id": None}
    # Neither does a poll of an unsuspecting role, which a standby would refuse.
    following.execute("set role pgque_monitor")
    answers(following)


def test_the_service_checks_and_polls_it(
    standby: Standby, queue: Queue, following: Connection, tmp_path: Path
) -> None:
    dsn = standby.dsn(following.info.dbname)
    commands = {
        "check": ("check", 0, " ok ("),
        "verify": ("sql verify", 0, "whole and safe"),
        "install": ("sql install", 1, "is a standby or a read-only session: connect to the primary"),
    }
    for name, (words, code, told) in commands.items():
        argv = [sys.executable, "-m", "pgque_exporter", *words.split(), "--dsn", dsn]
        with Process(argv, log=tmp_path / f"{name}.log") as process:
            assert process.wait(60) == code, process.output()
            assert told in process.output()
