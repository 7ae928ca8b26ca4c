"""Messages for later, and messages that are too old."""

from __future__ import annotations

import threading

import psycopg
import pytest

from tests.support.database import Connection, Database
from tests.support.queue import ack, consume, create_queue, nack, receive, rotate, rows, send, tick, value


@pytest.fixture
def db(engine_database: Database) -> Connection:
    connection = engine_database.connect()
    create_queue(connection, "orders", "app")
    return connection


def send_at(db: Connection, payload: str, offset: str, queue: str = "orders") -> int:
    return int(value(
        db, "select pgque.send_at(%s, 'kind', %s::jsonb, now() + %s::interval)", queue, payload, offset
    ))


def make_due(db: Connection) -> None:
    db.execute("update pgque.delayed_events set de_deliver_at = de_deliver_at - interval '1 day'")


# --- delayed delivery -----------------------------------------------------------------------------


def test_a_message_for_later_is_no_event_until_it_is_due(db: Connection) -> None:
    assert send_at(db, '{"n": 2}', "2 hours") == 1
    assert send_at(db, '{"n": 1}', "1 hour") == 2
    assert value(db, "select pgque.maint_deliver_delayed()") == 0
    assert rows(db, "select from pgque.event_1") == []

    make_due(db)
    assert value(db, "select pgque.maint()") == 2
    assert rows(db, "select from pgque.delayed_events") == []
    tick(db, "orders")
    messages = receive(db, "orders", "app")
    assert [(m.type, m.payload) for m in messages] == [("kind", '{"n": 1}'), ("kind", '{"n": 2}')]
    assert value(db, "select max(now() - ev_time) < interval '1 minute' from pgque.event_1")


@pytest.mark.parametrize("offset", ["0", "-1 hour"])
def test_a_message_for_now_is_an_event_at_once(db: Connection, offset: str) -> None:
    sent = send_at(db, '{"b":1, "a":2}', offset)
    assert rows(db, "select ev_id, ev_type, ev_data from pgque.event_1") == [
        (sent, "kind", '{"a": 2, "b": 1}')
    ]
    assert rows(db, "select from pgque.delayed_events") == []


def test_delivered_messages_make_the_ticker_tick(db: Connection) -> None:
    value(db, "select pgque.set_queue_config('orders', 'ticker_max_count', '1')")
    send_at(db, "1", "1 hour")
    assert value(db, "select pgque.ticker()") == 0
    make_due(db)
    value(db, "select pgque.maint()")
    assert value(db, "select pgque.ticker()") == 1
    assert consume(db, "orders", "app") == ["1"]


def test_a_message_for_later_is_gone_with_its_transaction_and_with_its_queue(db: Connection) -> None:
    with db.transaction(force_rollback=True):
        send_at(db, "1", "1 hour")
    assert rows(db, "select from pgque.delayed_events") == []
    send_at(db, "2", "1 hour")
    create_queue(db, "other")
    send_at(db, "3", "1 hour", "other")
    value(db, "select pgque.drop_queue('orders', true)")
    assert rows(db, "select de_queue_name from pgque.delayed_events") == [("other",)]


def test_a_message_for_later_is_checked_at_once(db: Connection) -> None:
    for offset in ("1 hour", "-1 hour"):
        with pytest.raises(psycopg.Error, match="queue not found: nowhere"):
            send_at(db, "1", offset, "nowhere")
    with pytest.raises(psycopg.Error, match="deliver_at must not be null"):
        db.execute("select pgque.send_at('orders', 'kind', '1', null)")


def test_a_queue_that_can_not_take_its_messages_keeps_them_and_stops_nobody(db: Connection) -> None:
    for queue in ("broken", "closed"):
        create_queue(db, queue)
    for queue in ("broken", "closed", "orders"):
        send_at(db, "1", "1 hour", queue)
    db.execute("alter table pgque.event_2_0 add constraint no_ones check (ev_data <> '1')")
    db.execute("update pgque.queue set queue_disable_insert = true where queue_name = 'closed'")
    make_due(db)
    warnings: list[str] = []
    db.add_notice_handler(lambda notice: warnings.append(str(notice.message_primary)))
    assert value(db, "select pgque.maint()") == 1
    assert len(warnings) == 1
    assert "queue broken were not delivered" in warnings[0]
    assert rows(db, "select de_queue_name from pgque.delayed_events order by 1") == [("broken",), ("closed",)]


def test_messages_delivered_by_two_at_once_come_once(engine_database: Database, db: Connection) -> None:
    db.execute(
        "select count(pgque.send_at('orders', 't', to_jsonb(i), now() + '1 hour'))"
        " from generate_series(1, 2000) i"
    )
    make_due(db)
    moved: list[int] = []

    def deliver(connection: Connection) -> None:
        moved.append(value(connection, "select pgque.maint_deliver_delayed()"))

    threads = [threading.Thread(target=deliver, args=(engine_database.connect(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(moved) == 2000
    tick(db, "orders")
    assert sorted(map(int, map(str, consume(db, "orders", "app")))) == list(range(1, 2001))


def test_a_delivery_and_a_rotation_share_maint(db: Connection) -> None:
    """The event goes into the table that the rotation of the same transaction has just made current."""
    value(db, "select pgque.set_queue_config('orders', 'rotation_period', '1 microsecond')")
    tick(db, "orders")
    consume(db, "orders", "app")
    expected = []
    done = 0
    for number in range(8):
        send_at(db, str(number), "1 hour")
        make_due(db)
        done += value(db, "select pgque.maint()")
        value(db, "select pgque.maint_rotate_tables_step2()")
        tick(db, "orders")
        expected += consume(db, "orders", "app")
    assert expected == [str(number) for number in range(8)]
    assert done > 8  # some of it rotations


# --- events that outlive their use ----------------------------------------------------------------


def age(db: Connection, payload: str, by: str) -> None:
    db.execute("update pgque.event_1 set ev_time = ev_time - %s::interval where ev_data = %s", (by, payload))


@pytest.fixture
def short_lived(db: Connection) -> Connection:
    value(db, "select pgque.set_queue_config('orders', 'event_ttl', '1 hour')")
    return db


def test_events_too_old_are_left_out_by_every_way_of_reading(short_lived: Connection) -> None:
    db = short_lived
    send(db, "orders", "old", "new")
    tick(db, "orders")
    age(db, "old", "61 minutes")
    batch = value(db, "select pgque.next_batch('orders', 'app')")
    assert rows(db, "select ev_data from pgque.get_batch_events(%s)", batch) == [("new",)]
    assert [m.payload for m in receive(db, "orders", "app")] == ["new"]
    with db.transaction():
        cursor = rows(db, "select ev_data from pgque.get_batch_cursor(%s, 'c', 10)", batch)
    assert cursor == [("new",)]
    value(db, "select pgque.register_subconsumer('orders', 'group', 'a')")
    assert value(db, "select pgque.set_queue_config('orders', 'event_ttl', null)") == 1
    assert [m.payload for m in receive(db, "orders", "app")] == ["old", "new"]


def test_a_batch_of_nothing_but_old_events_is_passed_over(short_lived: Connection) -> None:
    db = short_lived
    value(db, "select pgque.register_subconsumer('orders', 'group', 'a')")
    for payload in ("old", "older", "fresh"):
        send(db, "orders", payload)
        tick(db, "orders")
    age(db, "old", "2 hours")
    age(db, "older", "3 hours")
    assert [m.payload for m in receive(db, "orders", "app")] == ["fresh"]
    got = rows(db, "select payload from pgque.receive_coop('orders', 'group', 'a')")
    assert got == [("fresh",)]
    assert rows(db, "select from pgque.retry_queue union all select from pgque.dead_letter") == []


def test_a_message_that_grew_old_in_the_consumers_hands_can_still_be_given_back(
    short_lived: Connection,
) -> None:
    db = short_lived
    send(db, "orders", "x")
    tick(db, "orders")
    [message] = receive(db, "orders", "app")
    age(db, "x", "2 hours")
    assert [nack(db, message), ack(db, message.batch_id)] == [1, 1]
    assert value(db, "select pgque.maint_retry_events()") == 1
    tick(db, "orders")
    assert consume(db, "orders", "app") == []
    assert rows(db, "select from pgque.retry_queue union all select from pgque.dead_letter") == []


def test_events_too_old_are_neither_retried_nor_dead_letters(short_lived: Connection) -> None:
    """Not even where a whole batch fails."""
    db = short_lived
    for worker in ("a", "b"):
        value(db, "select pgque.register_subconsumer('orders', 'group', %s)", worker)
    for payload in ("first", "second"):
        send(db, "orders", f"{payload} old", f"{payload} new")
        tick(db, "orders")
        age(db, f"{payload} old", "2 hours")
    batch = value(db, "select pgque.next_batch('orders', 'app')")
    assert value(db, "select pgque.batch_retry(%s, 0)", batch) == 1
    for worker, retries in (("a", "1"), ("b", "0")):
        assert value(db, "select pgque.next_batch('orders', 'group', %s)", worker) > 0
        value(db, "select pgque.set_queue_config('orders', 'max_retries', %s)", retries)
        value(db, "select pgque.unregister_subconsumer('orders', 'group', %s, batch_handling => 1)", worker)
    assert rows(db, "select ev_data from pgque.retry_queue") == [("first new",)] * 2
    assert rows(db, "select ev_data from pgque.dead_letter") == [("second new",)]


@pytest.mark.parametrize("bad", ["0", "-1 hour", "soon"])
def test_a_life_time_must_be_positive(db: Connection, bad: str) -> None:
    with pytest.raises(psycopg.Error):
        db.execute("select pgque.set_queue_config('orders', 'event_ttl', %s)", (bad,))


def test_old_events_hold_up_no_rotation(short_lived: Connection) -> None:
    db = short_lived
    send(db, "orders", "x")
    tick(db, "orders")
    age(db, "x", "2 hours")
    assert consume(db, "orders", "app") == []
    tick(db, "orders")
    assert consume(db, "orders", "app") == []
    assert rotate(db, "orders")
