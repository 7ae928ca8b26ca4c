"""Making, setting up, looking at and dropping queues."""

from __future__ import annotations

import threading

import psycopg
import pytest

from tests.support.database import Connection, Database, wait_until
from tests.support.queue import consume, create_queue, nack, receive, rows, send, tick, value


@pytest.fixture
def db(engine_database: Database) -> Connection:
    return engine_database.connect()


def objects(db: Connection) -> set[str]:
    return {
        name for (name,) in rows(
            db, "select relname from pg_class where relnamespace = 'pgque'::regnamespace and relkind <> 'c'"
        )
    }


def test_creating_twice_makes_one_queue(db: Connection) -> None:
    assert value(db, "select pgque.create_queue('orders')") == 1
    before = objects(db)
    assert value(db, "select pgque.create_queue('orders')") == 0
    assert objects(db) == before
    assert {"event_1", "event_1_0", "event_1_1", "event_1_2", "event_1_id_seq", "event_1_tick_seq"} <= before
    inherits = rows(
        db, "select inhrelid::regclass::text, inhparent::regclass::text from pg_inherits order by 1"
    )
    assert inherits == [
        ("pgque.event_1", "pgque.event_template"),
        ("pgque.event_1_0", "pgque.event_1"),
        ("pgque.event_1_1", "pgque.event_1"),
        ("pgque.event_1_2", "pgque.event_1"),
    ]


@pytest.mark.parametrize("name", ["q" * 57, "ä" * 28, "with space", 'quo"te', "it's", "%s", "schluß; drop"])
def test_queue_names_may_be_anything_up_to_57_bytes(db: Connection, name: str) -> None:
    create_queue(db, name, "app")
    db.execute(psycopg.sql.SQL("listen {}").format(psycopg.sql.Identifier(f"pgque_{name}")))
    send(db, name, "x")
    tick(db, name)
    assert consume(db, name, "app") == ["x"]
    assert value(db, "select pgque.drop_queue(%s, true)", name) == 1


@pytest.mark.parametrize("name", ["q" * 58, "ä" * 29, "", None])
def test_other_names_are_refused(db: Connection, name: str | None) -> None:
    with pytest.raises(psycopg.Error, match="queue name"):
        db.execute("select pgque.create_queue(%s)", (name,))


def test_dropping_is_refused_while_consumers_are_attached(db: Connection) -> None:
    untouched = objects(db)
    create_queue(db, "orders", "app")
    value(db, "select pgque.set_queue_config('orders', 'max_retries', '0')")
    send(db, "orders", "dead", "waiting")
    tick(db, "orders")
    dead, waiting = receive(db, "orders", "app")
    nack(db, dead)
    value(db, "select pgque.event_retry(%s, %s, 60)", waiting.batch_id, waiting.id)

    with pytest.raises(psycopg.Error, match="consumers are still attached"):
        db.execute("select pgque.drop_queue('orders')")
    assert value(db, "select pgque.drop_queue('orders', true)") == 1
    assert objects(db) == untouched
    for table in ("queue", "tick", "subscription", "retry_queue", "dead_letter", "consumer"):
        assert rows(db, f"select from pgque.{table}") == []
    with pytest.raises(psycopg.Error, match="queue not found: orders"):
        db.execute("select pgque.drop_queue('orders')")


def test_dropping_lets_a_consumer_at_work_finish(engine_database: Database, db: Connection) -> None:
    create_queue(db, "orders", "app")
    value(db, "select pgque.set_queue_config('orders', 'max_retries', '0')")
    send(db, "orders", "x")
    tick(db, "orders")
    worker = engine_database.connect(autocommit=False)
    [message] = receive(worker, "orders", "app")

    dropping = engine_database.connect()
    pid = dropping.info.backend_pid
    dropped: list[int] = []
    thread = threading.Thread(
        target=lambda: dropped.append(value(dropping, "select pgque.drop_queue('orders', true)"))
    )
    thread.start()
    wait_until(
        lambda: value(db, "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s", pid),
        what="the drop waits for the consumer",
    )
    nack(worker, message)
    worker.commit()
    thread.join()
    assert dropped == [1]


def test_dropping_leaves_other_queues_alone(db: Connection) -> None:
    create_queue(db, "orders", "app")
    create_queue(db, "other", "app")
    value(db, "select pgque.unsubscribe('orders', 'app')")
    assert value(db, "select pgque.drop_queue('orders')") == 1
    send(db, "other", "x")
    tick(db, "other")
    assert consume(db, "other", "app") == ["x"]


@pytest.mark.parametrize(
    ("param", "given", "stored"),
    [
        ("ticker_max_count", "7", "7"),
        ("ticker_max_lag", "1 hour", "01:00:00"),
        ("ticker_idle_period", "90 seconds", "00:01:30"),
        ("ticker_paused", "on", "true"),
        ("rotation_period", "1 day", "1 day"),
        ("external_ticker", "true", "true"),
        ("max_retries", "0", "0"),
    ],
)
def test_settings_are_stored_and_reset(db: Connection, param: str, given: str, stored: str) -> None:
    create_queue(db, "orders")
    create_queue(db, "other")
    column = f"select queue_{param}::text from pgque.queue order by queue_name"
    [(default,), _] = rows(db, column)
    assert value(db, "select pgque.set_queue_config('orders', %s, %s)", param, given) == 1
    assert rows(db, column) == [(stored,), (default,)]
    assert value(db, "select pgque.set_queue_config('orders', %s, null)", param) == 1
    assert rows(db, column) == [(default,), (default,)]


@pytest.mark.parametrize(
    ("param", "bad"),
    [
        ("ticker_max_count", "0"), ("ticker_max_count", "-1"), ("ticker_max_count", "many"),
        ("ticker_max_lag", "0"), ("ticker_max_lag", "-1 second"), ("ticker_idle_period", "0 seconds"),
        ("rotation_period", "-2 hours"), ("max_retries", "-1"), ("ticker_paused", "perhaps"),
        ("extra_maint", "{x}"), ("data_pfx", "public.t"), ("cur_table", "1"), ("", "1"), (None, "1"),
        # Beyond all time that the server knows: maint() of all queues, and receive(), would fail.
        ("rotation_period", "300000 years"), ("event_ttl", "7000 years"),
    ],
)
def test_settings_that_make_no_sense_are_refused(db: Connection, param: str | None, bad: str) -> None:
    create_queue(db, "orders")
    before = rows(db, "select * from pgque.queue")
    with pytest.raises(psycopg.Error):
        db.execute("select pgque.set_queue_config('orders', %s, %s)", (param, bad))
    assert rows(db, "select * from pgque.queue") == before


def test_a_setting_of_no_queue_is_reported(db: Connection) -> None:
    for given in ("1", None):
        with pytest.raises(psycopg.Error, match="queue not found: nowhere"):
            db.execute("select pgque.set_queue_config('nowhere', 'max_retries', %s)", (given,))


def test_no_maintenance_hook_can_be_stored(db: Connection) -> None:
    create_queue(db, "orders")
    with pytest.raises(psycopg.errors.CheckViolation):
        db.execute("update pgque.queue set queue_extra_maint = array['pgque.version']")


def test_queue_info(db: Connection) -> None:
    create_queue(db, "orders")
    create_queue(db, "idle")
    send(db, "orders", "1", "2", "3")
    info = "select queue_name, ev_new, last_tick_id, queue_cur_table, queue_ntables, ticker_lag > '0'"
    assert rows(db, f"{info} from pgque.get_queue_info()") == [
        ("idle", 0, 1, 0, 3, True),
        ("orders", 3, 1, 0, 3, True),
    ]
    assert rows(db, "select queue_name from pgque.get_queue_info('orders')") == [("orders",)]
    assert rows(db, "select queue_name from pgque.get_queue_info('nowhere')") == []
    assert rows(db, "select queue_name, ev_per_sec > 0 from pgque.get_queue_info()") == [
        ("idle", False),
        ("orders", True),
    ]

    # Three events over ten minutes, the ticker standing still ever since.
    db.execute("update pgque.tick set tick_time = now() - interval '10 minutes'")
    [(rate, lag)] = rows(db, "select ev_per_sec, ticker_lag from pgque.get_queue_info('orders')")
    assert rate == pytest.approx(3 / 600, rel=0.05)
    assert lag.total_seconds() >= 600

    db.execute("delete from pgque.tick")
    assert rows(db, "select ev_per_sec, ev_new, last_tick_id from pgque.get_queue_info('orders')") == [
        (None, None, None)
    ]


def test_consumer_info(db: Connection) -> None:
    create_queue(db, "orders", "app", "late")
    create_queue(db, "other", "app")
    send(db, "orders", "1", "2")
    info = "select queue_name, consumer_name, pending_events, last_tick, current_batch is not null, next_tick"
    assert rows(db, f"{info} from pgque.get_consumer_info()") == [
        ("orders", "app", 2, 1, False, None),
        ("orders", "late", 2, 1, False, None),
        ("other", "app", 0, 1, False, None),
    ]
    value(db, "select pgque.set_queue_config('orders', 'ticker_max_count', '1')")
    value(db, "select pgque.ticker()")
    messages = receive(db, "orders", "app")
    assert rows(db, f"{info} from pgque.get_consumer_info('orders', 'app')") == [
        ("orders", "app", 2, 1, True, 2)
    ]
    value(db, "select pgque.ack(%s)", messages[0].batch_id)
    assert rows(db, f"{info} from pgque.get_consumer_info('orders')") == [
        ("orders", "app", 0, 2, False, None),
        ("orders", "late", 2, 1, False, None),
    ]
    assert rows(db, "select queue_name from pgque.get_consumer_info(null, 'app')") == [
        ("orders",), ("other",)
    ]
    ages = rows(db, "select lag > '0' and last_seen > '0' from pgque.get_consumer_info()")
    assert ages == [(True,), (True,), (True,)]


def test_version(db: Connection) -> None:
    assert value(db, "select pgque.version()") == "0.1.0"
