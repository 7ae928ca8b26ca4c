"""Both truths of the backlog: the cheap one that every poll shows, and the exact one when a person asks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest
from psycopg.rows import dict_row

from tests.support.database import Database
from tests.support.observed import Connection, Queue, Row

ZERO = timedelta(0)


def exact(queue: Queue, consumer: str, **limit: int) -> Row:
    """The row of exact_backlog() for one consumer."""
    (row,) = queue.ask(f"exact_backlog('{queue.name}', '{consumer}', {limit.get('max_events', 100_000)})")
    assert row["consumer_name"] == consumer
    return row


def shown(queue: Queue, consumer: str) -> tuple[int, timedelta]:
    """What a poll shows of a consumer: pending events and lag."""
    row = queue.consumer(consumer)
    return row["pending_events"], row["lag"]


def test_a_forced_tick_is_no_backlog(queue: Queue) -> None:
    queue.subscribe("app")
    queue.force_tick()
    assert shown(queue, "app") == (0, ZERO)
    assert queue.tick() is not None

    assert shown(queue, "app") == (0, ZERO)
    assert queue.stats()["depth"] == 0
    queue.wait(8000)
    queue.tick()
    assert queue.troubles().keys() & {"consumer_lag:app", "consumer_stuck:app"} == set()


def test_rolled_back_events_are_no_backlog_before_and_after_their_tick(queue: Queue) -> None:
    queue.subscribe("app")
    with queue.db.transaction(force_rollback=True):
        queue.send(5000)
    assert shown(queue, "app") == (0, ZERO)
    assert queue.stats()["depth"] == 0
    assert queue.tick() is not None
    assert shown(queue, "app") == (0, ZERO)
    assert queue.metrics()[("pgque.queue.unticked_events", None)] == 0


def test_a_retried_event_is_pending_for_its_owner_alone(queue: Queue) -> None:
    queue.subscribe("app")
    queue.subscribe("other")
    queue.send_and_tick(40)
    messages = queue.receive("app")
    for message in messages[:30]:
        queue.nack("app", message)
    queue.finish(messages)
    queue.consume("other")
    queue.wait(4000)
    assert queue.bring_back_retries() == 30

    assert shown(queue, "other")[0] == 0
    assert shown(queue, "app")[0] == 30
    assert queue.tick() is not None
    assert shown(queue, "other") == (0, ZERO)
    assert shown(queue, "app")[0] == 30
    assert exact(queue, "app")["pending_events"] == 30
    assert exact(queue, "other")["pending_events"] == 0
    assert queue.consume("app") == 30


def test_an_event_committed_late_is_pending_though_its_number_is_old(
    queue: Queue, pack_database: Database
) -> None:
    queue.subscribe("app")
    with psycopg.connect(pack_database.dsn(), row_factory=dict_row) as writer:
        replace(queue, db=writer).send(3)
        queue.send_and_tick(1)
        assert queue.consume("app") == 1
        assert shown(queue, "app")[0] == 0
        writer.commit()
    assert shown(queue, "app")[0] == 3
    assert exact(queue, "app").items() >= {"pending_events": 0, "unticked_events": 3}.items()
    queue.send_and_tick(1)
    assert shown(queue, "app")[0] == 4
    assert exact(queue, "app").items() >= {"pending_events": 4, "unticked_events": 0}.items()


def test_an_event_committed_late_ages_while_the_queue_ticks_idly(
    queue: Queue, pack_database: Database
) -> None:
    queue.subscribe("app")
    with psycopg.connect(pack_database.dsn(), row_factory=dict_row) as writer:
        Queue(writer, "q").send(3)
        queue.send_and_tick(1)
        assert queue.consume("app") == 1
        writer.commit()
    for _ in range(5):
        queue.wait(2000)
        assert queue.tick() is not None

    pending, lag = shown(queue, "app")
    assert pending == 3
    assert lag >= timedelta(seconds=10_000)
    assert queue.troubles()["consumer_lag:app"] == "critical"


def test_an_event_sequence_set_back_hides_no_backlog(queue: Queue) -> None:
    queue.subscribe("app")
    queue.send_and_tick(50)
    assert queue.consume("app") == 50
    queue.db.execute("select setval(queue_event_seq::regclass, 1) from pgque.queue")
    queue.send(4)
    assert shown(queue, "app")[0] == 4
    assert queue.metrics()[("pgque.queue.unticked_events", None)] == 4
    queue.wait(61)
    assert queue.tick() is not None
    assert shown(queue, "app")[0] == 4
    assert queue.consume("app") == 4


def test_what_a_member_has_finished_is_no_backlog_of_its_group(queue: Queue) -> None:
    for name in ("group", "group.a", "group.b", "group.c"):
        queue.subscribe(name)
    for count in (6, 30, 10):
        queue.send_and_tick(count)
    first, second, third = queue.db.execute(
        "select tick_id from pgque.tick order by tick_id limit 3"
    ).fetchall()
    # b took the second batch and has finished it; a still holds the first.
    queue.db.execute(
        "update pgque.subscription set sub_role = 'coop_main', sub_last_tick = %s"
        " where sub_id = (select min(sub_id) from pgque.subscription)",
        (third["tick_id"],),
    )
    queue.db.execute(
        "update pgque.subscription set sub_role = 'coop_member', sub_last_tick = null,"
        " sub_parent = (select min(sub_id) from pgque.subscription) where sub_role = 'normal'"
    )
    queue.db.execute(
        "update pgque.subscription set sub_batch = 1, sub_last_tick = %s, sub_next_tick = %s"
        " where sub_id = (select min(sub_id) from pgque.subscription where sub_role = 'coop_member')",
        (first["tick_id"], second["tick_id"]),
    )
    # c is idle, and what it failed on once comes again.
    queue.db.execute(
        "select pgque.insert_event_raw('q', null, null, max(sub_id), 1, 'x', null, null, null, null, null)"
        " from pgque.subscription"
    )

    assert shown(queue, "group")[0] == 6 + 10 + 1
    assert exact(queue, "group").items() >= {"pending_events": 16, "unticked_events": 1}.items()


def test_a_large_backlog_is_bounded_by_the_sequence_and_exact_when_asked(queue: Queue) -> None:
    queue.subscribe("app")
    with queue.db.transaction(force_rollback=True):
        queue.send(500)
    queue.send_and_tick(1200)
    queue.send(7)

    assert shown(queue, "app")[0] == 1707
    assert exact(queue, "app") == {
        "consumer_name": "app",
        "pending_events": 1200,
        "unticked_events": 7,
        "is_capped": False,
    }
    assert exact(queue, "app", max_events=1000).items() >= {"pending_events": 1000, "is_capped": True}.items()


def test_a_locked_event_table_holds_up_no_poll(queue: Queue, pack_database: Database) -> None:
    queue.subscribe("app")
    queue.send_and_tick(5)
    (row,) = queue.run("select queue_data_pfx || '_0' as name from {engine}.queue where queue_name = 'q'")
    migration = pack_database.connect(autocommit=False)
    migration.execute(f"lock table {row['name']} in access exclusive mode".encode())
    queue.run("set statement_timeout = '20 s'")
    assert shown(queue, "app")[0] == 5
    assert exact(queue, "app")["pending_events"] is None


def test_exact_backlog_of_a_lost_position_is_unknown(queue: Queue) -> None:
    queue.subscribe("app")
    queue.subscribe("other")
    queue.send_and_tick(5)
    queue.consume("other")
    queue.run(
        "delete from {engine}.tick where tick_id = (select min(sub_last_tick) from {engine}.subscription)"
    )
    assert exact(queue, "app").items() >= {"pending_events": None, "unticked_events": None}.items()
    rows = queue.ask("exact_backlog('q')")
    assert [(row["consumer_name"], row["pending_events"]) for row in rows] == [("app", None), ("other", 0)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("'nope'", "queue not found: nope"),
        ("'q', 'nobody'", "not subscriber to queue: q/nobody"),
        ("'q', null, 0", "max_events must be between 1 and 1000000, not 0"),
        ("'q', null, null", "max_events must be between 1 and 1000000, not null"),
    ],
)
def test_bad_arguments_get_a_clear_error(queue: Queue, call: str, message: str) -> None:
    with pytest.raises(psycopg.Error, match=message):
        queue.ask(f"exact_backlog({call})")


def test_the_monitor_may_ask_for_the_exact_backlog(queue: Queue, pack_database: Database) -> None:
    queue.subscribe("app")
    queue.send_and_tick(3)
    db: Connection = queue.db
    db.execute("create role watcher_of_backlog login in role pgque_monitor")
    try:
        with psycopg.connect(pack_database.dsn(user="watcher_of_backlog"), row_factory=dict_row) as monitor:
            (row,) = replace(queue, db=monitor).ask("exact_backlog('q', 'app')")
        assert row["pending_events"] == 3
    finally:
        db.execute("drop role watcher_of_backlog")
