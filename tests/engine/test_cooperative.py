"""Cooperative consumers: several workers, one position, and no event to two of them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pytest

from tests.support.database import Connection, Database, wait_until
from tests.support.queue import (
    Message,
    ack,
    consume,
    create_queue,
    nack,
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
    create_queue(connection, "orders")
    return connection


def join(db: Connection, *workers: str) -> None:
    for worker in workers:
        assert value(db, "select pgque.register_subconsumer('orders', 'group', %s)", worker) == 1


def take(db: Connection, worker: str, *, dead: str | None = None, limit: int = 1000) -> list[Message]:
    found = rows(
        db,
        "select msg_id, batch_id, type, payload, retry_count"
        " from pgque.receive_coop('orders', 'group', %s, %s, %s)",
        worker, limit, dead,
    )
    return [Message(*row) for row in found]


def publish(db: Connection, *payloads: str) -> None:
    """A batch for each payload."""
    for payload in payloads:
        send(db, "orders", payload)
        tick(db, "orders")


def texts(messages: list[Message]) -> list[str | None]:
    return [message.payload for message in messages]


def group(db: Connection) -> list[tuple[object, ...]]:
    """Name, role, position, and whether a batch is open."""
    return rows(
        db,
        "select co_name, sub_role, sub_last_tick, sub_next_tick, sub_batch is not null"
        " from pgque.subscription join pgque.consumer on co_id = sub_consumer order by co_name",
    )


def silent_for(db: Connection, worker: str, time: str) -> None:
    db.execute(
        "update pgque.subscription set sub_active = sub_active - %s::interval where sub_consumer ="
        " (select co_id from pgque.consumer where co_name = %s)", (time, f"group.{worker}"),
    )


# --- joining and leaving --------------------------------------------------------------------------


def test_the_first_member_makes_the_group_and_the_last_one_ends_it(db: Connection) -> None:
    join(db, "a")
    join(db, "b")
    assert value(db, "select pgque.subscribe_subconsumer('orders', 'group', 'a')") == 0
    assert group(db) == [
        ("group", "coop_main", 1, None, False),
        ("group.a", "coop_member", None, None, False),
        ("group.b", "coop_member", None, None, False),
    ]
    publish(db, "1")
    for name in ("group", "group.a"):
        with pytest.raises(psycopg.Error, match="cooperative group") as caught:
            db.execute("select pgque.unregister_consumer('orders', %s)", (name,))
        assert "unregister_subconsumer" in str(caught.value.diag.message_hint)

    assert value(db, "select pgque.unregister_subconsumer('orders', 'group', 'a')") == 1
    assert value(db, "select pgque.unregister_subconsumer('orders', 'group', 'a')") == 0
    assert value(db, "select pgque.unsubscribe_subconsumer('orders', 'group', 'b')") == 1
    assert group(db) == [("group", "normal", 1, None, False)]
    assert consume(db, "orders", "group") == ["1"]
    assert value(db, "select pgque.unsubscribe('orders', 'group')") == 1
    assert rows(db, "select from pgque.consumer") == []


def test_a_consumer_that_works_alone_is_converted_only_on_request(db: Connection) -> None:
    value(db, "select pgque.subscribe('orders', 'group')")
    publish(db, "1", "2")
    for attempt in (
        "select pgque.register_subconsumer('orders', 'group', 'a')",
        "select * from pgque.receive_coop('orders', 'group', 'a')",
    ):
        with pytest.raises(psycopg.Error, match="is not cooperative") as caught:
            db.execute(attempt)
        assert "convert_normal => true" in str(caught.value.diag.message_hint)

    convert = "select pgque.register_subconsumer('orders', 'group', 'a', convert_normal => true)"
    [message] = receive(db, "orders", "group")
    with pytest.raises(psycopg.Error, match="has an open batch"):
        db.execute(convert)
    ack(db, message.batch_id)
    assert value(db, convert) == 1
    assert texts(take(db, "a")) == ["2"]
    assert group(db)[0][:2] == ("group", "coop_main")


@pytest.mark.parametrize(
    ("consumer", "worker"),
    [("", "a"), (None, "a"), ("group", ""), ("group", None)],
)
def test_empty_names_are_refused(
    db: Connection, consumer: str | None, worker: str | None
) -> None:
    with pytest.raises(psycopg.Error, match="names of a cooperative group"):
        db.execute("select pgque.register_subconsumer('orders', %s, %s)", (consumer, worker))
    assert rows(db, "select from pgque.consumer") == []


def test_groups_and_workers_may_have_names_with_dots(db: Connection) -> None:
    """Workers are named after their hosts, and consumers that exist may become groups."""
    register = "select pgque.register_subconsumer('orders', %s, %s)"
    for _ in range(2):
        value(db, register, "billing.mail", "db1.example.com")
        value(db, register, "billing.mail", "db2.example.com")
    with pytest.raises(psycopg.Error, match=r"billing\.mail\.db1\.example\.com of queue orders exists"):
        db.execute(register, ("billing", "mail.db1.example.com"))
    publish(db, "1", "2")
    got = [
        rows(db, "select payload from pgque.receive_coop('orders', 'billing.mail', %s)", worker)
        for worker in ("db1.example.com", "db2.example.com")
    ]
    assert got == [[("1",)], [("2",)]]
    assert [row[:2] for row in group(db)] == [
        ("billing.mail", "coop_main"),
        ("billing.mail.db1.example.com", "coop_member"),
        ("billing.mail.db2.example.com", "coop_member"),
    ]


def test_a_name_that_a_consumer_has_is_refused(db: Connection) -> None:
    value(db, "select pgque.subscribe('orders', 'group.a')")
    with pytest.raises(psycopg.Error, match=r"group\.a of queue orders exists and is not a member"):
        join(db, "a")
    assert group(db) == [("group.a", "normal", 1, None, False)]


def test_who_is_not_there_is_told_so(db: Connection) -> None:
    for call in ("register_subconsumer('nowhere', 'g', 'a')", "receive_coop('nowhere', 'g', 'a')",
                 "next_batch('nowhere', 'g', 'a')"):
        with pytest.raises(psycopg.Error, match="queue not found: nowhere"):
            db.execute(f"select pgque.{call}")
    with pytest.raises(psycopg.Error, match=r"not subscriber to queue: orders/g\.a") as caught:
        db.execute("select pgque.next_batch('orders', 'g', 'a')")
    assert "receive_coop" in str(caught.value.diag.message_hint)
    assert value(db, "select pgque.touch_subconsumer('orders', 'g', 'a')") == 0
    assert value(db, "select pgque.unregister_subconsumer('nowhere', 'g', 'a')") == 0
    for limit in (0, -1, None):
        with pytest.raises(psycopg.Error, match="max_return"):
            db.execute("select * from pgque.receive_coop('orders', 'g', 'a', %s)", (limit,))
    assert rows(db, "select from pgque.consumer") == []


def test_group_and_members_get_nothing_by_the_functions_for_those_who_work_alone(db: Connection) -> None:
    join(db, "a")
    publish(db, "1")
    for name in ("group", "group.a"):
        for call in ("next_batch('orders', %s)", "receive('orders', %s)", "next_batch_info('orders', %s)",
                     "next_batch_custom('orders', %s, null, null, null)"):
            with pytest.raises(psycopg.Error, match="cooperative group") as caught:
                db.execute(f"select pgque.{call}".encode(), (name,))
            assert "receive_coop" in str(caught.value.diag.message_hint)
    with pytest.raises(psycopg.Error, match="can not be moved"):
        db.execute("select pgque.register_consumer_at('orders', 'group', 1)")

    # A group without members passes for a consumer that works alone.
    value(db, "select pgque.unregister_subconsumer('orders', 'group', 'a')")
    db.execute("update pgque.subscription set sub_role = 'coop_main'")
    assert consume(db, "orders", "group") == ["1"]


def test_a_batch_of_the_group_as_a_whole_can_not_be_finished(db: Connection) -> None:
    join(db, "a")
    publish(db, "1")
    db.execute("update pgque.subscription set sub_batch = 77, sub_next_tick = 2 where sub_role = 'coop_main'")
    with pytest.raises(psycopg.Error, match="batch 77 belongs to a cooperative group as a whole"):
        ack(db, 77)


# --- sharing the work -----------------------------------------------------------------------------


def test_members_get_one_batch_each_and_nobody_gets_one_twice(db: Connection) -> None:
    publish(db, "before")
    first = take(db, "a")  # registers group and worker on the way, behind the last tick
    assert first == []
    publish(db, "1", "2", "3")
    got = {worker: take(db, worker) for worker in ("a", "b", "c", "d")}
    assert {worker: texts(messages) for worker, messages in got.items()} == {
        "a": ["1"], "b": ["2"], "c": ["3"], "d": [],
    }
    assert take(db, "b") == got["b"]
    assert group(db)[0] == ("group", "coop_main", 5, None, False)

    assert ack(db, got["b"][0].batch_id) == 1
    assert take(db, "b") == []
    publish(db, "4")
    assert texts(take(db, "b")) == ["4"]
    assert [row[0] for row in group(db) if row[4]] == ["group.a", "group.b", "group.c"]
    info = rows(db, "select queue_name, consumer_name, prev_tick_id, tick_id from pgque.get_batch_info(%s)",
                got["a"][0].batch_id)
    assert info == [("orders", "group.a", 2, 3)]


def test_low_level_functions_hand_out_every_batch(db: Connection) -> None:
    join(db, "a", "b")
    for _ in range(3):
        tick(db, "orders")
    custom = "select * from pgque.next_batch_custom('orders', 'group', %s, null, %s, null)"
    many = value(db, "select tick_event_seq from pgque.tick where tick_id = 3")
    assert rows(db, custom, "a", many) == [(1, 1, 3)]
    assert rows(db, custom, "a", many * 10) == [(1, 1, 3)]
    assert rows(db, custom, "b", many * 10) == [(None, None, None)]
    assert value(db, "select pgque.next_batch('orders', 'group', 'b')") == 2
    assert rows(db, "select * from pgque.get_batch_events(2)") == []
    assert [value(db, "select pgque.finish_batch(%s)", batch) for batch in (2, 1, 1)] == [1, 1, 0]


def test_windows_without_events_are_passed_over(db: Connection) -> None:
    join(db, "a", "b")
    for _ in range(20):
        tick(db, "orders")
    publish(db, "1")
    for _ in range(20):
        tick(db, "orders")
    [message] = take(db, "a")
    assert message.payload == "1"
    before = value(db, "select last_value from pgque.batch_id_seq")
    assert take(db, "b") == []
    assert value(db, "select last_value from pgque.batch_id_seq") == before + 1
    assert group(db) == [
        ("group", "coop_main", 42, None, False),
        ("group.a", "coop_member", 21, 22, True),
        ("group.b", "coop_member", None, None, False),
    ]


def test_acknowledging_moves_past_what_was_held_back(db: Connection) -> None:
    join(db, "a")
    send(db, "orders", "1", "2", "3")
    tick(db, "orders")
    messages = take(db, "a", limit=2)
    assert texts(messages) == ["1", "2"]
    ack(db, messages[0].batch_id)
    assert take(db, "a") == []


def test_rotation_waits_for_what_a_member_holds(db: Connection) -> None:
    value(db, "select pgque.set_queue_config('orders', 'rotation_period', '1 microsecond')")
    join(db, "a", "b")
    publish(db, "0")
    ack(db, take(db, "a")[0].batch_id)
    assert rotate(db, "orders")
    publish(db, "1")
    held = take(db, "a")
    publish(db, "2")
    other = take(db, "b")
    ack(db, other[0].batch_id)
    for _ in range(3):
        tick(db, "orders")
        take(db, "b")
        assert not rotate(db, "orders")
    assert rows(db, "select ev_data from pgque.get_batch_events(%s)", held[0].batch_id) == [("1",)]
    ack(db, held[0].batch_id)
    assert rotate(db, "orders")


# --- failures -------------------------------------------------------------------------------------


def test_a_retry_belongs_to_the_group(db: Connection) -> None:
    value(db, "select pgque.subscribe('orders', 'alone')")
    join(db, "a", "b")
    publish(db, "1")
    [message] = take(db, "a")
    assert [nack(db, message), ack(db, message.batch_id)] == [1, 1]
    assert value(db, "select pgque.unregister_subconsumer('orders', 'group', 'a')") == 1
    assert value(db, "select pgque.maint_retry_events()") == 1
    tick(db, "orders")
    [again] = take(db, "b")
    assert (again.id, again.payload, again.retry_count) == (message.id, "1", 1)
    assert consume(db, "orders", "alone") == ["1"]


def test_dead_letters_are_those_of_the_group(db: Connection) -> None:
    value(db, "select pgque.set_queue_config('orders', 'max_retries', '0')")
    join(db, "a")
    publish(db, "1")
    [message] = take(db, "a")
    assert [nack(db, message), nack(db, message)] == [1, 1]
    ack(db, message.batch_id)
    value(db, "select pgque.unregister_subconsumer('orders', 'group', 'a')")
    dead = rows(
        db,
        "select co_name, ev_data from pgque.dlq_inspect('orders')"
        " join pgque.consumer on co_id = dl_consumer_id",
    )
    assert dead == [("group", "1")]


def test_leaving_with_an_open_batch_is_refused_or_fails_its_events(db: Connection) -> None:
    value(db, "select pgque.set_queue_config('orders', 'max_retries', '1')")
    join(db, "a", "b")
    send(db, "orders", "twice")
    tick(db, "orders")
    [message] = take(db, "a")
    nack(db, message)
    ack(db, message.batch_id)
    value(db, "select pgque.maint_retry_events()")
    send(db, "orders", "once")
    tick(db, "orders")
    messages = take(db, "a")
    assert sorted(texts(messages), key=str) == ["once", "twice"]

    for handling in (2, -1, None):
        with pytest.raises(psycopg.Error, match="batch_handling must be 0 or 1"):
            db.execute("select pgque.unregister_subconsumer('orders', 'group', 'a', %s)", (handling,))
    with pytest.raises(psycopg.Error, match=f"has an open batch: {messages[0].batch_id}"):
        db.execute("select pgque.unregister_subconsumer('orders', 'group', 'a')")
    assert value(db, "select pgque.unregister_subconsumer('orders', 'group', 'a', batch_handling => 1)") == 1

    assert rows(db, "select ev_data, dl_reason from pgque.dlq_inspect('orders')") == [
        ("twice", "subconsumer unregistered")
    ]
    assert rows(db, "select ev_data, ev_retry from pgque.retry_queue") == [("once", 1)]
    db.execute("update pgque.retry_queue set ev_retry_after = now()")
    value(db, "select pgque.maint_retry_events()")
    tick(db, "orders")
    assert texts(take(db, "b")) == ["once"]


# --- the dead -------------------------------------------------------------------------------------


def test_what_a_dead_worker_left_is_taken_over_under_a_new_id(db: Connection) -> None:
    join(db, "a", "b")
    publish(db, "1")
    before = take(db, "a")
    assert take(db, "b", dead="5 minutes") == []
    silent_for(db, "a", "6 minutes")
    assert take(db, "b") == []  # nobody asked for it

    after = take(db, "b", dead="5 minutes")
    assert texts(after) == ["1"]
    assert after[0].batch_id > before[0].batch_id
    warnings: list[str] = []
    db.add_notice_handler(lambda notice: warnings.append(str(notice.message_primary)))
    assert ack(db, before[0].batch_id) == 0
    assert warnings == [f"batch not found: {before[0].batch_id}"]
    with pytest.raises(psycopg.Error, match="batch not found"):
        nack(db, before[0])
    assert take(db, "a", dead="5 minutes") == []
    assert ack(db, after[0].batch_id) == 1


@pytest.mark.parametrize("sign", ["touch", "poll"])
def test_a_worker_heard_of_in_time_keeps_its_batch(db: Connection, sign: str) -> None:
    join(db, "a", "b")
    publish(db, "1")
    held = take(db, "a")
    silent_for(db, "a", "6 minutes")
    if sign == "touch":
        assert value(db, "select pgque.touch_subconsumer('orders', 'group', 'a')") == 1
    else:
        assert take(db, "a") == held
    assert take(db, "b", dead="5 minutes") == []
    assert ack(db, held[0].batch_id) == 1


def test_the_longest_dead_comes_first_and_before_new_events(db: Connection) -> None:
    join(db, "a", "b", "c")
    publish(db, "1", "2", "3")
    take(db, "a")
    take(db, "b")
    silent_for(db, "a", "10 minutes")
    silent_for(db, "b", "20 minutes")
    got = []
    for _ in range(3):
        messages = take(db, "c", dead="5 minutes")
        got += texts(messages)
        ack(db, messages[0].batch_id)
    assert got == ["2", "1", "3"]


def test_a_worker_in_the_middle_of_a_transaction_is_not_dead(
    engine_database: Database, db: Connection
) -> None:
    join(db, "a", "b")
    publish(db, "1")
    worker = engine_database.connect(autocommit=False)
    held = take(worker, "a")
    worker.commit()
    silent_for(db, "a", "1 hour")
    nack(worker, held[0], after="1 hour")
    ack(worker, held[0].batch_id)
    assert take(db, "b", dead="5 minutes") == []
    worker.commit()
    assert take(db, "b", dead="5 minutes") == []


def test_two_workers_after_one_dead_get_its_batch_once(engine_database: Database, db: Connection) -> None:
    join(db, "a", "b", "c")
    publish(db, "1")
    take(db, "a")
    silent_for(db, "a", "1 hour")
    first = engine_database.connect(autocommit=False)
    assert texts(take(first, "b", dead="5 minutes")) == ["1"]

    second = engine_database.connect()
    pid = second.info.backend_pid
    got: list[list[Message]] = []
    follower = threading.Thread(target=lambda: got.append(take(second, "c", dead="5 minutes")))
    follower.start()
    waits = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
    wait_until(lambda: value(db, waits, pid), what="the second worker waits for the first")
    first.commit()
    follower.join()
    assert got == [[]]


def test_two_sessions_of_one_new_worker_register_it_once(engine_database: Database, db: Connection) -> None:
    publish(db, "before")
    first = engine_database.connect(autocommit=False)
    assert take(first, "a") == []
    second = engine_database.connect()
    pid = second.info.backend_pid
    got: list[list[Message]] = []
    follower = threading.Thread(target=lambda: got.append(take(second, "a")))
    follower.start()
    waits = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
    wait_until(lambda: value(db, waits, pid), what="the second session waits for the first")
    first.commit()
    follower.join()
    assert got == [[]]
    assert [row[0] for row in group(db)] == ["group", "group.a"]


def test_dropping_the_queue_takes_the_group_along(db: Connection) -> None:
    join(db, "a", "b")
    publish(db, "1")
    take(db, "a")
    with pytest.raises(psycopg.Error, match="consumers are still attached"):
        db.execute("select pgque.drop_queue('orders')")
    assert value(db, "select pgque.drop_queue('orders', true)") == 1
    assert rows(db, "select from pgque.subscription") == rows(db, "select from pgque.consumer") == []


def test_a_poll_that_finds_nothing_writes_nothing(db: Connection) -> None:
    join(db, "a")
    publish(db, "1")
    ack(db, take(db, "a")[0].batch_id)
    quiet: Callable[[], object] = lambda: value(db, "select pg_current_xact_id_if_assigned()")  # noqa: E731
    with db.transaction():
        assert take(db, "a", dead="5 minutes") == []
        assert quiet() is None
