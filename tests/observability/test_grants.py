"""Least privilege: the monitor role can run the contract and can do nothing else."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest

from tests.support.observed import CONTRACT, Queue

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
def as_monitor(queue: Queue) -> Queue:
    """The queue for somebody who is the monitor role, with something to see in every table."""
    queue.subscribe("app")
    queue.send_and_tick(3)
    queue.wait(60)  # late: the event tables are asked as well
    queue.send(3)
    queue.wait(60)
    queue.run("set role pgque_monitor")
    return queue


def refused(queue: Queue, statement: str) -> None:
    """The statement is refused for want of a privilege; {events} and {sequence} are the queue's own."""
    (row,) = queue.run(
        "select queue_data_pfx as events, queue_event_seq as sequence from {engine}.queue"
        " where queue_name = 'q'"
    )
    for name, value in row.items():
        statement = statement.replace(f"{{{name}}}", value)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        queue.run(statement)


@pytest.mark.parametrize("call", CONTRACT)
def test_monitor_runs_the_contract(as_monitor: Queue, call: str) -> None:
    assert isinstance(as_monitor.ask(call), list)


def test_monitor_sees_the_same_as_the_owner(as_monitor: Queue) -> None:
    def seen() -> list[tuple[str, str, object]]:
        rows = as_monitor.ask("otel_metrics()")
        return sorted(
            (row["metric_name"], str(row["labels"]), row["value"])
            for row in rows
            if not row["metric_name"].endswith("_seconds")
        )

    by_monitor = seen()
    as_monitor.run("reset role")
    assert by_monitor == seen()
    assert len(by_monitor) > 10


@pytest.mark.parametrize("statement", DENIED)
def test_monitor_is_denied_everything_else(as_monitor: Queue, statement: str) -> None:
    refused(as_monitor, statement)


def test_queues_made_after_the_install_are_seen_too(queue: Queue) -> None:
    queue.run("select {engine}.create_queue('later')")
    later = replace(queue, name="later")
    later.send(1)
    queue.run("set role pgque_monitor")
    assert later.metrics()[("pgque.message.sent_total", None)] == 1


def test_public_can_do_nothing(queue: Queue) -> None:
    queue.run("create role somebody login")
    try:
        queue.run("set role somebody")
        for call in CONTRACT:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                queue.ask(call)
    finally:
        queue.run("reset role")
        queue.run("drop role somebody")


def test_unreadable_sequence_is_unknown_and_costs_nobody_else(queue: Queue) -> None:
    queue.subscribe("app")
    queue.send_and_tick(3)
    queue.consume("app")
    queue.run("select {engine}.create_queue('other')")
    (row,) = queue.run("select queue_event_seq as name from {engine}.queue where queue_name = 'q'")
    queue.run(f"revoke all on sequence {row['name']} from pgque_monitor, public")
    queue.run("set role pgque_monitor")
    sent = ("pgque.message.sent_total", None)
    assert sent not in queue.metrics()
    assert replace(queue, name="other").metrics()[sent] == 0
    assert queue.consumer("app").items() >= {"lag": None, "pending_events": None}.items()
    assert queue.stats().items() >= {"depth": None, "oldest_msg_age": None}.items()
    assert queue.troubles() == {}
    assert queue.detail("ticker_running").endswith("install the pack again, its event sequence can't be read")
