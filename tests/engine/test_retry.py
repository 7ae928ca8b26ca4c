"""Retries and dead letters."""

from __future__ import annotations

import threading
from collections import Counter

import psycopg
import pytest

from tests.support.database import Connection, Database
from tests.support.queue import (
    Message,
    ack,
    consume,
    create_queue,
    nack,
    receive,
    rows,
    send,
    tick,
    value,
)


@pytest.fixture
def db(engine_database: Database) -> Connection:
    connection = engine_database.connect()
    create_queue(connection, "jobs", "worker", "other")
    return connection


def fail(db: Connection, payload: str, *, after: str = "0 seconds") -> Message:
    """Send one job, have `worker` fail on it, acknowledge the batch."""
    send(db, "jobs", payload)
    tick(db, "jobs")
    [message] = receive(db, "jobs", "worker")
    assert nack(db, message, after=after) == 1
    ack(db, message.batch_id)
    return message


def test_a_retry_keeps_its_identity_and_comes_to_its_owner_only(db: Connection) -> None:
    before = fail(db, "job")
    created = value(db, "select ev_time from pgque.event_1")
    assert consume(db, "jobs", "other") == ["job"]
    assert value(db, "select pgque.maint_retry_events()") == 1
    tick(db, "jobs")

    [again] = rows(db, "select msg_id, payload, retry_count, created_at from pgque.receive('jobs', 'worker')")
    assert again == (before.id, "job", 1, created)
    assert consume(db, "jobs", "other") == []


def test_a_retry_waits_until_it_is_due(db: Connection) -> None:
    fail(db, "job", after="1 hour")
    assert value(db, "select pgque.maint_retry_events()") == 0
    due_in = value(db, "select ev_retry_after - now() from pgque.retry_queue")
    assert 3500 < due_in.total_seconds() <= 3600
    db.execute("update pgque.retry_queue set ev_retry_after = now()")
    assert value(db, "select pgque.maint_retry_events()") == 1
    assert value(db, "select count(*) from pgque.retry_queue") == 0


def test_a_moved_retry_makes_the_ticker_tick(db: Connection) -> None:
    """The retry has its old id; the ticker sees by the sequence that something came."""
    fail(db, "job")
    before = value(db, "select last_value from pgque.event_1_id_seq")
    assert value(db, "select pgque.maint_retry_events()") == 1
    assert value(db, "select last_value from pgque.event_1_id_seq") == before + 1
    value(db, "select pgque.set_queue_config('jobs', 'ticker_max_count', '1')")
    assert value(db, "select pgque.ticker()") == 1
    assert consume(db, "jobs", "worker") == ["job"]


def test_one_event_is_put_aside_once(db: Connection) -> None:
    send(db, "jobs", "1", "2")
    tick(db, "jobs")
    first, second = receive(db, "jobs", "worker")
    batch = first.batch_id
    assert value(db, "select pgque.event_retry(%s, %s, 60)", batch, first.id) == 1
    assert value(db, "select pgque.event_retry(%s, %s, now())", batch, first.id) == 0
    assert nack(db, first) == 1
    assert value(db, "select pgque.batch_retry(%s, 0)", batch) == 1
    waiting = rows(db, "select ev_id, ev_retry from pgque.retry_queue order by ev_id")
    assert waiting == [(first.id, 1), (second.id, 1)]


def test_nack_looks_the_message_up_and_believes_nothing_else(db: Connection) -> None:
    send(db, "jobs", "job")
    tick(db, "jobs")
    [message] = receive(db, "jobs", "worker")
    lie = "row(%s, 999, 'forged', 'forged', 99, now(), 'f', 'f', 'f', 'f')::pgque.message"
    value(db, f"select pgque.nack(%s, {lie})", message.batch_id, message.id)
    assert rows(db, "select ev_data, ev_type, ev_retry, ev_extra1 from pgque.retry_queue") == [
        ("job", "default", 1, None)
    ]
    assert rows(db, "select from pgque.dead_letter") == []


def test_nack_refuses_what_is_not_in_the_batch(db: Connection) -> None:
    first = fail(db, "first")
    send(db, "jobs", "second")
    tick(db, "jobs")
    [second] = receive(db, "jobs", "worker")
    for msg_id, shown in ((first.id, str(first.id)), (4711, "4711"), (None, "<NULL>")):
        stray = Message(msg_id, second.batch_id, "", None, None)  # type: ignore[arg-type]
        with pytest.raises(psycopg.Error, match=f"msg_id {shown} not found in batch {second.batch_id}"):
            nack(db, stray)
    with pytest.raises(psycopg.Error, match=f"batch not found: {first.batch_id}"):
        nack(db, first)
    with pytest.raises(psycopg.Error, match="not found in batch"):
        value(db, "select pgque.event_retry(%s, %s, 1)", second.batch_id, first.id)


def test_the_default_is_a_minute_and_five_retries(db: Connection) -> None:
    send(db, "jobs", "job")
    tick(db, "jobs")
    value(db, "select pgque.nack(batch_id, r) from pgque.receive('jobs', 'worker') as r")
    assert value(db, "select ev_retry_after - now() between '58s' and '60s' from pgque.retry_queue")

    deliveries = 0
    while rows(db, "select from pgque.dead_letter") == []:
        for message in receive(db, "jobs", "worker"):
            deliveries += 1
            nack(db, message)
            ack(db, message.batch_id)
        db.execute("update pgque.retry_queue set ev_retry_after = now()")
        value(db, "select pgque.maint_retry_events()")
        tick(db, "jobs")
    assert deliveries == 6
    assert rows(db, "select ev_retry, dl_reason from pgque.dead_letter") == [(5, "max retries exceeded")]


def test_a_dead_letter_is_written_once_and_holds_the_whole_event(db: Connection) -> None:
    value(db, "select pgque.set_queue_config('jobs', 'max_retries', '0')")
    value(db, "select pgque.insert_event('jobs', 'kind', 'data', 'a', 'b', 'c', 'd')")
    tick(db, "jobs")
    [message] = receive(db, "jobs", "worker")
    assert [nack(db, message, reason=reason) for reason in ("first", "second")] == [1, 1]
    dead = rows(
        db,
        "select dl_reason, ev_id, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4,"
        " ev_time = (select ev_time from pgque.event_1), ev_txid = (select ev_txid from pgque.event_1)"
        " from pgque.dlq_inspect('jobs')",
    )
    assert dead == [("first", message.id, None, "kind", "data", "a", "b", "c", "d", True, True)]
    assert rows(db, "select from pgque.retry_queue") == []

    # The other consumer's failure on the same event is its own.
    [theirs] = receive(db, "jobs", "other")
    nack(db, theirs, reason="third")
    names = rows(
        db, "select co_name, dl_reason from pgque.dead_letter join pgque.consumer on co_id = dl_consumer_id"
            " order by dl_id",
    )
    assert names == [("worker", "first"), ("other", "third")]


def make_dead(db: Connection, *payloads: str) -> None:
    value(db, "select pgque.set_queue_config('jobs', 'max_retries', '0')")
    send(db, "jobs", *payloads)
    tick(db, "jobs")
    messages = receive(db, "jobs", "worker")
    for message in messages:
        nack(db, message)
    ack(db, messages[0].batch_id)
    assert consume(db, "jobs", "other") == list(payloads)


def test_dead_letters_are_listed_newest_first_up_to_a_limit(db: Connection) -> None:
    make_dead(db, "1", "2", "3")
    assert rows(db, "select ev_data from pgque.dlq_inspect('jobs', 2)") == [("3",), ("2",)]
    assert len(rows(db, "select from pgque.dlq_inspect('jobs')")) == 3
    for call in ("dlq_inspect('nowhere')", "dlq_replay_all('nowhere')", "dlq_purge('nowhere')"):
        with pytest.raises(psycopg.Error, match="queue not found: nowhere"):
            db.execute(f"select pgque.{call}")


def test_a_replayed_dead_letter_comes_to_everybody_as_a_new_event(db: Connection) -> None:
    make_dead(db, "1", "2")
    old = [dead for (dead,) in rows(db, "select dl_id from pgque.dead_letter order by dl_id")]
    new_id = value(db, "select pgque.dlq_replay(%s)", old[0])
    assert new_id > 2
    with pytest.raises(psycopg.Error, match=f"dead letter not found: {old[0]}"):
        db.execute("select pgque.dlq_replay(%s)", (old[0],))
    tick(db, "jobs")
    assert consume(db, "jobs", "worker") == consume(db, "jobs", "other") == ["1"]


def test_replaying_all_goes_on_past_a_bad_one(db: Connection) -> None:
    make_dead(db, "1", "2", "3")
    db.execute("alter table pgque.event_1_0 add constraint no_twos check (ev_data <> '2') not valid")
    warnings: list[str] = []
    db.add_notice_handler(lambda notice: warnings.append(str(notice.message_primary)))
    [(replayed, failed, error)] = rows(db, "select * from pgque.dlq_replay_all('jobs')")
    assert (replayed, failed) == (2, 1)
    assert "no_twos" in error
    assert len(warnings) == 1
    assert rows(db, "select ev_data from pgque.dlq_inspect('jobs')") == [("2",)]
    tick(db, "jobs")
    assert consume(db, "jobs", "worker") == ["1", "3"]


def test_purging_deletes_the_old_ones(db: Connection) -> None:
    make_dead(db, "old", "new")
    db.execute("update pgque.dead_letter set dl_time = now() - interval '31 days' where ev_data = 'old'")
    assert value(db, "select pgque.dlq_purge('jobs')") == 1
    assert rows(db, "select ev_data from pgque.dead_letter") == [("new",)]
    assert value(db, "select pgque.dlq_purge('jobs', '0 seconds')") == 1


def test_a_call_moves_a_bounded_number_of_retries(db: Connection) -> None:
    create_queue(db, "more", "worker")
    for queue in ("jobs", "more"):
        db.execute(
            "select count(pgque.send(%s, i::text)) from generate_series(1, 6000) as i", (queue,)
        )
        tick(db, queue)
        batch = receive(db, queue, "worker", 1)[0].batch_id
        assert value(db, "select pgque.batch_retry(%s, 0)", batch) == 6000
        ack(db, batch)
    assert [value(db, "select pgque.maint_retry_events()") for _ in range(3)] == [10_000, 2_000, 0]
    for queue in ("jobs", "more"):
        tick(db, queue)
        assert len(consume(db, queue, "worker")) == 6000


def test_many_movers_at_once_move_each_retry_once(engine_database: Database, db: Connection) -> None:
    db.execute("select count(pgque.send('jobs', i::text)) from generate_series(1, 25000) as i")
    tick(db, "jobs")
    batch = receive(db, "jobs", "worker", 1)[0].batch_id
    assert value(db, "select pgque.batch_retry(%s, 0)", batch) == 25_000
    ack(db, batch)

    # A mover that holds its part must neither stop the others nor share it with them.
    holder = engine_database.connect(autocommit=False)
    assert value(holder, "select pgque.maint_retry_events()") == 10_000

    moved: list[int] = []

    def move() -> None:
        connection = engine_database.connect()
        connection.execute("set lock_timeout = '10s'")
        while count := value(connection, "select pgque.maint_retry_events()"):
            moved.append(count)

    threads = [threading.Thread(target=move) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(moved) == 15_000
    holder.commit()

    tick(db, "jobs")
    counts = Counter(consume(db, "jobs", "worker"))
    assert len(counts) == 25_000
    assert set(counts.values()) == {1}


def test_unregistering_waits_for_a_nack_in_progress(engine_database: Database, db: Connection) -> None:
    """Or the retry would stay behind with nobody to own it."""
    send(db, "jobs", "job")
    tick(db, "jobs")
    [message] = receive(db, "jobs", "worker")
    working = engine_database.connect(autocommit=False)
    nack(working, message)
    db.execute("set lock_timeout = '100ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        value(db, "select pgque.unregister_consumer('jobs', 'worker')")
    working.commit()
    assert value(db, "select pgque.unregister_consumer('jobs', 'worker')") == 1
    assert rows(db, "select from pgque.retry_queue") == []
