"""Starting, stopping and looking at what drives the engine; with pg_cron: test_pg_cron.py."""

from __future__ import annotations

import threading

import psycopg
import pytest

from tests.support.database import Connection, Database
from tests.support.queue import consume, create_queue, rows, send, tick, value


@pytest.fixture
def db(engine_database: Database) -> Connection:
    return engine_database.connect()


def test_start_without_pg_cron_says_what_to_do(db: Connection) -> None:
    with pytest.raises(psycopg.Error, match="pg_cron is not installed in database") as caught:
        db.execute("select pgque.start()")
    hint = str(caught.value.diag.message_hint)
    for word in ("create extension pg_cron", "pgque-exporter ticker", "pgque.ticker()", "pgque.maint()",
                 "pgque.maint_retry_events()", "pgque.maint_rotate_tables_step2()"):
        assert word in hint
    db.execute("select pgque.stop()")
    assert rows(db, "select ticker_job_id, maint_job_id, retry_job_id, step2_job_id from pgque.config") == [
        (None, None, None, None)
    ]


def test_a_schema_that_looks_like_pg_cron_is_not_asked(db: Connection) -> None:
    """Anybody may make one while the extension isn't there."""
    db.execute(
        "create schema cron; create table cron.job"
        " (jobid bigint, jobname text, database text, username text, active bool);"
        " insert into cron.job values (1, 'pgque_ticker', current_database(), current_user, true);"
        " create function cron.unschedule(bigint) returns bool language plpgsql as"
        " $$ begin raise exception 'trapped'; end $$"
    )
    db.execute("select pgque.stop()")
    assert ("ticker", "stopped") in rows(db, "select component, status from pgque.status()")
    db.execute("select pgque.uninstall()")


def test_status_tells_one_row_per_component(db: Connection) -> None:
    create_queue(db, "orders", "app", "other")
    value(db, "select pgque.register_subconsumer('orders', 'group', 'a')")
    found = {name: (status, detail) for name, status, detail in rows(db, "select * from pgque.status()")}
    assert list(found) == [
        "postgresql", "pgque", "pg_cron", "ticker", "maintenance", "retries", "rotation", "queues",
        "consumers",
    ]
    assert found["postgresql"] == ("ok", value(db, "show server_version"))
    assert found["pgque"] == ("ok", value(db, "select pgque.version()"))
    assert found["pg_cron"] == ("missing", "not installed in this database")
    assert found["ticker"][0] == "stopped"
    assert found["ticker"][1].startswith("no pg_cron job, last tick 00:00:0")
    assert found["maintenance"] == ("stopped", "no pg_cron job")
    assert (found["queues"], found["consumers"]) == (("ok", "1"), ("ok", "3"))


def test_status_of_an_engine_that_never_ticked(db: Connection) -> None:
    [(detail,)] = rows(db, "select detail from pgque.status() where component = 'ticker'")
    assert detail == "no pg_cron job, last tick never"


@pytest.mark.parametrize("period", [1, 2, 4, 5, 8, 10, 100, 125, 250, 500, 1000])
def test_the_tick_period_divides_a_second(db: Connection, period: int) -> None:
    assert value(db, "select pgque.set_tick_period_ms(%s)", period) == period
    assert value(db, "select tick_period_ms from pgque.config") == period


@pytest.mark.parametrize("period", [0, -100, 3, 300, 1001, 2000, None])
def test_other_tick_periods_are_refused(db: Connection, period: int | None) -> None:
    with pytest.raises(psycopg.Error, match="divisor of 1000 from 1 to 1000 ms"):
        db.execute("select pgque.set_tick_period_ms(%s)", (period,))
    assert value(db, "select tick_period_ms from pgque.config") == 100


def test_the_loop_ticks_in_transactions_of_its_own(engine_database: Database, db: Connection) -> None:
    """What is sent while it runs is delivered before it ends."""
    create_queue(db, "orders", "app")
    db.execute("update pgque.queue set queue_ticker_max_lag = '1 millisecond'")
    value(db, "select pgque.set_tick_period_ms(20)")
    loop = engine_database.connect()
    thread = threading.Thread(target=loop.execute, args=("call pgque.ticker_loop()",))
    got: list[str | None] = []
    sent: list[str] = []
    thread.start()
    while thread.is_alive():
        if len(got) == len(sent):
            sent.append(str(len(sent)))
            send(db, "orders", sent[-1])
        got += consume(db, "orders", "app")
    thread.join()
    assert len(got) >= 2
    assert got == sent[: len(got)]


def test_the_loop_makes_no_more_beats_than_fit_into_a_second(db: Connection) -> None:
    create_queue(db, "orders", "app")
    for setting in ("ticker_idle_period", "ticker_max_lag"):
        value(db, "select pgque.set_queue_config('orders', %s, '1 microsecond')", setting)
    for period, most in ((1000, 1), (250, 4)):
        before = value(db, "select count(*) from pgque.tick")
        value(db, "select pgque.set_tick_period_ms(%s)", period)
        db.execute("call pgque.ticker_loop()")
        assert 1 <= value(db, "select count(*) from pgque.tick") - before <= most


def test_the_loop_needs_to_commit(db: Connection) -> None:
    with pytest.raises(psycopg.errors.InvalidTransactionTermination), db.transaction():
        db.execute("call pgque.ticker_loop()")


def test_a_tick_notifies_by_the_queues_own_channel(engine_database: Database, db: Connection) -> None:
    name = "q" * 57
    create_queue(db, name)
    listener = engine_database.connect()
    listener.execute(f'listen "pgque_{name}"')
    ticks = [tick(db, name), tick(db, name)]
    heard = list(listener.notifies(timeout=10, stop_after=2))
    assert [(notice.channel, notice.payload) for notice in heard] == [
        (f"pgque_{name}", str(number)) for number in ticks
    ]


def test_test_helpers_take_a_message_through(db: Connection) -> None:
    create_queue(db, "orders", "app")
    assert value(db, "select pgque.assert_empty('orders')") is True
    sent = value(db, "select pgque.test_send('orders', '{\"id\": 1}')")
    with pytest.raises(psycopg.Error, match="consumer app has 1 events pending and 0 waiting"):
        db.execute("select pgque.assert_empty('orders')")
    with pytest.raises(psycopg.Error, match="expected one message in queue orders for consumer app, found 0"):
        db.execute("select pgque.test_consume('orders', 'app', 'default')")
    assert value(db, "select pgque.ticker()") == 1
    with pytest.raises(psycopg.Error, match=r"expected a message of type order\.created in queue"):
        db.execute("select pgque.test_consume('orders', 'app', 'order.created')")
    got = rows(db, "select msg_id, payload from pgque.test_consume('orders', 'app', 'default')")
    assert got == [(sent, '{"id": 1}')]
    assert value(db, "select pgque.assert_empty('orders')") is True


def test_a_test_may_send_a_message_without_payload(db: Connection) -> None:
    create_queue(db, "orders", "app")
    assert value(db, "select pgque.test_send('orders', null)") > 0
    value(db, "select pgque.ticker()")
    assert consume(db, "orders", "app") == [None]


def test_test_helpers_see_what_is_not_done_yet(db: Connection) -> None:
    create_queue(db, "orders", "app")
    value(db, "select pgque.register_subconsumer('orders', 'group', 'a')")
    value(db, "select pgque.set_queue_config('orders', 'max_retries', '1')")
    send(db, "orders", "1", "2")
    tick(db, "orders")
    with pytest.raises(psycopg.Error, match="found 2"):
        db.execute("select pgque.test_consume('orders', 'app', null)")
    consume(db, "orders", "app")
    assert value(db, "select max(batch_id) from pgque.receive_coop('orders', 'group', 'a')") > 0
    empty = "select pgque.assert_empty('orders')"
    with pytest.raises(psycopg.Error, match=r"consumer group\.a has 2 events pending"):
        db.execute(empty)

    value(db, "select count(pgque.nack(batch_id, m, '0')) from pgque.receive_coop('orders', 'group', 'a') m")
    value(db, "select pgque.ack(sub_batch) from pgque.subscription where sub_batch is not null")
    with pytest.raises(psycopg.Error, match="consumer group has 0 events pending and 2 waiting"):
        db.execute(empty)
    value(db, "select pgque.maint_retry_events()")
    tick(db, "orders")
    assert value(db, "select pgque.assert_dlq_empty('orders')") is True
    value(db, "select count(pgque.nack(batch_id, m, '0')) from pgque.receive_coop('orders', 'group', 'a') m")
    value(db, "select pgque.ack(sub_batch) from pgque.subscription where sub_batch is not null")
    assert value(db, empty) is True
    with pytest.raises(psycopg.Error, match="queue orders has 2 dead letters"):
        db.execute("select pgque.assert_dlq_empty('orders')")
    for call in ("assert_empty", "assert_dlq_empty"):
        with pytest.raises(psycopg.Error, match="queue not found: nowhere"):
            db.execute(f"select pgque.{call}('nowhere')".encode())
