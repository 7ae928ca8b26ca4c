"""Least privilege: the monitor role can run the contract and can do nothing else."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.observed import CONTRACT, Connection, Queue

DENIED = (
    "select ev_data from pgque.retry_queue",
    "select dl_reason from pgque.dead_letter",
    "select ev_data from pgque.dead_letter",
    "select * from pgque.event_template",
    "select ev_data from {events}",
    "select * from pgque.receive('q', 'app')",
    "select pgque.ack(1)",
    "select pgque.send('q', 'x')",
    "select pgque.ticker()",
    "select pgque.create_queue('other')",
    "select pgque.drop_queue('q')",
    "select pgque.dlq_purge('q')",
    "update pgque.queue set queue_ticker_paused = true",
    "delete from pgque.tick",
    "select nextval('{sequence}')",
    "create table pgque.mine (a int)",
)


@pytest.fixture
def as_monitor(queue: Queue) -> Connection:
    """The superuser's connection turned into the monitor role, with something to see in every table."""
    queue.subscribe("app")
    queue.send_and_tick(3)
    queue.wait(60)  # late: unticked_since() is asked as well
    queue.send(3)
    queue.wait(60)
    queue.db.execute("set role pgque_monitor")
    return queue.db


@pytest.mark.parametrize("call", CONTRACT)
def test_monitor_runs_the_contract(as_monitor: Connection, call: str) -> None:
    assert isinstance(as_monitor.execute(f"select * from pgque.{call}".encode()).fetchall(), list)


def test_monitor_sees_the_same_as_the_owner(as_monitor: Connection) -> None:
    query = "select * from pgque.otel_metrics() where metric_name not like '%\\_seconds' order by 1, 4"
    seen = as_monitor.execute(query).fetchall()
    as_monitor.execute("reset role")
    assert seen == as_monitor.execute(query).fetchall()
    assert len(seen) > 10


@pytest.mark.parametrize("statement", DENIED)
def test_monitor_is_denied_everything_else(as_monitor: Connection, statement: str) -> None:
    row = as_monitor.execute("select queue_data_pfx, queue_event_seq from pgque.queue").fetchone()
    assert row is not None
    text = statement.format(events=row["queue_data_pfx"], sequence=row["queue_event_seq"])
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        as_monitor.execute(text.encode())


def test_queues_made_after_the_install_are_seen_too(db: Connection) -> None:
    db.execute("select pgque.create_queue('later')")
    db.execute("select pgque.send('later', 'x')")
    db.execute("set role pgque_monitor")
    row = db.execute(
        "select value from pgque.otel_metrics() where metric_name = 'pgque.message.sent_total'"
    ).fetchone()
    assert row == {"value": 1}


def test_public_can_do_nothing(queue: Queue) -> None:
    queue.db.execute("create role somebody login")
    try:
        queue.db.execute("set role somebody")
        for call in CONTRACT:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                queue.db.execute(f"select * from pgque.{call}".encode())
    finally:
        queue.db.execute("reset role")
        queue.db.execute("drop role somebody")


def test_unreadable_sequence_is_unknown_and_costs_nobody_else(queue: Queue) -> None:
    queue.subscribe("app")
    queue.db.execute("select pgque.create_queue('other')")
    row = queue.db.execute("select queue_event_seq from pgque.queue where queue_name = 'q'").fetchone()
    assert row is not None
    queue.db.execute(f"revoke all on sequence {row['queue_event_seq']} from pgque_monitor".encode())
    queue.db.execute("set role pgque_monitor")
    rows = queue.db.execute(
        "select labels->>'queue' as queue from pgque.otel_metrics()"
        " where metric_name = 'pgque.message.sent_total'"
    ).fetchall()
    assert rows == [{"queue": "other"}]
    assert queue.consumer("app").items() >= {"lag": None, "pending_events": None}.items()
    assert queue.stats().items() >= {"depth": None, "oldest_msg_age": None}.items()
    assert queue.troubles() == {}
