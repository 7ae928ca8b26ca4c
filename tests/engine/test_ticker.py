"""When a tick is written, when not, and that ticks never go backwards."""

from __future__ import annotations

import threading

import psycopg
import pytest

from tests.support.database import Connection, Database, wait_until
from tests.support.queue import consume, create_queue, receive, rows, send, tick, value


@pytest.fixture
def db(engine_database: Database) -> Connection:
    connection = engine_database.connect()
    create_queue(connection, "orders", "app")
    return connection


def ticker(db: Connection, queue: str = "orders") -> int | None:
    found = value(db, "select pgque.ticker(%s)", queue)
    return None if found is None else int(found)


def age_ticks(db: Connection, by: str) -> None:
    """Let time pass: everything that was ticked was ticked that much earlier."""
    db.execute("update pgque.tick set tick_time = tick_time - %s::interval", (by,))


def test_a_new_queue_has_a_tick_and_wants_no_other(db: Connection) -> None:
    assert rows(db, "select tick_id, tick_event_seq from pgque.tick") == [(1, 0)]
    assert ticker(db) is None
    assert value(db, "select pgque.ticker()") == 0


def test_a_queue_that_lost_its_ticks_gets_one(db: Connection) -> None:
    db.execute("delete from pgque.tick")
    assert ticker(db) == 2


def test_the_very_first_event_counts(db: Connection) -> None:
    """A sequence not drawn from yet reads 1, and after the first draw it reads 1 as well."""
    value(db, "select pgque.set_queue_config('orders', 'ticker_max_count', '1')")
    assert ticker(db) is None
    send(db, "orders", "x")
    assert ticker(db) == 2
    assert rows(db, "select tick_event_seq from pgque.tick order by tick_id") == [(0,), (1,)]


def test_a_tick_comes_with_enough_events(db: Connection) -> None:
    value(db, "select pgque.set_queue_config('orders', 'ticker_max_count', '3')")
    send(db, "orders", "1", "2")
    assert ticker(db) is None
    send(db, "orders", "3")
    assert ticker(db) == 2
    assert ticker(db) is None


def test_a_tick_comes_with_any_event_when_the_last_is_old_enough(db: Connection) -> None:
    value(db, "select pgque.set_queue_config('orders', 'ticker_max_lag', '1 hour')")
    send(db, "orders", "1")
    age_ticks(db, "59 minutes")
    assert ticker(db) is None
    age_ticks(db, "1 minute")
    assert ticker(db) == 2


@pytest.mark.parametrize(
    ("last_pause", "last_had_events", "new_event", "due_after"),
    [
        ("1 hour", True, False, "1 hour"),  # the first idle tick comes as soon as one with events would
        ("1 hour", False, False, "2 hours"),
        ("5 hours", False, False, "10 hours"),
        ("15 hours", False, False, "20 hours"),
        ("20 hours", False, False, "20 hours"),
        ("10 minutes", False, False, "1 hour"),
        ("15 hours", False, True, "1 hour"),  # an event ends the idling at once
    ],
)
def test_an_idle_queue_ticks_ever_more_seldom(
    db: Connection, last_pause: str, last_had_events: bool, new_event: bool, due_after: str
) -> None:
    """After max_lag, then each time after twice the last pause, and at the latest after idle_period."""
    value(db, "select pgque.set_queue_config('orders', 'ticker_max_lag', '1 hour')")
    value(db, "select pgque.set_queue_config('orders', 'ticker_idle_period', '20 hours')")
    db.execute("select setval('pgque.event_1_id_seq', %s)", (11 if new_event else 10,))
    for age, expected in ((f"{due_after} -1 minute", False), (f"{due_after} 1 minute", True)):
        db.execute("delete from pgque.tick")
        db.execute(
            "insert into pgque.tick (tick_queue, tick_id, tick_time, tick_event_seq) values"
            " (1, 0, now() - %(age)s::interval - %(pause)s::interval, %(before)s),"
            " (1, 1, now() - %(age)s::interval, 10)",
            {"age": age, "pause": last_pause, "before": 9 if last_had_events else 10},
        )
        assert (ticker(db) is not None) is expected, age


def test_ticker_serves_all_queues_and_counts_them(db: Connection) -> None:
    create_queue(db, "second")
    create_queue(db, "idle")
    db.execute("select pgque.set_queue_config(queue_name, 'ticker_max_count', '1') from pgque.queue")
    send(db, "orders", "x")
    send(db, "second", "x")
    assert value(db, "select pgque.ticker()") == 2
    assert value(db, "select pgque.ticker()") == 0


@pytest.mark.parametrize("setting", ["ticker_paused", "external_ticker"])
def test_paused_and_external_queues_are_left_alone(db: Connection, setting: str) -> None:
    send(db, "orders", "x")
    age_ticks(db, "1 hour")
    value(db, "select pgque.set_queue_config('orders', %s, 'true')", setting)
    assert ticker(db) is None
    assert value(db, "select pgque.ticker()") == 0
    with pytest.raises(psycopg.Error, match="orders"):
        db.execute("select pgque.force_next_tick('orders')")

    value(db, "select pgque.set_queue_config('orders', %s, 'false')", setting)
    assert value(db, "select pgque.ticker()") == 1


def test_unknown_queues_are_reported(db: Connection) -> None:
    for call in ("ticker('x')", "force_next_tick('x')", "force_tick('x')", "ticker('x', 1, now(), 1)"):
        with pytest.raises(psycopg.Error, match="queue not found: x"):
            db.execute(f"select pgque.{call}")


@pytest.mark.parametrize("function", ["force_next_tick", "force_tick"])
def test_forcing_makes_the_next_call_tick(db: Connection, function: str) -> None:
    assert value(db, f"select pgque.{function}('orders')") == 1
    assert rows(db, "select tick_id from pgque.tick") == [(1,)]
    assert ticker(db) == 2
    assert consume(db, "orders", "app") == []


def test_each_tick_is_announced(engine_database: Database, db: Connection) -> None:
    listener = engine_database.connect()
    listener.execute('listen "pgque_orders"')
    tick_id = tick(db, "orders")
    [notice] = listener.notifies(timeout=10, stop_after=1)
    assert (notice.channel, notice.payload) == ("pgque_orders", str(tick_id))


def test_external_ticks_only_go_forwards(db: Connection) -> None:
    external = "select pgque.ticker('orders', %s, '2026-01-01', %s)"
    with pytest.raises(psycopg.Error, match="does not have an external ticker"):
        db.execute(external, (5, 10))
    value(db, "select pgque.set_queue_config('orders', 'external_ticker', 'true')")
    assert value(db, external, 5, 10) == 5
    assert value(db, external, 6, 10) == 6
    for tick_id, event_seq in ((6, 11), (5, 11), (None, 11)):
        with pytest.raises(psycopg.Error, match="tick id must increase"):
            db.execute(external, (tick_id, event_seq))
    for backwards in (9, None):
        with pytest.raises(psycopg.Error, match="must not go backwards"):
            db.execute(external, (7, backwards))
    with pytest.raises(psycopg.Error, match="tick time must be finite"):
        db.execute("select pgque.ticker('orders', 7, 'infinity', 11)")

    # Back to the built-in ticker: both its sequences are past what was given from outside.
    value(db, "select pgque.set_queue_config('orders', 'external_ticker', 'false')")
    [sent] = send(db, "orders", "x")
    assert sent == 11
    assert tick(db, "orders") == 7
    assert consume(db, "orders", "app") == ["x"]


def test_an_external_sequence_far_ahead_is_reached(db: Connection) -> None:
    value(db, "select pgque.set_queue_config('orders', 'external_ticker', 'true')")
    value(db, "select pgque.ticker('orders', 5, now(), %s)", 3_000_000_000)
    assert send(db, "orders", "x") == [3_000_000_001]


@pytest.mark.parametrize("call", ["ticker()", "ticker('orders')", "ticker('orders', 9, now(), 9)"])
def test_ticking_on_an_old_snapshot_is_refused(engine_database: Database, call: str, db: Connection) -> None:
    old = engine_database.connect(autocommit=False)
    old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with pytest.raises(psycopg.Error, match="read committed, not repeatable read"):
        old.execute(f"select pgque.{call}")


def test_a_second_ticker_leaves_while_the_first_is_at_work(engine_database: Database, db: Connection) -> None:
    """Without the lock both would write, and the later tick could carry the older snapshot."""
    value(db, "select pgque.set_queue_config('orders', 'ticker_max_count', '1')")
    send(db, "orders", "x")
    first = engine_database.connect(autocommit=False)
    assert ticker(first) == 2

    second = engine_database.connect()
    second.execute("set lock_timeout = '5s'")
    assert ticker(second) is None
    assert value(second, "select pgque.ticker()") == 0
    assert rows(second, "select tick_id from pgque.tick") == [(1,)]

    first.rollback()
    assert ticker(second) == 3  # the id of the rolled-back tick is gone


def test_the_snapshot_is_taken_under_the_lock(engine_database: Database, db: Connection) -> None:
    """A ticker that had to wait sees what was committed meanwhile. (Only the external form waits.)"""
    value(db, "select pgque.set_queue_config('orders', 'external_ticker', 'true')")
    first = engine_database.connect(autocommit=False)
    value(first, "select pgque.ticker('orders', 2, now(), 0)")
    second = engine_database.connect(autocommit=False)
    pid = second.info.backend_pid

    result: list[object] = []
    waiting = threading.Thread(
        target=lambda: result.append(value(second, "select pgque.ticker('orders', 3, now(), 0)"))
    )
    waiting.start()
    wait_until(
        lambda: value(db, "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s", pid),
        what="the second ticker waits",
    )
    send(db, "orders", "x")
    first.commit()
    waiting.join()
    second.commit()
    assert result == [3]
    assert value(
        db,
        "select pg_visible_in_snapshot((select ev_txid from pgque.event_1), tick_snapshot)"
        " from pgque.tick where tick_id = 3",
    )


def go_back_in_time(db: Connection, queue: str) -> None:
    """What a dump restored into a younger server looks like."""
    db.execute(
        "update pgque.tick set tick_snapshot = '900000000:900000001:900000000' where tick_queue ="
        " (select queue_id from pgque.queue where queue_name = %s)", (queue,),
    )


def test_ticks_from_the_future_of_another_server_are_reported(db: Connection) -> None:
    create_queue(db, "healthy")
    go_back_in_time(db, "orders")
    db.execute("select pgque.set_queue_config(queue_name, 'ticker_max_count', '1') from pgque.queue")
    send(db, "orders", "x")
    send(db, "healthy", "x")

    with pytest.raises(psycopg.Error, match="ahead of this server's transaction ids") as caught:
        ticker(db)
    assert "drop the queue" in str(caught.value.diag.message_hint)
    assert ticker(db, "healthy") is not None

    send(db, "healthy", "y")
    notices: list[str] = []
    db.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
    assert value(db, "select pgque.ticker()") == 1, "one broken queue must not stop the others"
    assert ["queue orders can not tick" in notice for notice in notices] == [True]


def test_receive_after_two_ticks_of_one_transaction(engine_database: Database, db: Connection) -> None:
    """Odd, but allowed: sending and ticking in one transaction delivers once."""
    both = engine_database.connect(autocommit=False)
    for name in ("1", "2", "3"):
        send(both, "orders", name)
        send(db, "orders", f"other {name}")
        tick(both, "orders")
    both.commit()
    tick(db, "orders")
    assert sorted(map(str, consume(db, "orders", "app"))) == ["1", "2", "3", "other 1", "other 2", "other 3"]
    assert receive(db, "orders", "app") == []
