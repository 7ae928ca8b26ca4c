"""The stories that the engine's specification tells, one test each."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.database import Database
from tests.support.queue import ack, create_queue, nack, receive, rows, send, tick, value


def test_us1_a_message_is_sent_received_and_acknowledged(engine_database: Database) -> None:
    db = engine_database.connect()
    create_queue(db, "orders", "app")
    send(db, "orders", '{"id":1}')
    tick(db, "orders")

    [message] = receive(db, "orders", "app", 10)
    assert (message.payload, message.type, message.retry_count) == ('{"id":1}', "default", None)
    assert ack(db, message.batch_id) == 1
    assert receive(db, "orders", "app", 10) == []


def test_us2_every_consumer_gets_every_event_at_its_own_pace(engine_database: Database) -> None:
    db = engine_database.connect()
    create_queue(db, "events", "analytics", "notifier", "audit")
    sent = send(db, "events", "1", "2", "3", "4", "5")
    tick(db, "events")

    batches = {name: receive(db, "events", name) for name in ("analytics", "notifier", "audit")}
    assert [[m.id for m in batch] for batch in batches.values()] == [sent] * 3
    assert len({batch[0].batch_id for batch in batches.values()}) == 3

    ack(db, batches["analytics"][0].batch_id)
    assert receive(db, "events", "analytics") == []
    assert receive(db, "events", "notifier") == batches["notifier"]
    positions = rows(db, "select consumer_name, last_tick from pgque.get_consumer_info('events')")
    assert positions == [("analytics", 2), ("audit", 1), ("notifier", 1)]


def test_us3_a_failing_message_is_retried_then_dead_then_replayed(engine_database: Database) -> None:
    db = engine_database.connect()
    create_queue(db, "jobs", "worker")
    value(db, "select pgque.set_queue_config('jobs', 'max_retries', '2')")
    [sent] = send(db, "jobs", "work")
    tick(db, "jobs")

    for retries in (None, 1, 2):
        [message] = receive(db, "jobs", "worker")
        assert (message.id, message.payload, message.retry_count) == (sent, "work", retries)
        nack(db, message, reason="upstream is down")
        ack(db, message.batch_id)
        moved = value(db, "select pgque.maint_retry_events()")
        assert moved == (0 if retries == 2 else 1)
        tick(db, "jobs")

    assert receive(db, "jobs", "worker") == []
    [(dead, reason)] = rows(db, "select dl_id, dl_reason from pgque.dlq_inspect('jobs')")
    assert reason == "upstream is down"

    replayed = value(db, "select pgque.dlq_replay(%s)", dead)
    tick(db, "jobs")
    [message] = receive(db, "jobs", "worker")
    assert (message.id, message.payload, message.retry_count) == (replayed, "work", None)
    assert rows(db, "select from pgque.dlq_inspect('jobs')") == []


def test_us5_ten_thousand_events_arrive_in_one_batch(engine_database: Database) -> None:
    db = engine_database.connect()
    create_queue(db, "ingest", "etl")
    db.execute("select count(pgque.send('ingest', i::text)) from generate_series(1, 10000) as i")
    tick(db, "ingest")

    messages = receive(db, "ingest", "etl", 10_000)
    assert [message.payload for message in messages] == [str(i) for i in range(1, 10_001)]
    assert len({message.batch_id for message in messages}) == 1
    assert ack(db, messages[0].batch_id) == 1
    assert receive(db, "ingest", "etl") == []

    db.execute("select pg_stat_force_next_flush()")
    dead = value(db, "select sum(n_dead_tup) from pg_stat_user_tables where relname like 'event_1%%'")
    assert dead == 0


def test_us7_work_and_acknowledgement_share_one_fate(engine_database: Database) -> None:
    db = engine_database.connect()
    create_queue(db, "payments", "processor")
    db.execute("create table processed_payments (id int primary key)")

    def process(connection: psycopg.Connection[tuple[object, ...]]) -> int:
        [message] = receive(connection, "payments", "processor")
        connection.execute("insert into processed_payments values (%s::int)", (message.payload,))
        ack(connection, message.batch_id)
        return message.id

    send(db, "payments", "42")
    tick(db, "payments")
    with db.transaction():
        process(db)
    assert rows(db, "select id from processed_payments") == [(42,)]
    assert receive(db, "payments", "processor") == []

    [sent] = send(db, "payments", "43")
    tick(db, "payments")
    doomed = engine_database.connect(autocommit=False)
    process(doomed)
    pid = doomed.info.backend_pid
    value(db, "select pg_terminate_backend(%s, 10000)", pid)
    with pytest.raises(psycopg.OperationalError):
        doomed.commit()

    assert rows(db, "select id from processed_payments") == [(42,)]
    assert [message.id for message in receive(db, "payments", "processor")] == [sent]
