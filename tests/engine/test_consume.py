"""Batches: what is in them, who gets them, and that nothing is lost or doubled at their edges."""

from __future__ import annotations

import threading

import psycopg
import pytest

from tests.support.database import Connection, Database, wait_until
from tests.support.queue import ack, consume, create_queue, receive, rows, send, tick, value


@pytest.fixture
def db(engine_database: Database) -> Connection:
    connection = engine_database.connect()
    create_queue(connection, "orders", "app")
    return connection


def position(db: Connection, consumer: str = "app") -> tuple[object, ...]:
    [found] = rows(
        db,
        "select last_tick, current_batch, next_tick from pgque.get_consumer_info('orders', %s)", consumer,
    )
    return found


# --- the edges of a batch -------------------------------------------------------------------------


def test_an_event_committed_after_the_tick_comes_later_and_once(
    engine_database: Database, db: Connection
) -> None:
    writer = engine_database.connect(autocommit=False)
    send(writer, "orders", "late")
    send(db, "orders", "early")
    tick(db, "orders")
    assert consume(db, "orders", "app") == ["early"]

    tick(db, "orders")
    assert consume(db, "orders", "app") == []
    send(db, "orders", "between")
    tick(db, "orders")
    assert consume(db, "orders", "app") == ["between"]

    writer.commit()
    assert consume(db, "orders", "app") == []
    tick(db, "orders")
    assert consume(db, "orders", "app") == ["late"]
    tick(db, "orders")
    assert consume(db, "orders", "app") == []


def test_a_batch_may_be_taken_and_read_in_one_statement(db: Connection) -> None:
    send(db, "orders", "one", "two")
    tick(db, "orders")
    found = rows(
        db, "select e.ev_data from pgque.get_batch_events(pgque.next_batch('orders', 'app')) e",
    )
    assert found == [("one",), ("two",)]


def test_each_of_many_open_transactions_lands_in_its_own_batch(
    engine_database: Database, db: Connection
) -> None:
    """Committed in another order than begun, with a tick after each; one of them rolls back."""
    writers = [engine_database.connect(autocommit=False) for _ in range(8)]
    for number, writer in enumerate(writers):
        send(writer, "orders", f"{number} first")
    order = [5, 0, 7, 3, 1, 6, 2, 4]
    batches = []
    for number in order:
        send(writers[number], "orders", f"{number} last")
        if number == 3:
            writers[number].rollback()
        else:
            writers[number].commit()
        tick(db, "orders")
        batches.append(consume(db, "orders", "app"))
    assert batches == [[] if n == 3 else [f"{n} first", f"{n} last"] for n in order]


def test_events_come_in_the_order_of_their_ids(engine_database: Database, db: Connection) -> None:
    """Also when they lie in two ranges: begun before the last tick, and after it."""
    writer = engine_database.connect(autocommit=False)
    send(writer, "orders", "1")
    tick(db, "orders")
    send(db, "orders", "2")
    send(writer, "orders", "3")
    writer.commit()
    send(db, "orders", "4")
    tick(db, "orders")
    assert consume(db, "orders", "app") == ["1", "2", "3", "4"]


def test_an_event_of_a_savepoint_shares_the_fate_of_its_transaction(
    engine_database: Database, db: Connection
) -> None:
    with db.transaction():
        send(db, "orders", "kept")
        with db.transaction(force_rollback=True):
            send(db, "orders", "undone")
        with db.transaction():
            send(db, "orders", "kept too")
    tick(db, "orders")
    assert consume(db, "orders", "app") == ["kept", "kept too"]


def test_a_batch_is_found_by_index(db: Connection) -> None:
    """A small batch in a big table must not read the table."""
    db.execute("select count(pgque.send('orders', repeat('x', 100))) from generate_series(1, 50000)")
    tick(db, "orders")
    assert len(consume(db, "orders", "app")) == 50_000
    send(db, "orders", "y")
    tick(db, "orders")
    batch = value(db, "select pgque.next_batch('orders', 'app')")
    for statistics in ("absent", "fresh"):
        if statistics == "fresh":
            db.execute("analyze pgque.event_1_0")
        query = value(db, "select pgque.batch_event_sql(%s)", batch)
        plan = "\n".join(line for (line,) in db.execute(f"explain {query}").fetchall())
        assert "event_1_0_txid_idx" in plan, plan
        assert "Seq Scan on event_1_0" not in plan, plan


# --- opening and finishing ------------------------------------------------------------------------


def test_an_open_batch_is_handed_out_until_it_is_finished(db: Connection) -> None:
    send(db, "orders", "1")
    tick(db, "orders")
    first = receive(db, "orders", "app")
    send(db, "orders", "2")
    tick(db, "orders")
    assert receive(db, "orders", "app") == first
    assert position(db) == (1, first[0].batch_id, 2)

    assert ack(db, first[0].batch_id) == 1
    assert position(db) == (2, None, None)
    assert [message.payload for message in receive(db, "orders", "app")] == ["2"]


def test_finishing_twice_is_no_error(db: Connection) -> None:
    send(db, "orders", "1")
    tick(db, "orders")
    batch = receive(db, "orders", "app")[0].batch_id
    warnings: list[str] = []
    db.add_notice_handler(lambda notice: warnings.append(str(notice.message_primary)))
    assert [ack(db, batch), ack(db, batch), ack(db, 12345)] == [1, 0, 0]
    assert warnings == [f"batch not found: {batch}", "batch not found: 12345"]
    assert consume(db, "orders", "app") == []


def test_acknowledging_moves_past_what_was_held_back(db: Connection) -> None:
    """The ownership rule: max_return limits the rows, not the batch."""
    send(db, "orders", "1", "2", "3")
    tick(db, "orders")
    messages = receive(db, "orders", "app", 2)
    assert [message.payload for message in messages] == ["1", "2"]
    assert len(rows(db, "select from pgque.get_batch_events(%s)", messages[0].batch_id)) == 3
    ack(db, messages[0].batch_id)
    assert receive(db, "orders", "app") == []


@pytest.mark.parametrize("limit", [0, -1, None])
def test_a_limit_below_one_is_refused(db: Connection, limit: int | None) -> None:
    with pytest.raises(psycopg.Error, match="max_return"):
        db.execute("select * from pgque.receive('orders', 'app', %s)", (limit,))


def test_the_low_level_functions_do_the_same(db: Connection) -> None:
    sent = send(db, "orders", "1", "2")
    tick(db, "orders")
    batch, current, previous, current_seq, previous_seq = rows(
        db,
        "select batch_id, cur_tick_id, prev_tick_id, cur_tick_event_seq, prev_tick_event_seq"
        " from pgque.next_batch_info('orders', 'app')",
    )[0]
    assert (current, previous, previous_seq) == (2, 1, 0)
    assert current_seq >= 2
    assert value(db, "select pgque.next_batch('orders', 'app')") == batch
    events = rows(db, "select ev_id, ev_data, ev_retry, ev_txid from pgque.get_batch_events(%s)", batch)
    assert [event[:3] for event in events] == [(sent[0], "1", None), (sent[1], "2", None)]
    assert events[0][3] < events[1][3]
    info = rows(
        db, "select queue_name, consumer_name, prev_tick_id, tick_id, seq_start, seq_end, batch_end >"
            " batch_start, lag > '0' from pgque.get_batch_info(%s)", batch,
    )
    assert info == [("orders", "app", 1, 2, 0, current_seq, True, True)]
    assert value(db, "select pgque.finish_batch(%s)", batch) == 1
    assert value(db, "select pgque.next_batch('orders', 'app')") is None


def test_an_event_sequence_set_back_holds_nobody_up(db: Connection) -> None:
    send(db, "orders", "1", "2", "3")
    tick(db, "orders")
    assert consume(db, "orders", "app") == ["1", "2", "3"]
    # As on a standby that was promoted without its sequences.
    db.execute("select setval(queue_event_seq::regclass, 1) from pgque.queue")
    send(db, "orders", "4")
    db.execute("update pgque.tick set tick_time = tick_time - interval '1 hour'")  # due as an idle tick
    assert value(db, "select pgque.ticker('orders')") is not None
    assert consume(db, "orders", "app") == ["4"]


def test_who_is_not_there_is_told_so(db: Connection) -> None:
    for call in ("next_batch", "next_batch_info", "receive"):
        with pytest.raises(psycopg.Error, match="queue not found: nowhere"):
            db.execute(f"select pgque.{call}('nowhere', 'app')")
        with pytest.raises(psycopg.Error, match="not subscriber to queue: orders/nobody"):
            db.execute(f"select pgque.{call}('orders', 'nobody')")
    for call in ("get_batch_events(77)", "get_batch_info(77)", "event_retry(77, 1, 1)", "batch_retry(77, 1)",
                 "nack(77, null)", "event_dead(77, 1, 'r', now(), null, 0, 't', 'd')"):
        with pytest.raises(psycopg.Error, match="batch not found: 77"):
            db.execute(f"select pgque.{call}")


def test_a_lost_position_is_an_error_and_not_an_empty_queue(db: Connection) -> None:
    tick(db, "orders")
    db.execute("delete from pgque.tick where tick_id = 1")
    with pytest.raises(psycopg.Error, match="tick 1 does not exist"):
        receive(db, "orders", "app")
    value(db, "select pgque.register_consumer_at('orders', 'app', 2)")
    assert receive(db, "orders", "app") == []


@pytest.mark.parametrize("acknowledged", [True, False])
def test_two_workers_of_one_consumer_go_one_after_the_other(
    engine_database: Database, db: Connection, acknowledged: bool
) -> None:
    """The second finds what the first left: nothing, or the very same batch."""
    send(db, "orders", "1")
    tick(db, "orders")
    first = engine_database.connect(autocommit=False)
    [message] = receive(first, "orders", "app")

    second = engine_database.connect()
    pid = second.info.backend_pid
    got: list[object] = []
    worker = threading.Thread(target=lambda: got.append(receive(second, "orders", "app")))
    worker.start()
    wait_until(
        lambda: value(db, "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s", pid),
        what="the second worker waits for the first",
    )
    if acknowledged:
        ack(first, message.batch_id)
    first.commit()
    worker.join()
    assert got == [[] if acknowledged else [message]]


# --- choosing a larger batch ----------------------------------------------------------------------


def custom(db: Connection, lag: str | None, count: int | None, interval: str | None) -> int | None:
    """Open a batch by conditions and give it back; the tick it would end at."""
    [(batch, tick_id)] = rows(
        db,
        "select batch_id, cur_tick_id from pgque.next_batch_custom('orders', 'app', %s, %s, %s)",
        lag, count, interval,
    )
    db.execute("update pgque.subscription set sub_batch = null, sub_next_tick = null")
    assert (batch is None) == (tick_id is None)
    return None if tick_id is None else int(tick_id)


def test_a_custom_batch_ends_at_the_first_tick_that_satisfies_all(db: Connection) -> None:
    # Ticks 2 to 6: one minute apart, the last of them now, one event before each.
    for _ in range(5):
        send(db, "orders", "x")
        db.execute("update pgque.tick set tick_time = tick_time - interval '1 minute'")
        db.execute(
            "insert into pgque.tick (tick_queue, tick_id, tick_time, tick_event_seq) select 1,"
            " nextval('pgque.event_1_tick_seq'), clock_timestamp(), last_value from pgque.event_1_id_seq"
        )
    assert custom(db, None, None, None) == 2
    assert custom(db, None, 1, None) == 2
    assert custom(db, None, 3, None) == 4
    assert custom(db, None, 6, None) is None
    assert custom(db, None, None, "59 seconds") == 2
    assert custom(db, None, None, "119 seconds") == 3
    assert custom(db, "30 seconds", None, None) == 2
    assert custom(db, "150 seconds", 2, None) == 3
    assert custom(db, "150 seconds", 3, None) is None
    assert custom(db, "10 minutes", None, None) is None
    assert custom(db, None, 2, "200 seconds") == 5


def test_an_open_custom_batch_stays_as_it_is(db: Connection) -> None:
    for name in ("1", "2", "3", "4"):
        send(db, "orders", name)
        tick(db, "orders")
    wide = "select batch_id, cur_tick_id from pgque.next_batch_custom('orders', 'app', null, %s, null)"
    three = value(db, "select tick_event_seq from pgque.tick where tick_id = 4")
    [(batch, end)] = rows(db, wide, three)
    assert end == 4
    assert rows(db, wide, three * 100) == [(batch, 4)]
    assert rows(db, wide, None) == [(batch, 4)]
    assert value(db, "select cur_tick_id from pgque.next_batch_info('orders', 'app')") == 4
    assert [message.payload for message in receive(db, "orders", "app")] == ["1", "2", "3"]
    ack(db, batch)
    assert consume(db, "orders", "app") == ["4"]


# --- empty batches --------------------------------------------------------------------------------


def empty_ticks(db: Connection, count: int) -> None:
    db.execute(
        "insert into pgque.tick (tick_queue, tick_id, tick_event_seq)"
        " select 1, nextval('pgque.event_1_tick_seq'), max(tick_event_seq)"
        " from pgque.tick, generate_series(1, %s::int) as i group by i", (count,),
    )


@pytest.mark.parametrize("gaps", [False, True])
def test_receive_passes_over_empty_batches(db: Connection, gaps: bool) -> None:
    """It gives no batch id for a batch without rows, so it must not leave one open."""
    expected = []
    for count in (1, 2, 3, 50, 0, 7):
        empty_ticks(db, count)
        if gaps:
            db.execute("select nextval('pgque.event_1_tick_seq') from generate_series(1, 100)")
        send(db, "orders", f"after {count}")
        tick(db, "orders")
        expected.append(f"after {count}")
    empty_ticks(db, 20)
    assert consume(db, "orders", "app") == expected
    last = value(db, "select max(tick_id) from pgque.tick")
    assert position(db) == (last, None, None)


def test_many_empty_batches_take_one_step(db: Connection) -> None:
    """Opening and finishing each would take seconds: the cost grows with the square of their number."""
    empty_ticks(db, 2000)
    before = value(db, "select last_value from pgque.batch_id_seq")
    assert receive(db, "orders", "app") == []
    assert value(db, "select last_value from pgque.batch_id_seq") - before <= 1
    assert position(db) == (2001, None, None)


def test_each_batch_with_events_stays_a_batch_of_its_own(db: Connection) -> None:
    send(db, "orders", "1")
    tick(db, "orders")
    empty_ticks(db, 5)
    send(db, "orders", "2")
    tick(db, "orders")
    send(db, "orders", "3")
    tick(db, "orders")
    sizes = []
    while messages := receive(db, "orders", "app"):
        sizes.append([message.payload for message in messages])
        ack(db, messages[0].batch_id)
    assert sizes == [["1"], ["2"], ["3"]]


def test_polling_an_idle_queue_writes_nothing(db: Connection) -> None:
    assert receive(db, "orders", "app") == []
    with db.transaction():
        for _ in range(3):
            assert receive(db, "orders", "app") == []
            assert value(db, "select pgque.next_batch('orders', 'app')") is None
        assert value(db, "select pg_current_xact_id_if_assigned()::text") is None


# --- registering ----------------------------------------------------------------------------------


def test_registering_starts_behind_the_last_tick(db: Connection) -> None:
    send(db, "orders", "before")
    tick(db, "orders")
    send(db, "orders", "not ticked yet")
    assert value(db, "select pgque.register_consumer('orders', 'new')") == 1
    assert value(db, "select pgque.register_consumer('orders', 'new')") == 0
    send(db, "orders", "after")
    tick(db, "orders")
    assert consume(db, "orders", "new") == ["not ticked yet", "after"]
    assert consume(db, "orders", "app") == ["before", "not ticked yet", "after"]


def test_registering_at_a_tick_and_moving_there(db: Connection) -> None:
    for name in ("1", "2", "3"):
        send(db, "orders", name)
        tick(db, "orders")
    at = "select pgque.register_consumer_at('orders', 'new', %s)"
    assert value(db, at, 2) == 1
    assert consume(db, "orders", "new") == ["2", "3"]
    assert value(db, at, 1) == 0
    opened = receive(db, "orders", "new")
    assert value(db, at, 3) == 0
    assert ack(db, opened[0].batch_id) == 0, "moving gives up the open batch"
    assert consume(db, "orders", "new") == ["3"]
    with pytest.raises(psycopg.Error, match="tick not found: 99 in queue orders"):
        db.execute(at, (99,))
    with pytest.raises(psycopg.Error, match="queue not found: nowhere"):
        db.execute("select pgque.register_consumer_at('nowhere', 'new', 1)")
    with pytest.raises(psycopg.Error, match="consumer name"):
        db.execute("select pgque.subscribe('orders', '')")


def test_unregistering_removes_the_consumer_and_its_retries_but_no_dead_letters(db: Connection) -> None:
    value(db, "select pgque.subscribe('orders', 'other')")
    send(db, "orders", "retry", "dead")
    tick(db, "orders")
    for consumer in ("app", "other"):
        batch = receive(db, "orders", consumer)[0].batch_id
        value(db, "select pgque.event_retry(%s, 1, 3600)", batch)
    batch = receive(db, "orders", "app")[0].batch_id
    value(db, "select pgque.event_dead(%s, 2, 'r', now(), null, null, 't', 'd')", batch)

    assert value(db, "select pgque.unsubscribe('orders', 'app')") == 1
    assert value(db, "select pgque.unsubscribe('orders', 'app')") == 0
    assert value(db, "select pgque.unregister_consumer('nowhere', 'app')") == 0
    assert value(db, "select count(*) from pgque.retry_queue") == 1
    assert len(rows(db, "select from pgque.dlq_inspect('orders')")) == 1
    assert rows(db, "select co_name from pgque.consumer order by 1") == [("app",), ("other",)]

    assert value(db, "select pgque.unsubscribe('orders', 'other')") == 1
    assert rows(db, "select co_name from pgque.consumer") == [("app",)]
    assert value(db, "select count(*) from pgque.retry_queue") == 0


def test_one_consumer_registered_many_times_at_once(engine_database: Database, db: Connection) -> None:
    connections = [engine_database.connect() for _ in range(6)]
    results: list[int] = []
    threads = [
        threading.Thread(target=lambda c=c: results.append(value(c, "select pgque.subscribe('orders', 'n')")))
        for c in connections
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [0, 0, 0, 0, 0, 1]
