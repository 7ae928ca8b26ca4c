"""Rotation: old events leave by TRUNCATE, but never one that a consumer has still to get."""

from __future__ import annotations

import threading

import psycopg
import pytest

from tests.support.database import Connection, Database, wait_until
from tests.support.queue import (
    ack,
    consume,
    create_queue,
    receive,
    rotate,
    rows,
    send,
    tick,
    value,
)


@pytest.fixture
def db(engine_database: Database) -> Connection:
    connection = engine_database.connect()
    create_queue(connection, "stream", "fast", "slow")
    return connection


def counts(db: Connection) -> list[int]:
    """Rows in each of the queue's event tables."""
    return [int(value(db, f"select count(*) from pgque.event_1_{i}")) for i in range(3)]


def current(db: Connection) -> int:
    return int(value(db, "select queue_cur_table from pgque.queue where queue_name = 'stream'"))


def produce(db: Connection, payload: str) -> None:
    """One event, and enough ticks for all consumers to be able to leave it behind."""
    send(db, "stream", payload)
    tick(db, "stream")


def drain(db: Connection, *consumers: str) -> None:
    """Bring consumers past everything sent, their position included."""
    tick(db, "stream")
    for consumer in consumers:
        consume(db, "stream", consumer)


def test_three_rotations_empty_each_table_in_its_turn(db: Connection) -> None:
    for turn in range(7):
        produce(db, str(turn))
        drain(db, "fast", "slow")
        assert rotate(db, "stream")
        assert current(db) == (turn + 1) % 3
        expected = [0, 0, 0]
        for kept in (turn, turn - 1):
            if kept >= 0:
                expected[kept % 3] = 1
        assert counts(db) == expected


def test_truncate_gives_the_space_back(db: Connection) -> None:
    before = value(db, "select pg_relation_filenode('pgque.event_1_1')")
    drain(db, "fast", "slow")
    assert rotate(db, "stream")
    assert value(db, "select pg_relation_filenode('pgque.event_1_1')") != before
    # ... and the next round reaches the table with rows in it.
    db.execute("select count(pgque.send('stream', repeat('x', 1000))) from generate_series(1, 500)")
    drain(db, "fast", "slow")
    assert value(db, "select pg_relation_size('pgque.event_1_1')") > 500_000
    for _ in range(3):
        assert rotate(db, "stream")
        drain(db, "fast", "slow")
    assert value(db, "select pg_total_relation_size('pgque.event_1_1')") < 50_000


def test_nothing_happens_before_the_period_is_over(db: Connection) -> None:
    drain(db, "fast", "slow")
    assert value(db, "select pgque.maint_rotate_tables_step1('stream')") == 0
    assert value(db, "select pgque.maint()") == 0
    db.execute("update pgque.queue set queue_switch_time = now() - interval '119 minutes'")
    assert value(db, "select pgque.maint()") == 0
    db.execute("update pgque.queue set queue_switch_time = now() - interval '121 minutes'")
    assert value(db, "select pgque.maint()") == 1
    assert current(db) == 1


def test_step_one_waits_for_step_two(db: Connection) -> None:
    drain(db, "fast", "slow")
    db.execute("select pgque.set_queue_config('stream', 'rotation_period', '1 millisecond')")
    assert value(db, "select pgque.maint_rotate_tables_step1('stream')") == 1
    drain(db, "fast", "slow")
    assert value(db, "select pgque.maint_rotate_tables_step1('stream')") == 0
    assert value(db, "select pgque.maint()") == 0
    assert value(db, "select pgque.maint_rotate_tables_step2()") == 1
    assert value(db, "select pgque.maint_rotate_tables_step2()") == 0
    drain(db, "fast", "slow")
    assert value(db, "select pgque.maint_rotate_tables_step1('stream')") == 1


def test_step_two_wants_a_transaction_of_its_own(engine_database: Database, db: Connection) -> None:
    """An id it got earlier may be older than the switch, and would let writers slip through."""
    drain(db, "fast", "slow")
    shared = engine_database.connect(autocommit=False)
    value(shared, "select pg_current_xact_id()::text")
    assert value(shared, "select pgque.maint_rotate_tables_step2()") == 0, "nothing to do is no error"
    db.execute("update pgque.queue set queue_switch_time = now() - interval '3 hours'")
    shared.rollback()

    assert value(db, "select pgque.maint()") == 1
    value(shared, "select pg_current_xact_id()::text")
    with pytest.raises(psycopg.Error, match="a transaction of its own"):
        value(shared, "select pgque.maint_rotate_tables_step2()")
    assert value(db, "select pgque.maint_rotate_tables_step2()") == 1


def test_step_two_leaves_a_switch_alone_that_is_not_committed(
    engine_database: Database, db: Connection
) -> None:
    drain(db, "fast", "slow")
    db.execute("update pgque.queue set queue_switch_time = now() - interval '3 hours'")
    switching = engine_database.connect(autocommit=False)
    assert value(switching, "select pgque.maint()") == 1
    assert value(db, "select pgque.maint_rotate_tables_step2()") == 0
    switching.commit()
    assert value(db, "select pgque.maint_rotate_tables_step2()") == 1


def test_step_two_leaves_a_switch_alone_that_was_committed_while_it_waited(
    engine_database: Database, db: Connection
) -> None:
    """Its transaction id is then from before the switch, though the switch is there to be seen."""
    drain(db, "fast", "slow")
    db.execute("update pgque.queue set queue_switch_time = now() - interval '3 hours'")
    assert value(db, "select pgque.maint()") == 1
    switching = engine_database.connect(autocommit=False)
    switching.execute("update pgque.queue set queue_switch_step1 = pg_current_xact_id()")

    completing = engine_database.connect()
    pid = completing.info.backend_pid
    completed: list[int] = []
    thread = threading.Thread(
        target=lambda: completed.append(value(completing, "select pgque.maint_rotate_tables_step2()"))
    )
    thread.start()
    wait_until(
        lambda: value(db, "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s", pid),
        what="step two waits for the row of the queue",
    )
    switching.commit()
    thread.join()
    assert completed == [0]
    assert value(db, "select pgque.maint_rotate_tables_step2()") == 1


def test_the_slowest_consumer_is_the_brake(db: Connection) -> None:
    drain(db, "fast", "slow")
    assert rotate(db, "stream")
    for name in ("a", "b", "c"):
        produce(db, name)
        drain(db, "fast")
        assert not rotate(db, "stream"), "the slow consumer is still before the last switch"
    assert counts(db) == [0, 3, 0]

    assert consume(db, "stream", "slow") == ["a", "b", "c"]
    assert rotate(db, "stream")
    assert current(db) == 2


def test_an_open_batch_holds_its_events(db: Connection) -> None:
    drain(db, "fast", "slow")
    assert rotate(db, "stream")
    produce(db, "precious")
    opened = receive(db, "stream", "slow")
    drain(db, "fast")
    for _ in range(3):
        rotate(db, "stream")
    assert receive(db, "stream", "slow") == opened
    ack(db, opened[0].batch_id)
    drain(db, "fast", "slow")
    assert rotate(db, "stream")


def test_a_position_without_its_tick_holds_everything(db: Connection) -> None:
    drain(db, "fast", "slow")
    db.execute(
        "update pgque.subscription set sub_last_tick = 999999"
        " where sub_consumer = (select co_id from pgque.consumer where co_name = 'slow')"
    )
    assert not rotate(db, "stream")
    value(db, "select pgque.unsubscribe('stream', 'slow')")
    assert rotate(db, "stream")


def test_an_idle_group_member_holds_nothing(db: Connection) -> None:
    drain(db, "fast", "slow")
    db.execute("update pgque.subscription set sub_role = 'coop_main' where sub_id = 2")
    db.execute("insert into pgque.consumer (co_name) values ('member')")
    db.execute(
        "insert into pgque.subscription (sub_queue, sub_consumer, sub_role, sub_parent)"
        " select 1, co_id, 'coop_member', 2 from pgque.consumer where co_name = 'member'"
    )
    assert rotate(db, "stream")


def test_a_queue_without_consumers_rotates(db: Connection) -> None:
    for consumer in ("fast", "slow"):
        value(db, "select pgque.unsubscribe('stream', %s)", consumer)
    for turn in range(4):
        produce(db, str(turn))
        assert rotate(db, "stream")
    assert sum(counts(db)) == 2


def test_a_transaction_still_open_is_owed_to_a_consumer_that_comes_first(
    engine_database: Database, db: Connection
) -> None:
    """Without consumers nobody is slow, but what an old transaction commits later must not be gone."""
    for consumer in ("fast", "slow"):
        value(db, "select pgque.unsubscribe('stream', %s)", consumer)
    writer = engine_database.connect(autocommit=False)
    send(writer, "stream", "late")
    for _ in range(3):
        rotate(db, "stream")
        tick(db, "stream")
    value(db, "select pgque.subscribe('stream', 'new')")
    writer.commit()
    tick(db, "stream")
    assert consume(db, "stream", "new") == ["late"]


def test_an_event_of_before_the_switch_is_delivered_after_it(
    engine_database: Database, db: Connection
) -> None:
    """The writer looked up the current table, then rotation moved on, then it committed."""
    drain(db, "fast", "slow")
    writer = engine_database.connect(autocommit=False)
    send(writer, "stream", "old table")
    assert rotate(db, "stream")
    send(writer, "stream", "new table")
    tick(db, "stream")
    consume(db, "stream", "slow")
    assert not rotate(db, "stream")
    writer.commit()
    tick(db, "stream")
    assert consume(db, "stream", "slow") == ["old table", "new table"]
    assert counts(db) == [1, 1, 0]


def test_rotation_does_not_wait_for_a_lock(engine_database: Database, db: Connection) -> None:
    drain(db, "fast", "slow")
    reader = engine_database.connect(autocommit=False)
    value(reader, "select count(*) from pgque.event_1_1")
    db.execute("set statement_timeout = '5s'")  # not lock_timeout: that is what "no lock" looks like
    assert not rotate(db, "stream")
    reader.rollback()
    assert rotate(db, "stream")


def test_a_reader_of_a_batch_is_not_in_the_way(engine_database: Database, db: Connection) -> None:
    """It looks at two tables, never at the one that is emptied next."""
    produce(db, "x")
    drain(db, "fast")
    worker = engine_database.connect(autocommit=False)
    messages = receive(worker, "stream", "slow")
    locked = rows(
        db,
        "select distinct relation::regclass::text from pg_locks where pid = %s and relation::regclass::text"
        " ~ 'event_1_.$' order by 1", worker.info.backend_pid,
    )
    assert locked == [("pgque.event_1_0",), ("pgque.event_1_2",)]
    ack(worker, messages[0].batch_id)
    worker.commit()


def test_a_nack_in_progress_does_not_stop_rotation(engine_database: Database, db: Connection) -> None:
    """A consumer at work keeps foreign-key locks on the queue's row; those are no reason to wait."""
    value(db, "select pgque.set_queue_config('stream', 'max_retries', '0')")
    drain(db, "fast", "slow")
    send(db, "stream", "x")
    tick(db, "stream")
    consume(db, "stream", "fast")
    worker = engine_database.connect(autocommit=False)
    value(worker, "select pgque.nack(batch_id, r) from pgque.receive('stream', 'slow') as r")
    assert rotate(db, "stream")
    worker.rollback()


def test_registering_and_rotating_keep_out_of_each_other(engine_database: Database, db: Connection) -> None:
    """A position about to be taken must not lose its tick."""
    for consumer in ("fast", "slow"):
        value(db, "select pgque.unsubscribe('stream', %s)", consumer)
    tick(db, "stream")
    registering = engine_database.connect(autocommit=False)
    registering.execute("select pgque.register_consumer('stream', 'new')")
    produce(db, "x")
    assert not rotate(db, "stream")
    assert tick(db, "stream"), "the ticker isn't held up by it"
    registering.commit()
    assert consume(db, "stream", "new") == ["x"]
    assert rotate(db, "stream")

    rotating = engine_database.connect(autocommit=False)
    drain(db, "new")
    db.execute("update pgque.queue set queue_switch_time = now() - interval '3 hours'")
    assert value(rotating, "select pgque.maint()") == 1
    db.execute("set lock_timeout = '100ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        db.execute("select pgque.register_consumer('stream', 'other')")


def test_ticks_go_when_nobody_needs_them(db: Connection) -> None:
    for name in ("1", "2", "3", "4"):
        produce(db, name)
    consume(db, "stream", "fast")
    batch = receive(db, "stream", "slow")[0].batch_id
    ack(db, batch)
    db.execute("update pgque.queue set queue_switch_step2 = '3'::xid8")  # as if that were long ago
    assert rotate(db, "stream")
    assert rows(db, "select tick_id from pgque.tick order by 1") == [(2,), (3,), (4,), (5,)]
    drain(db, "fast", "slow")
    assert rotate(db, "stream")
    assert rows(db, "select tick_id from pgque.tick order by 1") == [(6,)]


def test_every_tick_kept_is_a_safe_place_to_start(db: Connection) -> None:
    for turn in range(6):
        produce(db, str(turn))
        drain(db, "fast")
        if turn % 2:
            drain(db, "slow")
        rotate(db, "stream")
    kept = [tick_id for (tick_id,) in rows(db, "select tick_id from pgque.tick order by tick_id")]
    value(db, "select pgque.register_consumer_at('stream', 'again', %s)", kept[0])
    everything = consume(db, "stream", "again")
    for start in kept[1:]:
        value(db, "select pgque.register_consumer_at('stream', 'again', %s)", start)
        part = consume(db, "stream", "again")
        assert part == everything[len(everything) - len(part):]
    visible = rows(
        db,
        "select ev_data from pgque.event_1 where not pg_visible_in_snapshot("
        " ev_txid, (select tick_snapshot from pgque.tick where tick_id = %s)) order by ev_id", kept[0],
    )
    assert everything == [payload for (payload,) in visible]


def test_old_snapshots_are_refused(engine_database: Database, db: Connection) -> None:
    old = engine_database.connect(autocommit=False)
    old.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    for call in ("maint_rotate_tables_step1('stream')", "maint_rotate_tables_step2()"):
        with pytest.raises(psycopg.Error, match="read committed"):
            old.execute(f"select pgque.{call}")
        old.rollback()
    with pytest.raises(psycopg.Error, match="queue not found: nowhere"):
        db.execute("select pgque.maint_rotate_tables_step1('nowhere')")
