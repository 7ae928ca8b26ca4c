"""Sending: what goes in, what ids come back, and what is refused."""

from __future__ import annotations

import threading

import psycopg
import pytest

from tests.support.database import Connection, Database, wait_until
from tests.support.queue import (
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
    create_queue(connection, "orders", "app")
    return connection


def stored(db: Connection) -> list[tuple[object, ...]]:
    return rows(db, "select ev_type, ev_data from pgque.event_1 order by ev_id")


def test_a_bare_literal_is_kept_byte_by_byte_and_jsonb_is_made_canonical(db: Connection) -> None:
    db.execute("""select pgque.send('orders', '{"b": 1,  "a": 2}')""")
    db.execute("""select pgque.send('orders', '{"b": 1,  "a": 2}'::jsonb)""")
    db.execute("""select pgque.send('orders', 'made', '<not json>')""")
    db.execute("""select pgque.send('orders', 'made', '[1,2]'::jsonb)""")
    assert stored(db) == [
        ("default", '{"b": 1,  "a": 2}'),
        ("default", '{"a": 2, "b": 1}'),
        ("made", "<not json>"),
        ("made", "[1, 2]"),
    ]


def test_arguments_can_be_named(db: Connection) -> None:
    db.execute("select pgque.send(queue_name := 'orders', type_name := 't', payload := 'p'::text)")
    db.execute("select pgque.send_batch(queue_name := 'orders', type_name := 't', payloads := array['q'])")
    assert stored(db) == [("t", "p"), ("t", "q")]


def test_insert_event_carries_the_extra_fields(db: Connection) -> None:
    value(db, "select pgque.insert_event('orders', 't', 'd', 'a', 'b', 'c', null)")
    tick(db, "orders")
    [extras] = rows(db, "select extra1, extra2, extra3, extra4 from pgque.receive('orders', 'app')")
    assert extras == ("a", "b", "c", None)


@pytest.mark.parametrize("kind", ["text", "jsonb"])
def test_batch_ids_belong_to_the_payload_at_the_same_place(db: Connection, kind: str) -> None:
    payloads = [str(i * 7 % 500) for i in range(500)]
    ids = value(db, f"select pgque.send_batch('orders', 'bulk', %s::{kind}[])", payloads)
    assert len(set(ids)) == 500
    assert dict(rows(db, "select ev_id, ev_data from pgque.event_1")) == dict(zip(ids, payloads, strict=True))


def test_batches_with_nothing_in_them(db: Connection) -> None:
    assert value(db, "select pgque.send_batch('orders', array['a', null, 'c'])") == [1, 2, 3]
    assert stored(db) == [("default", "a"), ("default", None), ("default", "c")]
    # An empty batch doesn't even look whether there is such a queue.
    assert value(db, "select pgque.send_batch('no such queue', '{}'::text[])") == []
    assert value(db, "select pgque.send_batch('no such queue', 't', '{}'::jsonb[])") == []
    for kind in ("text", "jsonb"):
        with pytest.raises(psycopg.Error, match="payloads must not be null"):
            db.execute(f"select pgque.send_batch('orders', null::{kind}[])")


@pytest.mark.parametrize(
    "call",
    [
        "send(%s, 'p')",
        "send(%s, 't', '1'::jsonb)",
        "send_batch(%s, array['p'])",
        "insert_event(%s, 't', 'd')",
    ],
)
def test_sending_is_refused_without_a_queue_or_when_switched_off(db: Connection, call: str) -> None:
    with pytest.raises(psycopg.Error, match="queue not found: nowhere"):
        db.execute(f"select pgque.{call}", ("nowhere",))
    db.execute("update pgque.queue set queue_disable_insert = true")
    with pytest.raises(psycopg.Error, match="Insert into queue disallowed"):
        db.execute(f"select pgque.{call}", ("orders",))
    assert stored(db) == []


def test_a_rolled_back_event_never_was(db: Connection) -> None:
    with db.transaction(force_rollback=True):
        send(db, "orders", "gone")
    send(db, "orders", "kept")
    tick(db, "orders")
    assert consume(db, "orders", "app") == ["kept"]


@pytest.mark.parametrize(
    "level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE]
)
@pytest.mark.parametrize("call", ["send('orders', 'x')", "send_batch('orders', array['x'])"])
def test_an_old_snapshot_can_not_write_behind_a_rotation(
    engine_database: Database, db: Connection, level: psycopg.IsolationLevel, call: str
) -> None:
    """It would write into the table that its snapshot takes for current: nobody reads that any more."""
    writer = engine_database.connect(autocommit=False)
    writer.isolation_level = level
    value(writer, f"select pgque.{call}")
    writer.commit()  # without a rotation in between there is nothing against it

    rows(writer, "select count(*) from pgque.queue")  # takes the snapshot
    tick(db, "orders")
    assert consume(db, "orders", "app") == ["x"]
    assert rotate(db, "orders")
    with pytest.raises(psycopg.errors.SerializationFailure, match="rotated"):
        writer.execute(f"select pgque.{call}")
    writer.rollback()

    value(writer, f"select pgque.{call}")
    writer.commit()
    tick(db, "orders")
    assert [message.payload for message in receive(db, "orders", "app")] == ["x"]


@pytest.mark.parametrize(
    "call",
    [
        "send('orders', 'x')",
        "insert_event('orders', 't', 'x')",
        "send_batch('orders', array['x'])",
        "maint_retry_events()",
    ],
)
def test_a_writer_has_its_transaction_id_before_it_looks_up_the_queue(
    engine_database: Database, db: Connection, call: str
) -> None:
    """Rotation counts on it: an id above the one that step two notes means the new table."""
    writer = engine_database.connect()
    pid = writer.info.backend_pid
    door = engine_database.connect(autocommit=False)
    door.execute("lock table pgque.queue in access exclusive mode")
    thread = threading.Thread(target=lambda: value(writer, f"select pgque.{call}"))
    thread.start()
    try:
        wait_until(
            lambda: value(db, "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s", pid),
            what="the writer stands before the table of queues",
        )
        assert value(db, "select backend_xid is not null from pg_stat_activity where pid = %s", pid)
    finally:
        door.rollback()
        thread.join()
