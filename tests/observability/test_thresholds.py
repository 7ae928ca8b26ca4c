"""What health is judged by can be changed, for all queues or for one, and only to something sensible."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest

from tests.support.database import PACK_INSTALL, Database
from tests.support.observed import Queue


def override(queue: Queue, column: str, value: str) -> None:
    """A row of its own for the queue."""
    queue.run(
        f"insert into {{pack}}.health_threshold (queue_name, {column}) values (%s, %s)", queue.name, value
    )


def test_a_threshold_for_all_queues_and_one_for_a_single_queue(queue: Queue) -> None:
    queue.run("select {engine}.create_queue('other')")
    other = replace(queue, name="other")
    for each in (queue, other):
        each.configure("ticker_max_count", "1")
        each.subscribe("app")
        each.send_and_tick(5)
        each.wait(700)
        each.send_and_tick(1)
        assert "consumer_lag:app" not in each.troubles()

    override(queue, "lag_warning", "10 minutes")
    assert queue.troubles()["consumer_lag:app"] == "warning"
    assert "consumer_lag:app" not in other.troubles()

    queue.run("update {pack}.health_threshold set lag_critical = '5 minutes' where queue_name = '*'")
    assert other.troubles()["consumer_lag:app"] == "critical"
    assert "critical beyond 00:05:00" in other.detail("consumer_lag:app")


def test_each_threshold_moves_its_check(queue: Queue) -> None:
    queue.subscribe("app")
    queue.send_and_tick(5)
    queue.wait(130)
    assert queue.troubles() == {"ticker_running": "critical"}
    override(queue, "tick_grace", "2 minutes")
    assert queue.troubles() == {}

    queue.run("update {pack}.health_threshold set stuck_after = '1 minute' where queue_name = 'q'")
    assert queue.troubles() == {"consumer_stuck:app": "warning"}
    queue.consume("app")
    queue.run("delete from {pack}.health_threshold where queue_name = 'q'")

    queue.wait(30)
    queue.tick()
    queue.send(1)
    queue.wait(16)
    assert queue.troubles() == {"ticker_running": "critical"}
    override(queue, "unticked_grace", "20 seconds")
    assert queue.troubles() == {}

    queue.configure("rotation_period", "1 minute")
    queue.tick()
    queue.consume("app")
    assert queue.troubles() == {}
    queue.run("update {pack}.health_threshold set rotation_grace = '10 seconds' where queue_name = 'q'")
    assert queue.troubles() == {"rotation_health": "warning"}


def test_dead_letters_and_retries_are_judged_by_thresholds(queue: Queue) -> None:
    queue.configure("max_retries", "0")
    queue.subscribe("app")
    queue.send_and_tick(3)
    for message in queue.receive("app"):
        queue.nack("app", message)
    assert queue.troubles() == {}
    override(queue, "dead_letters_warning", "2")
    assert queue.troubles() == {"dlq_health": "warning"}
    queue.run(
        "update {pack}.health_threshold set dead_letters_hour_warning = 1, dead_letters_hour_critical = 3"
        " where queue_name = 'q'"
    )
    assert queue.troubles() == {"dlq_health": "critical"}

    queue.consume("app")
    queue.configure("max_retries", "5")
    queue.send_and_tick(1)
    queue.nack("app", queue.receive("app")[0])
    queue.consume("app")
    queue.wait(3660)  # a minute past its time
    queue.tick()
    assert "retry_overdue" not in queue.troubles()
    queue.run("update {pack}.health_threshold set retry_grace = '30 seconds' where queue_name = '*'")
    assert queue.troubles()["retry_overdue"] == "warning"


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ("insert into {pack}.health_threshold (queue_name) values ('nope')", "queue not found: nope"),
        ("insert into {pack}.health_threshold (queue_name, tick_grace) values ('q', '-1 s')", "grace_check"),
        ("insert into {pack}.health_threshold (queue_name, stuck_after) values ('q', '0')", "lag_check"),
        (
            "insert into {pack}.health_threshold (queue_name, lag_warning, lag_critical)"
            " values ('q', '2 h', '1 h')",
            "lag_check",
        ),
        (
            "insert into {pack}.health_threshold (queue_name, dead_letters_warning) values ('q', 2000)",
            "dead_letters_check",
        ),
        (
            "insert into {pack}.health_threshold (queue_name, dead_letters_hour_warning,"
            " dead_letters_hour_critical) values ('q', 20, 10)",
            "dead_letters_check",
        ),
        ("update {pack}.health_threshold set retry_grace = null", "default_check"),
        ("delete from {pack}.health_threshold", "can't be removed"),
        ("update {pack}.health_threshold set queue_name = 'q'", "can't be removed"),
        ("truncate {pack}.health_threshold", "can't be removed"),
    ],
)
def test_what_makes_no_sense_is_refused(queue: Queue, change: str, refusal: str) -> None:
    with pytest.raises(psycopg.Error, match=refusal):
        queue.run(change)
    rows = queue.run("select queue_name from {pack}.health_threshold")
    assert rows == [{"queue_name": "*"}]


def test_a_limit_that_stands_for_never_is_one(queue: Queue) -> None:
    queue.configure("max_retries", "5")
    queue.subscribe("app")
    queue.send_and_tick(2)
    queue.nack("app", queue.receive("app")[0])
    queue.wait(100_000)
    queue.send(1)
    queue.wait(100_000)
    assert {*queue.troubles()} >= {"ticker_running", "rotation_health", "retry_overdue", "consumer_lag:app"}

    graces = ("tick_grace", "unticked_grace", "rotation_grace", "retry_grace")
    limits = ("lag_warning", "lag_critical", "stuck_after")
    never = ", ".join(f"{column} = '170000000 years'" for column in (*graces, *limits))
    queue.run(f"update {{pack}}.health_threshold set {never} where queue_name = '*'")
    assert queue.troubles() == {}
    # The engine refuses these by now; a queue may have them from before.
    settings = ("ticker_idle_period", "ticker_max_lag", "rotation_period")
    never = ", ".join(f"queue_{setting} = '170000000 years'" for setting in settings)
    queue.run(f"update pgque.queue set {never}")
    assert queue.troubles() == {}
    assert ("pgque.queue.depth", None) in queue.metrics()


def test_installing_again_keeps_what_was_set(queue: Queue, pack_database: Database) -> None:
    override(queue, "lag_warning", "10 minutes")
    queue.run("update {pack}.health_threshold set tick_grace = '7 minutes' where queue_name = '*'")
    pack_database.install(PACK_INSTALL)
    rows = queue.run(
        "select queue_name, tick_grace::text, lag_warning::text from {pack}.health_threshold order by 1"
    )
    assert [tuple(row.values()) for row in rows] == [("*", "00:07:00", None), ("q", None, "00:10:00")]


def test_only_the_administrator_changes_thresholds(queue: Queue) -> None:
    roles = {"pgque_monitor": False, f"{queue.engine}_reader": False, f"{queue.engine}_admin": True}
    for role, allowed in roles.items():
        query = "select has_table_privilege(%s, '{pack}.health_threshold', 'update') as allowed"
        assert queue.run(query, role) == [{"allowed": allowed}], role
