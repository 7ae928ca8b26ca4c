"""The published Python client, unchanged, against this engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pgque
import psycopg
import pytest

from tests.support.database import Connection, Database, wait_until
from tests.support.queue import create_queue, rows, send, tick, value

NEVER = 3600  # seconds between polls: whatever arrives was announced


@pytest.fixture
def db(engine_database: Database) -> Connection:
    connection = engine_database.connect()
    create_queue(connection, "orders", "app")
    return connection


@contextmanager
def consuming(db: Connection, consumer: pgque.Consumer) -> Iterator[None]:
    """Run a consumer in a thread from the moment it listens until the block ends."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            consumer.start()
        except BaseException as error:  # noqa: BLE001 - reported by the test's own thread
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(
            lambda: failures or value(
                db, "select count(*) from pg_stat_activity where datname = current_database()"
                    " and pid <> pg_backend_pid() and state = 'idle' and query not ilike 'listen%%'",
            ),
            what="the consumer's first poll",
        )
        yield
    finally:
        consumer.stop()
        thread.join()
    assert failures == []


def collect(consumer: pgque.Consumer, event_type: str = "*") -> list[pgque.Message]:
    """Have a consumer put every message of a type into the returned list."""
    got: list[pgque.Message] = []

    @consumer.on(event_type)
    def handle(message: pgque.Message) -> None:
        got.append(message)

    return got


def test_produce_and_consume_by_hand(engine_database: Database, db: Connection) -> None:
    with pgque.connect(engine_database.dsn(), autocommit=True) as client:
        assert client.subscribe("orders", "hand") == 1
        assert client.subscribe("orders", "hand") == 0
        ids = [
            client.send("orders", {"id": 1}),
            client.send("orders", [1, 2], type="order.list"),
            client.send("orders", pgque.Event(payload={"id": 2}, type="order.created")),
            client.send("orders"),
            *client.send_batch("orders", "bulk", [{"n": 1}, "2", None]),
        ]
        assert client.force_next_tick("orders") == 1
        assert client.ticker("orders") == 2
        assert client.ticker_all() == 0

        messages = client.receive("orders", "hand")
        assert [m.msg_id for m in messages] == ids
        assert [(m.type, m.payload) for m in messages] == [
            ("default", '{"id": 1}'),
            ("order.list", "[1, 2]"),
            ("order.created", '{"id": 2}'),
            ("default", "null"),
            ("bulk", '{"n": 1}'),
            ("bulk", "2"),
            ("bulk", "null"),
        ]
        assert client.ack(messages[0].batch_id) == 1
        assert client.ack(messages[0].batch_id) == 0
        assert client.receive("orders", "hand") == []
        assert client.unsubscribe("orders", "hand") == 1
        assert client.unsubscribe("orders", "hand") == 0


def test_the_client_knows_the_errors(engine_database: Database, db: Connection) -> None:
    with pgque.connect(engine_database.dsn(), autocommit=True) as client:
        for call in (
            lambda: client.send("nowhere", {}),
            lambda: client.send_batch("nowhere", "t", [{}]),
            lambda: client.subscribe("nowhere", "app"),
            lambda: client.receive("nowhere", "app"),
            lambda: client.ticker("nowhere"),
            lambda: client.force_next_tick("nowhere"),
        ):
            with pytest.raises(pgque.PgqueQueueNotFound):
                call()
        with pytest.raises(pgque.PgqueConsumerNotFound):
            client.receive("orders", "nobody")
        stray = pgque.Message(1, 99, "t", "p", None, None)
        with pytest.raises(pgque.PgqueBatchNotFound):
            client.nack(99, stray)


def test_a_consumer_is_woken_by_each_tick(engine_database: Database, db: Connection) -> None:
    consumer = pgque.Consumer(engine_database.dsn(), queue="orders", name="app", poll_interval=NEVER)
    created = collect(consumer, "order.created")
    others = collect(consumer)
    with consuming(db, consumer):
        for number in range(3):
            value(db, "select pgque.send('orders', 'order.created', %s)", str(number))
            send(db, "orders", f"other {number}")
            tick(db, "orders")
            wait_until(
                lambda n=number: len(created) == len(others) == n + 1,  # type: ignore[misc]
                what=f"messages {number}",
            )
    assert [m.payload for m in created] == ["0", "1", "2"]
    assert [m.payload for m in others] == ["other 0", "other 1", "other 2"]
    wait_until(
        lambda: value(db, "select last_tick from pgque.get_consumer_info('orders', 'app')") == 4,
        what="the last acknowledgement",
    )


def test_a_consumer_gets_past_ticks_without_events(engine_database: Database, db: Connection) -> None:
    """It never learns the id of a batch without messages, so it can't acknowledge one."""
    for _ in range(5):
        tick(db, "orders")
    consumer = pgque.Consumer(engine_database.dsn(), queue="orders", name="app", poll_interval=NEVER)
    got = collect(consumer)
    with consuming(db, consumer):
        tick(db, "orders")
        send(db, "orders", "x")
        tick(db, "orders")
        wait_until(lambda: got, what="the message behind the empty ticks")
    assert [m.payload for m in got] == ["x"]


def test_a_failing_handler_gets_a_retry_and_then_a_dead_letter(
    engine_database: Database, db: Connection
) -> None:
    value(db, "select pgque.set_queue_config('orders', 'max_retries', '2')")
    consumer = pgque.Consumer(
        engine_database.dsn(), queue="orders", name="app", poll_interval=NEVER, retry_after=0
    )
    attempts: list[int | None] = []
    good = collect(consumer, "good")

    @consumer.on("bad")
    def refuse(message: pgque.Message) -> None:
        attempts.append(message.retry_count)
        raise ValueError("can not do that")

    with consuming(db, consumer):
        value(db, "select pgque.send('orders', 'bad', 'b')")
        value(db, "select pgque.send('orders', 'good', 'g')")
        for delivery in (1, 2, 3):
            tick(db, "orders")
            wait_until(lambda n=delivery: len(attempts) == n, what=f"delivery {delivery}")  # type: ignore[misc]
            if delivery < 3:
                wait_until(
                    lambda: value(db, "select pgque.maint_retry_events()") == 1, what="the retry is put aside"
                )
        wait_until(lambda: rows(db, "select from pgque.dead_letter"), what="the dead letter")
    assert attempts == [None, 1, 2]
    assert [m.payload for m in good] == ["g"]
    dead = rows(db, "select ev_type, ev_data, ev_retry, dl_reason from pgque.dlq_inspect('orders')")
    assert dead == [("bad", "b", 2, "max retries exceeded")]


def test_a_type_without_handler_is_put_aside(engine_database: Database, db: Connection) -> None:
    consumer = pgque.Consumer(engine_database.dsn(), queue="orders", name="app", poll_interval=NEVER)
    known = collect(consumer, "known")
    with consuming(db, consumer):
        value(db, "select pgque.send('orders', 'unknown', 'u')")
        value(db, "select pgque.send('orders', 'known', 'k')")
        tick(db, "orders")
        wait_until(lambda: known, what="the known message")
        wait_until(lambda: rows(db, "select from pgque.retry_queue"), what="the retry")
    assert rows(db, "select ev_type, ev_retry from pgque.retry_queue") == [("unknown", 1)]


def test_a_consumer_works_with_the_rights_of_a_reader(engine_database: Database, db: Connection) -> None:
    db.execute("create role app_reader login in role pgque_reader")
    try:
        consumer = pgque.Consumer(
            engine_database.dsn(user="app_reader"), queue="orders", name="app", poll_interval=NEVER
        )
        got = collect(consumer)
        with consuming(db, consumer):
            send(db, "orders", "x")
            tick(db, "orders")
            wait_until(lambda: got, what="the message")
        with pgque.connect(engine_database.dsn(user="app_reader"), autocommit=True) as client:
            refused: Callable[[], object] = lambda: client.send("orders", {})  # noqa: E731
            with pytest.raises(pgque.PgqueError, match="permission denied"):
                refused()
    finally:
        db.execute("drop role app_reader")


def test_a_crash_between_receive_and_ack_repeats_the_batch(engine_database: Database, db: Connection) -> None:
    send(db, "orders", "x")
    tick(db, "orders")
    with pgque.connect(engine_database.dsn()) as client:
        [before] = client.receive("orders", "app")
        value(db, "select pg_terminate_backend(%s, 10000)", client.conn.info.backend_pid)
        with pytest.raises(psycopg.OperationalError):
            client.conn.commit()
    with pgque.connect(engine_database.dsn()) as client:
        [after] = client.receive("orders", "app")
        assert (after.msg_id, after.payload) == (before.msg_id, before.payload)
        assert client.ack(after.batch_id) == 1
        client.conn.commit()


# --- what the client's own documentation shows ----------------------------------------------------


def test_the_quickstart_of_the_client(engine_database: Database, db: Connection) -> None:
    """Producer and consumer as its front page has them, each with commits of its own."""
    db.execute("create role shop login in role pgque_reader, pgque_writer")
    try:
        with pgque.connect(engine_database.dsn(user="shop")) as client:
            client.subscribe("orders", "order_worker")
            client.conn.commit()
            event_id = client.send("orders", {"order_id": 42}, type="order.created")
            batch_ids = client.send_batch("orders", "order.created", [{"order_id": 43}, {"order_id": 44}])
            client.conn.commit()
        consumer = pgque.Consumer(
            dsn=engine_database.dsn(user="shop"), queue="orders", name="order_worker", poll_interval=NEVER
        )
        created = collect(consumer, "order.created")
        unknown = collect(consumer)
        with consuming(db, consumer):
            send(db, "orders", "something else")
            tick(db, "orders")
            wait_until(lambda: len(created) == 3 and unknown, what="all four messages")
        assert [message.msg_id for message in created] == [event_id, *batch_ids]
        assert [message.payload for message in created] == [f'{{"order_id": {n}}}' for n in (42, 43, 44)]
    finally:
        db.execute("drop role shop")


def test_a_type_without_handler_is_acknowledged_on_request(engine_database: Database, db: Connection) -> None:
    consumer = pgque.Consumer(
        engine_database.dsn(), queue="orders", name="app", poll_interval=NEVER, unknown_handler_policy="ack"
    )
    known = collect(consumer, "known")
    with consuming(db, consumer):
        value(db, "select pgque.send('orders', 'unknown', 'u')")
        value(db, "select pgque.send('orders', 'known', 'k')")
        tick(db, "orders")
        wait_until(lambda: known, what="the known message")
    assert rows(db, "select from pgque.retry_queue union all select from pgque.dead_letter") == []


def test_workers_of_a_cooperative_consumer_share_its_messages(
    engine_database: Database, db: Connection
) -> None:
    workers = [
        pgque.Consumer(
            dsn=engine_database.dsn(), queue="orders", name="order_worker", poll_interval=NEVER,
            subconsumer=f"worker-{number}", dead_interval="5 minutes",
        )
        for number in (1, 2)
    ]
    got = [collect(worker) for worker in workers]
    with consuming(db, workers[0]), consuming(db, workers[1]):
        members = "select count(*) from pgque.subscription where sub_role = 'coop_member'"
        wait_until(lambda: value(db, members) == 2, what="both workers have registered")
        for number in range(20):  # a worker takes one batch each time it is woken
            send(db, "orders", str(number))
            tick(db, "orders")
            wait_until(lambda n=number: len(got[0]) + len(got[1]) == n + 1, what=f"message {number}")  # type: ignore[misc]
    assert sorted(int(str(message.payload)) for part in got for message in part) == list(range(20))


def test_the_low_level_calls_for_cooperative_consumers(engine_database: Database, db: Connection) -> None:
    with pgque.connect(engine_database.dsn(), autocommit=True) as client:
        for worker in ("worker-1", "worker-2"):
            assert client.subscribe_subconsumer("orders", "order_worker", worker) == 1
        client.send("orders", {"n": 1})
        client.force_next_tick("orders")
        client.ticker("orders")
        messages = client.receive_coop(
            "orders", "order_worker", "worker-1", max_messages=100, dead_interval="5 minutes"
        )
        assert [message.payload for message in messages] == ['{"n": 1}']
        assert client.touch_subconsumer("orders", "order_worker", "worker-1") == 1
        with pytest.raises(pgque.PgqueError, match="has an open batch"):
            client.unsubscribe_subconsumer("orders", "order_worker", "worker-1")
        assert client.unsubscribe_subconsumer("orders", "order_worker", "worker-1", batch_handling=1) == 1
        assert client.unsubscribe_subconsumer("orders", "order_worker", "worker-2") == 1
    assert rows(db, "select ev_data from pgque.retry_queue") == [('{"n": 1}',)]
