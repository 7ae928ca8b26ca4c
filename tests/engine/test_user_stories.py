"""The stories that the engine's specification tells, one test each; US-8 is in test_pg_cron.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

from tests.support.database import ENGINE_INSTALL, PACK_INSTALL, Connection, Database, wait_until
from tests.support.queue import ack, consume, create_queue, nack, receive, rotate, rows, send, tick, value


def worker_that_hangs(database: Database, queue: str, consumer: str, then: str) -> subprocess.Popen[str]:
    """A process of its own that has received, and done `then` with the message, and commits nothing."""
    code = f"""
        import time, psycopg
        db = psycopg.connect({database.dsn()!r})
        [message] = db.execute("select payload from pgque.receive('{queue}', '{consumer}')").fetchall()
        db.execute({then!r}, message)
        print("done", flush=True)
        time.sleep(600)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "done\n"
    return process


def crash(db: Connection, process: subprocess.Popen[str]) -> None:
    """Kill the process, and wait until the server has noticed."""
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    others = (
        "select count(*) from pg_stat_activity where datname = current_database()"
        " and backend_type = 'client backend' and pid <> pg_backend_pid() and state <> 'idle'"
    )
    wait_until(lambda: value(db, others) == 0, what="the session of the killed worker is gone")


def test_us1_a_message_is_sent_received_and_acknowledged(engine_database: Database) -> None:
    db = engine_database.connect()
    create_queue(db, "orders", "app")
    send(db, "orders", '{"id":1}')
    tick(db, "orders")

    [message] = receive(db, "orders", "app", 10)
    assert (message.payload, message.type, message.retry_count) == ('{"id":1}', "default", None)
    assert ack(db, message.batch_id) == 1
    assert receive(db, "orders", "app", 10) == []

    assert value(db, "select pgque.drop_queue('orders', true)") == 1
    value(db, "select pgque.uninstall()")
    assert value(db, "select to_regnamespace('pgque')") is None


def test_us2_every_consumer_gets_every_event_at_its_own_pace(engine_database: Database) -> None:
    engine_database.install(PACK_INSTALL)
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
    lag = rows(db, "select consumer_name, lag > '0' from pgque.consumer_stats() order by 1")
    assert lag == [("analytics", False), ("audit", True), ("notifier", True)]
    assert value(db, "select pgque.drop_queue('events', true)") == 1


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
    assert value(db, "select pgque.drop_queue('jobs', true)") == 1


def test_us4_a_message_for_later_is_delivered_when_it_is_due(engine_database: Database) -> None:
    db = engine_database.connect()
    create_queue(db, "reminders", "sender")
    value(db, "select pgque.send_at('reminders', 'remind', '{\"user\": 7}', now() + interval '1 second')")
    value(db, "select pgque.maint()")
    tick(db, "reminders")
    assert receive(db, "reminders", "sender") == []

    wait_until(lambda: value(db, "select pgque.maint()") == 1, what="the message is due")
    tick(db, "reminders")
    [message] = receive(db, "reminders", "sender")
    assert (message.type, message.payload) == ("remind", '{"user": 7}')
    ack(db, message.batch_id)
    assert value(db, "select pgque.drop_queue('reminders', true)") == 1


def test_us5_ten_thousand_events_arrive_in_one_batch(engine_database: Database) -> None:
    engine_database.install(PACK_INSTALL)
    db = engine_database.connect()
    create_queue(db, "ingest", "etl")
    db.execute("select count(pgque.send('ingest', i::text)) from generate_series(1, 10000) as i")
    tick(db, "ingest")

    messages = receive(db, "ingest", "etl", 10_000)
    assert [message.payload for message in messages] == [str(i) for i in range(1, 10_001)]
    assert len({message.batch_id for message in messages}) == 1
    assert ack(db, messages[0].batch_id) == 1
    assert receive(db, "ingest", "etl") == []
    assert rows(db, "select queue_name, depth from pgque.queue_stats()") == [("ingest", 0)]

    db.execute("select pg_stat_force_next_flush()")
    dead = value(db, "select sum(n_dead_tup) from pg_stat_user_tables where relname like 'event_1%%'")
    assert dead == 0
    assert value(db, "select pgque.drop_queue('ingest', true)") == 1


def test_us6_rotation_waits_for_a_slow_consumer_and_goes_on_after_it(engine_database: Database) -> None:
    """The slow one even dies in the middle of its work."""
    engine_database.install(PACK_INSTALL)
    db = engine_database.connect()
    create_queue(db, "stream", "fast", "slow")
    value(db, "select pgque.set_queue_config('stream', 'rotation_period', '10 seconds')")
    tick(db, "stream")
    for consumer in ("fast", "slow"):
        assert consume(db, "stream", consumer) == []
    assert rotate(db, "stream")

    send(db, "stream", "first")
    tick(db, "stream")
    worker = worker_that_hangs(engine_database, "stream", "slow", "select %s")
    got: list[str | None] = []
    for number in range(30):
        send(db, "stream", str(number))
        tick(db, "stream")
        got += consume(db, "stream", "fast")
        assert not rotate(db, "stream")
    assert got == ["first", *(str(number) for number in range(30))]
    crash(db, worker)
    db.execute("update pgque.tick set tick_time = tick_time - interval '30 seconds' where tick_id < 10")
    db.execute("update pgque.subscription set sub_active = sub_active - interval '30 seconds'")
    health = dict(rows(db, "select check_name, status from pgque.queue_health() where status <> 'ok'"))
    assert "critical" in health.values()
    stuck = rows(db, "select queue_name, consumer_name from pgque.stuck_consumers('10 seconds')")
    assert stuck == [("stream", "slow")]

    assert not rotate(db, "stream")
    assert consume(db, "stream", "slow") == got
    assert rotate(db, "stream")
    send(db, "stream", "after")
    tick(db, "stream")
    for consumer in ("fast", "slow"):
        assert consume(db, "stream", consumer) == ["after"]


def test_us7_work_and_acknowledgement_share_one_fate(engine_database: Database) -> None:
    db = engine_database.connect()
    create_queue(db, "payments", "processor")
    db.execute("create table processed_payments (id int primary key)")
    work = "insert into processed_payments values (%s::int)"

    send(db, "payments", "42")
    tick(db, "payments")
    with db.transaction():
        [message] = receive(db, "payments", "processor")
        db.execute(work.encode(), (message.payload,))
        ack(db, message.batch_id)
    assert rows(db, "select id from processed_payments") == [(42,)]
    assert receive(db, "payments", "processor") == []

    [sent] = send(db, "payments", "43")
    tick(db, "payments")
    crash(db, worker_that_hangs(engine_database, "payments", "processor", work))
    assert rows(db, "select id from processed_payments") == [(42,)]

    # Acknowledged as well, and the session ended by the server before the commit.
    doomed = engine_database.connect(autocommit=False)
    [message] = receive(doomed, "payments", "processor")
    doomed.execute(work.encode(), (message.payload,))
    ack(doomed, message.batch_id)
    value(db, "select pg_terminate_backend(%s, 10000)", doomed.info.backend_pid)
    assert rows(db, "select id from processed_payments") == [(42,)]
    assert [message.id for message in receive(db, "payments", "processor")] == [sent]


def test_us9_what_is_wrong_is_seen_and_nothing_else(engine_database: Database) -> None:
    engine_database.install(PACK_INSTALL)
    db = engine_database.connect()
    for queue in ("healthy", "lagging", "failing"):
        create_queue(db, queue, "app")
        value(db, "select pgque.set_queue_config(%s, 'max_retries', '0')", queue)
        send(db, queue, "1", "2", "3")
        tick(db, queue)
    assert consume(db, "healthy", "app") == ["1", "2", "3"]
    for message in (messages := receive(db, "failing", "app")):
        nack(db, message, reason="no")
    ack(db, messages[0].batch_id)
    # The ticker goes on; what lies behind the first tick has been waiting for four hours.
    db.execute("update pgque.tick set tick_time = tick_time - interval '4 hours' where tick_id <= 2")
    db.execute("update pgque.subscription set sub_active = sub_active - interval '4 hours'")
    for queue in ("healthy", "lagging", "failing"):
        tick(db, queue)

    stats = rows(db, "select queue_name, depth, consumers, dlq_count from pgque.queue_stats() order by 1")
    # A forced tick stands for events that never come; nobody knows that before they are looked for.
    assert [(name, count, dead) for name, _, count, dead in stats] == [
        ("failing", 1, 3), ("healthy", 1, 0), ("lagging", 1, 0),
    ]
    assert rows(db, "select queue_name from pgque.stuck_consumers('1 hour') order by 1") == [("lagging",)]
    lag = dict(rows(db, "select queue_name, lag > '3 hours' from pgque.consumer_stats()"))
    assert lag["lagging"]
    status = rows(
        db,
        "select queue_name, max(array_position(array['ok', 'warning', 'critical'], status))"
        " from pgque.queue_health() where queue_name <> 'system' group by 1",
    )
    assert dict(status)["lagging"] == 3
    names = {name for (name,) in rows(db, "select distinct metric_name from pgque.otel_metrics()")}
    assert {"pgque.queue.depth", "pgque.consumer.lag_seconds", "pgque.message.dead_lettered"} <= names


def test_us10_installing_again_keeps_everything_and_it_goes_on(engine_database: Database) -> None:
    """That not a single row changes: test_install.py."""
    db = engine_database.connect()
    create_queue(db, "orders", "app", "late")
    sent = send(db, "orders", "1", "2", "3")
    tick(db, "orders")
    [first, *_] = receive(db, "orders", "app")
    value(db, "select pgque.send_at('orders', 'later', '4', now() + interval '1 hour')")
    info = "select consumer_name, last_tick, current_batch, pending_events from pgque.get_consumer_info()"
    before = rows(db, info)

    engine_database.install(ENGINE_INSTALL)
    assert rows(db, info) == before
    assert [message.id for message in receive(db, "orders", "app")] == sent
    assert ack(db, first.batch_id) == 1
    db.execute("update pgque.delayed_events set de_deliver_at = now()")
    assert value(db, "select pgque.maint()") == 1
    tick(db, "orders")
    assert consume(db, "orders", "app") == ["4"]
    assert consume(db, "orders", "late") == ["1", "2", "3", "4"]
