"""The promise of the engine, under load: every consumer gets every committed event exactly once.

Writers commit in another order than they began, keep transactions open across ticks and roll some
back; two tickers, a rotation as short as it can be and a mover of retries run all the time; consumers
fail on single messages and on whole batches. One of the consumers is a cooperative group, whose workers
fall silent now and then, lose their batch to another worker, and come back to finish it. Nobody waits for
anybody, except that long transactions wait until the ticks they want to outlive have been written.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.support.database import Connection, Database
from tests.support.queue import Message, ack, nack, receive, rows, value

QUEUE = "load"
SEED = 20261121
WRITERS = 4
EVENTS_PER_WRITER = 5_000
ROTATIONS = 6  # at least so many while there is load; from the fourth on, tables that were in use are emptied
CREW = ("a", "b", "c")
SILENCE = 0.2  # seconds after which a worker of the crew counts as dead
BOUND = 180.0  # seconds after which a run is considered stuck


class Load:
    """What happened, and the signal that the writers are done."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.deadline = time.monotonic() + BOUND
        self.written = threading.Event()
        self.settled = threading.Event()
        self.lock = threading.Lock()
        self.ticks = 0
        self.rotations = 0
        self.retries = 0
        self.rolled_back = 0
        self.held_open = 0
        self.came_too_late = 0
        self.committed: Counter[str] = Counter()
        self.got: dict[str, Counter[str]] = {}
        self.errors: list[BaseException] = []

    def check_time(self) -> None:
        if time.monotonic() > self.deadline or self.errors:
            raise TimeoutError(
                f"the load did not come to an end: {sum(self.committed.values())} events, {self.ticks} ticks,"
                f" {self.rotations} rotations, {self.retries} retries, all written: {self.written.is_set()}"
            )


def write(load: Load, number: int) -> None:
    rng = random.Random(SEED + number)
    db = load.database.connect(autocommit=False)
    sent = 0
    while sent < EVENTS_PER_WRITER or load.rotations < ROTATIONS:
        load.check_time()
        if sent >= EVENTS_PER_WRITER:  # only rotations are missing, and those wait for consumers
            time.sleep(0.05)
        events = [f"{number}-{sent + i}" for i in range(rng.choice((1, 1, 2, 5, 20, 60)))]
        sent += len(events)
        halves = events[: len(events) // 2], events[len(events) // 2:]
        for part in halves:
            if rng.random() < 0.5:
                db.execute("select pgque.send_batch(%s, %s::text[])", (QUEUE, part))
            else:
                for event in part:
                    db.execute("select pgque.send(%s, %s)", (QUEUE, event))
            if part is halves[0] and rng.random() < 0.12:  # outlive a few ticks with half of it sent
                load.held_open += 1
                enough = load.ticks + rng.randint(1, 3)
                while load.ticks < enough:
                    load.check_time()
                    time.sleep(0.001)
        if rng.random() < 0.12:
            db.rollback()
            load.rolled_back += len(events)
            with load.lock:
                load.committed.update(dict.fromkeys(events, 0))
        else:
            db.commit()
            with load.lock:
                load.committed.update(events)


def keep_ticking(load: Load) -> None:
    db = load.database.connect()
    while not load.settled.is_set():
        load.check_time()
        # Forced, so that there are ticks without events too, and after the last commit.
        db.execute("select pgque.force_next_tick(%s)", (QUEUE,))
        if value(db, "select pgque.ticker()"):
            load.ticks += 1
        time.sleep(0.01)


def keep_rotating(load: Load) -> None:
    db = load.database.connect()
    while not load.settled.is_set():
        load.check_time()
        load.rotations += value(db, "select pgque.maint()")
        value(db, "select pgque.maint_rotate_tables_step2()")
        load.retries += value(db, "select pgque.maint_retry_events()")
        time.sleep(0.001)


def settle(load: Load) -> None:
    """After the writers: wait until every position sees every event there is, with no retry left."""
    load.written.wait()
    db = load.database.connect()
    while not load.settled.is_set():
        load.check_time()
        unfinished = rows(
            db,
            "select from pgque.retry_queue union all"
            " select from pgque.subscription"
            " join pgque.tick on tick_queue = sub_queue and tick_id = sub_last_tick"
            " join pgque.event_1 on not pg_visible_in_snapshot(ev_txid, tick_snapshot)",
        )
        if not unfinished:
            load.settled.set()
        time.sleep(0.01)


def consume_with_acks(load: Load, name: str) -> None:
    """The everyday functions, one transaction per batch; now and then it fails as a whole."""
    rng = random.Random(SEED + len(name))
    db = load.database.connect(autocommit=False)
    got = load.got[name]
    while not load.settled.is_set():
        load.check_time()
        messages = receive(db, QUEUE, name)
        done = []
        for message in messages:
            if rng.random() < 0.01 and (message.retry_count or 0) < 5:
                nack(db, message)
            else:
                done.append(str(message.payload))
        if messages and rng.random() < 0.1:
            db.rollback()
            continue
        if messages:
            assert ack(db, messages[0].batch_id) == 1
        db.commit()
        got.update(done)


def consume_by_primitives(load: Load, name: str) -> None:
    """The old functions in autocommit, and slowly: this one is rotation's brake."""
    rng = random.Random(SEED + len(name))
    db = load.database.connect()
    got = load.got[name]
    while not load.settled.is_set():
        load.check_time()
        batch = value(db, "select pgque.next_batch(%s, %s)", QUEUE, name)
        if batch is None:
            time.sleep(0.005)
            continue
        events = rows(db, "select ev_data from pgque.get_batch_events(%s)", batch)
        if rng.random() < 0.03:
            time.sleep(0.05)
            assert rows(db, "select ev_data from pgque.get_batch_events(%s)", batch) == events
        got.update(data for (data,) in events)
        assert value(db, "select pgque.finish_batch(%s)", batch) == 1


def consume_in_a_crew(load: Load, worker: str) -> None:
    """What a worker finished is what its ack() was answered for; another may have its batch by then."""
    rng = random.Random(SEED + ord(worker))
    db = load.database.connect()
    batches = 0
    while not load.settled.is_set():
        load.check_time()
        messages = rows(
            db,
            "select msg_id, batch_id, type, payload, retry_count"
            " from pgque.receive_coop(%s, 'crew', %s, 1000000, make_interval(secs => %s))",
            QUEUE, worker, SILENCE,
        )
        if not messages:
            time.sleep(0.005)
            continue
        batches += 1
        if batches % 100 == 30 * (CREW.index(worker) + 1):  # seldom, as rotation waits for it
            time.sleep(2 * SILENCE)
        done = []
        try:
            with db.transaction():
                for message in (Message(*row) for row in messages):
                    if rng.random() < 0.01 and (message.retry_count or 0) < 5:
                        nack(db, message)
                    else:
                        done.append(str(message.payload))
                finished = ack(db, messages[0][1])
        except psycopg.errors.UndefinedObject:  # nack() doesn't know the batch any more
            finished = 0
        if finished:
            with load.lock:
                load.got["crew"].update(done)
        else:
            load.came_too_late += 1


@contextmanager
def running(load: Load, *jobs: Callable[[], None]) -> Iterator[list[threading.Thread]]:
    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - reported by the test's own thread
            load.errors.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        for thread in threads:
            thread.join()


def test_every_consumer_gets_every_committed_event_exactly_once(
    engine_database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    db = engine_database.connect()
    load = Load(engine_database)
    value(db, "select pgque.create_queue(%s)", QUEUE)
    value(db, "select pgque.set_queue_config(%s, 'rotation_period', '1 microsecond')", QUEUE)
    value(db, "select pgque.set_queue_config(%s, 'max_retries', '1000')", QUEUE)
    for name in ("acks", "acks too", "primitives"):
        value(db, "select pgque.subscribe(%s, %s)", QUEUE, name)
        load.got[name] = Counter()
    for worker in CREW:
        value(db, "select pgque.subscribe_subconsumer(%s, 'crew', %s)", QUEUE, worker)
    load.got["crew"] = Counter()

    background = [
        lambda: keep_ticking(load),
        lambda: keep_ticking(load),
        lambda: keep_rotating(load),
        lambda: consume_with_acks(load, "acks"),
        lambda: consume_with_acks(load, "acks too"),
        lambda: consume_by_primitives(load, "primitives"),
        *(lambda worker=worker: consume_in_a_crew(load, worker) for worker in CREW),
        lambda: settle(load),
    ]
    with running(load, *background):
        with running(load, *(lambda n=n: write(load, n) for n in range(WRITERS))):
            pass
        load.written.set()

    assert load.errors == []
    expected = Counter({event: count for event, count in load.committed.items() if count})
    with capsys.disabled():
        print(
            f"\n  exactly once: {len(expected)} committed, {load.rolled_back} rolled back,"
            f" {load.held_open} transactions held across ticks, {load.ticks} ticks,"
            f" {load.rotations} rotations, {load.retries} retries, {load.came_too_late} batches taken over"
        )
    for name, got in load.got.items():
        lost, extra = expected - got, got - expected
        assert not lost, f"{name} lost {len(lost)}: {sorted(lost)[:5]}"
        assert not extra, f"{name} got {len(extra)} too often or not committed: {sorted(extra)[:5]}"
    assert len(expected) >= 10_000
    assert load.rolled_back > 0
    assert load.held_open > 0
    assert load.retries > 0
    assert load.came_too_late > 0
    assert load.rotations >= ROTATIONS
    assert_snapshots_in_order(db)


def assert_snapshots_in_order(db: Connection) -> None:
    """No tick may fail to see what the tick before it saw."""
    backwards = rows(
        db,
        "select later.tick_id, x from (select *, lag(tick_snapshot) over (order by tick_id) as before"
        " from pgque.tick) as later, pg_snapshot_xip(later.tick_snapshot) as x"
        " where pg_visible_in_snapshot(x, later.before)"
        " union all select later.tick_id, null from (select *, lag(tick_snapshot) over (order by tick_id)"
        " as before from pgque.tick) as later"
        " where pg_snapshot_xmax(tick_snapshot) < pg_snapshot_xmax(before)",
    )
    assert backwards == []
