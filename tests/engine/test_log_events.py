"""The structured events in the server's log: which operations write them, and what they carry."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from pgque_exporter.demo.cluster import Cluster, embedded_bindir
from tests.support.database import ENGINE_INSTALL, Connection, Database, wait_until
from tests.support.queue import ack, consume, create_queue, nack, receive, rotate, rows, send, tick, value
from tests.support.server_log import LogEvent, ServerLog


@pytest.fixture
def db(engine_database: Database) -> Connection:
    connection = engine_database.connect()
    create_queue(connection, "orders", "app")
    return connection


@pytest.fixture
def log(db: Connection, cluster: Cluster) -> ServerLog:
    """The log from here on."""
    return ServerLog(cluster)


def queue_event(message: str, **attrs: object) -> LogEvent:
    return LogEvent("queue", "info", message, attrs)


def consumer_event(message: str, **attrs: object) -> LogEvent:
    return LogEvent("consumer", "info", message, attrs)


def test_making_a_queue_is_told_once(db: Connection, log: ServerLog) -> None:
    value(db, "select pgque.create_queue('bills')")
    value(db, "select pgque.create_queue('bills')")
    queue_id = value(db, "select queue_id from pgque.queue where queue_name = 'bills'")
    assert log.events() == [queue_event("queue created", queue="bills", queue_id=queue_id)]


def test_dropping_a_queue_tells_what_went_with_it(db: Connection, log: ServerLog) -> None:
    value(db, "select pgque.subscribe('orders', 'other')")
    send(db, "orders", "a", "b", "c")
    tick(db, "orders")
    dead, *retried = receive(db, "orders", "app")
    for message in retried:
        nack(db, message)
    value(db, "select pgque.set_queue_config('orders', 'max_retries', '0')")
    nack(db, dead)
    log.mark()
    value(db, "select pgque.drop_queue('orders', true)")

    dropped = {"queue": "orders", "tick_id": 1, "reason": "queue dropped"}
    events = log.events()
    assert sorted(event.attrs["consumer"] for event in events[:-1]) == ["app", "other"]
    assert [event.attrs | {"consumer": ""} for event in events[:-1]] == [dropped | {"consumer": ""}] * 2
    assert events[-1] == queue_event(
        "queue dropped", queue="orders", queue_id=1, consumers=2, retries_deleted=2, dead_letters_deleted=1
    )


def test_a_refused_drop_tells_nothing(db: Connection, log: ServerLog) -> None:
    with pytest.raises(psycopg.errors.ObjectInUse):
        db.execute("select pgque.drop_queue('orders')")
    assert log.events() == []


def test_consumers_come_move_and_go(db: Connection, log: ServerLog) -> None:
    send(db, "orders", "a")
    last = tick(db, "orders")
    for _ in range(2):  # the second changes nothing
        value(db, "select pgque.subscribe('orders', 'late')")
    value(db, "select pgque.register_consumer_at('orders', 'late', 1)")
    [message] = receive(db, "orders", "late")
    nack(db, message)
    for _ in range(2):
        value(db, "select pgque.unsubscribe('orders', 'late')")

    who = {"queue": "orders", "consumer": "late"}
    assert log.events() == [
        consumer_event("consumer registered", **who, tick_id=last),
        consumer_event("consumer moved", **who, tick_id=1, from_tick_id=last),
        consumer_event("consumer unregistered", **who, tick_id=1, retries_deleted=1),
    ]


def test_a_dead_letter_is_told_with_its_reason_and_without_its_payload(
    db: Connection, log: ServerLog
) -> None:
    value(db, "select pgque.set_queue_config('orders', 'max_retries', '0')")
    [event_id] = send(db, "orders", "the secret payload")
    end = tick(db, "orders")
    [message] = receive(db, "orders", "app")
    # A client that writes the whole message into its statement.
    statement = (
        f"select pgque.nack({message.batch_id}, row({event_id}, {message.batch_id}, 'default',"
        " 'the secret payload', null, now(), null, null, null, null)::pgque.message, '1 second',"
        " 'no such customer')"
    )
    for _ in range(2):  # a second time it is there already
        db.execute(statement.encode())

    assert log.events() == [
        LogEvent(
            "dead_letter",
            "warning",
            "event moved to the dead letters",
            {
                "queue": "orders",
                "consumer": "app",
                "event_id": event_id,
                "batch_id": message.batch_id,
                "tick_id": end,
                "retries": 0,
                "reason": "no such customer",
            },
        )
    ]
    assert "secret" not in log.text()


def test_a_long_reason_is_cut(db: Connection, log: ServerLog) -> None:
    value(db, "select pgque.set_queue_config('orders', 'max_retries', '0')")
    send(db, "orders", "a")
    tick(db, "orders")
    [message] = receive(db, "orders", "app")
    nack(db, message, reason="line\n" * 1000)
    ack(db, message.batch_id)
    [event] = log.events()
    assert event.attrs["reason"] == "line\n" * 40
    assert value(db, "select length(dl_reason) from pgque.dead_letter") == 5000


def test_a_retry_is_no_event(db: Connection, log: ServerLog) -> None:
    send(db, "orders", "a")
    tick(db, "orders")
    nack(db, receive(db, "orders", "app")[0])
    assert log.events() == []


def test_both_steps_of_a_rotation_are_told(db: Connection, log: ServerLog) -> None:
    send(db, "orders", "a")
    tick(db, "orders")
    consume(db, "orders", "app")  # nobody needs the first tick any more
    assert rotate(db, "orders")
    assert log.events() == [
        LogEvent(
            "rotation",
            "info",
            "rotation step 1 done",
            {"queue": "orders", "from_table": 0, "to_table": 1, "ticks_deleted": 1},
        ),
        LogEvent("rotation", "info", "rotation step 2 done", {"queue": "orders", "table": 1}),
    ]
    log.mark()
    value(db, "select pgque.maint()")
    value(db, "select pgque.maint_rotate_tables_step2()")
    assert log.events() == [], "nothing was due"


def test_each_queue_that_completes_its_rotation_is_told(db: Connection, log: ServerLog) -> None:
    value(db, "select pgque.unsubscribe('orders', 'app')")
    create_queue(db, "bills")
    db.execute("update pgque.queue set queue_switch_time = now() - interval '1 day'")
    assert value(db, "select pgque.maint()") == 2
    log.mark()
    assert value(db, "select pgque.maint_rotate_tables_step2()") == 2
    assert sorted(event.attrs["queue"] for event in log.events()) == ["bills", "orders"]


def test_a_sequence_behind_the_last_tick_is_told_once(db: Connection, log: ServerLog) -> None:
    send(db, "orders", *"abcde")
    before = tick(db, "orders")
    last_seq = value(db, "select tick_event_seq from pgque.tick where tick_id = %s", before)
    value(db, "select setval('pgque.event_1_id_seq', 2)")
    db.execute("update pgque.tick set tick_time = tick_time - interval '1 hour'")
    log.mark()
    after = value(db, "select pgque.ticker('orders')")
    db.execute("update pgque.tick set tick_time = tick_time - interval '1 hour'")
    assert value(db, "select pgque.ticker('orders')") == after + 1

    assert log.events() == [
        LogEvent(
            "ticker",
            "warning",
            "the event sequence is behind the last tick",
            {
                "queue": "orders",
                "tick_id": after,
                "event_seq": 2,
                "last_tick_id": before,
                "last_event_seq": last_seq,
                "events": 2 - last_seq,
            },
        )
    ]


@pytest.mark.parametrize("call", ["pgque.ticker()", "pgque.ticker('orders')"])
def test_transaction_ids_that_went_backwards_are_told(db: Connection, log: ServerLog, call: str) -> None:
    db.execute("update pgque.tick set tick_snapshot = '900000000:900000001:900000000'")
    try:
        db.execute(f"select {call}".encode())
    except psycopg.errors.ObjectNotInPrerequisiteState:
        assert call == "pgque.ticker('orders')", "the others must go on"

    [event] = log.events()
    assert (event.component, event.level) == ("ticker", "error")
    assert event.message == "transaction ids went backwards"
    server_xmax = event.attrs.pop("server_xmax")
    assert event.attrs == {"queue": "orders", "tick_id": 1, "tick_xmax": "900000001"}
    assert 0 < int(server_xmax) <= value(db, "select pg_snapshot_xmax(pg_current_snapshot())::text::int8")


def test_an_ordinary_life_is_quiet(db: Connection, log: ServerLog) -> None:
    send(db, "orders", "a")
    tick(db, "orders")
    ack(db, receive(db, "orders", "app")[0].batch_id)
    assert log.events() == []


def test_the_line_stays_when_the_operation_is_rolled_back(db: Connection, log: ServerLog) -> None:
    with db.transaction(force_rollback=True):
        create_queue(db, "never")
    assert [event.attrs["queue"] for event in log.events()] == ["never"]
    assert rows(db, "select from pgque.queue where queue_name = 'never'") == []


@pytest.mark.parametrize("role", ["pgque_reader", "pgque_writer", "pgque_admin"])
def test_applications_add_events_of_their_own(db: Connection, log: ServerLog, role: str) -> None:
    db.execute(f"set role {role}".encode())
    db.execute("select pgque.log_event('ERROR', 'import', 'gave up', '{\"queue\": \"orders\", \"file\": 7}')")
    db.execute("select pgque.log_event('debug', 'import', 'no more')")
    assert log.events() == [
        LogEvent("import", "error", "gave up", {"queue": "orders", "file": 7}),
        LogEvent("import", "debug", "no more", {}),
    ]


@pytest.mark.parametrize(
    ("arguments", "event", "warning"),
    [
        (("loud", "app", "m", "{}"), LogEvent("app", "info", "m", {}), "the level must be"),
        ((None, "app", "m", "{}"), LogEvent("app", "info", "m", {}), "the level must be"),
        (("info", "a b\nLOG:  x", "m", "{}"), LogEvent("unknown", "info", "m", {}), "the component must be"),
        (("info", None, "m", "{}"), LogEvent("unknown", "info", "m", {}), "the component must be"),
        (
            ("info", "app", "m", "[1]"),
            LogEvent("app", "info", "m", {"attributes": [1]}),
            "the attributes must be a JSON object, not a JSON array",
        ),
        (
            ("info", "app", "m", json.dumps({"x": "y" * 9000})),
            LogEvent("app", "info", "m", {"attributes_left_out_bytes": 9009}),
            "larger than 8 kB",
        ),
        (("info", "app", "a\nLOG:  b\tc", None), LogEvent("app", "info", "a LOG:  b c", {}), None),
        (("info", "app", None, "{}"), LogEvent("app", "info", "", {}), None),
        (("info", "app", "m" * 5000, "{}"), LogEvent("app", "info", "m" * 1000, {}), None),
    ],
)
def test_what_can_not_be_used_is_replaced_and_fails_nobody(
    db: Connection,
    log: ServerLog,
    arguments: tuple[str | None, ...],
    event: LogEvent,
    warning: str | None,
) -> None:
    notices: list[str] = []
    db.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
    db.execute("select pgque.log_event(%s, %s, %s, %s)", arguments)
    assert log.events() == [event]
    assert [warning is not None and warning in notice for notice in notices] == [True] * (warning is not None)


def test_the_session_keeps_its_own_log_settings(db: Connection, log: ServerLog) -> None:
    db.execute("set log_min_error_statement = 'warning'")
    with db.transaction():
        db.execute("select pgque.log_event('info', 'app', 'm')")
        assert value(db, "show log_min_error_statement") == "warning"
    assert value(db, "show log_min_error_statement") == "warning"
    with pytest.raises(psycopg.errors.UndefinedFunction):
        db.execute("select no_such_function()")
    assert "STATEMENT:  select no_such_function()" in log.text()


def test_an_owner_without_the_right_to_change_log_settings_logs_all_the_same(
    db: Connection, log: ServerLog
) -> None:
    db.execute("create role plain")
    try:
        db.execute("grant usage on schema pgque to plain")
        db.execute("alter function pgque.log_event(text, text, text, jsonb) owner to plain")
        create_queue(db, "bills")
        assert [event.message for event in log.events()] == ["queue created"]
    finally:
        db.execute("drop owned by plain cascade")
        db.execute("drop role plain")


def test_events_come_whole_in_a_log_of_json(tmp_path: Path) -> None:
    settings = {"logging_collector": "on", "log_destination": "jsonlog", "log_filename": "server.log"}
    with Cluster(embedded_bindir(), settings=settings) as cluster:
        database = Database(cluster, "postgres")
        try:
            database.install(ENGINE_INSTALL)
            create_queue(database.connect(), 'a "quoted"\nqueue')
        finally:
            database.close()
        path = cluster.pgdata / "log" / "server.json"

        def found() -> list[dict[str, str]]:
            complete, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
            lines = [json.loads(line) for line in complete.splitlines()]
            return [line for line in lines if line["message"].startswith("pgque.")]

        wait_until(found, what="the line reaches the log")
        [line] = found()
        assert (line["error_severity"], line["message"]) == ("LOG", "pgque.queue.info queue created")
        assert json.loads(line["detail"]) == {"queue": 'a "quoted"\nqueue', "queue_id": 1}
        assert "statement" not in line
