"""The optional instrumentation: exact whatever happens, and in nobody's way."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.support import queue as driven
from tests.support.database import INSTRUMENTATION_INSTALL, Database
from tests.support.instrumentation import (
    COUNTERS,
    HISTOGRAMS,
    LOG_ROWS,
    ack,
    counts,
    histogram,
    instrumentation,
    roll_up,
    take,
)
from tests.support.observed import Connection, Queue, one

UNINSTALL = INSTRUMENTATION_INSTALL.with_name("uninstall.sql")

# --- exactness -----------------------------------------------------------------------------------


class Workload:
    """Threads that do everything a queue's users do, each keeping a tally of what it committed."""

    QUEUES = ("one", "two")
    CONSUMERS = ("a", "b", "c")
    ROUNDS = 25
    MAX_RETRIES = 1

    def __init__(self, database: Database, seed: int) -> None:
        self.database = database
        self.seed = seed
        self.tally: Counter[tuple[str, str | None, str]] = Counter()
        self.batches: Counter[tuple[str, str]] = Counter()
        self.redelivered = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        with database.connect() as db:
            for queue in self.QUEUES:
                driven.create_queue(db, queue, *self.CONSUMERS)
                for option, value in (("ticker_max_count", "1"), ("max_retries", str(self.MAX_RETRIES))):
                    driven.value(db, "select pgque.set_queue_config(%s, %s, %s)", queue, option, value)

    def run(self) -> None:
        """Until every consumer has had its rounds; a failure of one thread ends all and is raised."""
        consumers: list[Callable[[], None]] = [
            partial(self._consume, queue, consumer) for queue in self.QUEUES for consumer in self.CONSUMERS
        ]
        others = [self._produce, self._maintain, self._replay, self._roll_up, self._read]
        with ThreadPoolExecutor(len(consumers) + len(others)) as threads:
            at_work = [threads.submit(self._guarded, work) for work in (*consumers, *others)]
            wait(at_work[: len(consumers)])
            self._stop.set()
            for one_of_them in at_work:
                one_of_them.result()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException:
            self._stop.set()
            raise

    def _consume(self, queue: str, consumer: str) -> None:
        choices = random.Random(f"{self.seed} {queue} {consumer}")
        db = self.database.connect()
        done = 0
        while (done < self.ROUNDS or not self._saw_everything()) and not self._stop.is_set():
            own: Counter[tuple[str, str | None, str]] = Counter()
            messages = driven.receive(db, queue, consumer)
            if not messages:
                continue
            done += 1
            fate = choices.choice(("commit", "commit", "roll back", "give up to a savepoint"))
            with db.transaction(force_rollback=fate == "roll back"):
                for message in choices.sample(messages, min(len(messages), choices.randrange(4))):
                    driven.nack(db, message)
                    if choices.random() < 0.2:
                        driven.nack(db, message)  # twice is once
                    dead = (message.retry_count or 0) >= self.MAX_RETRIES
                    own[queue, consumer, "dead_lettered" if dead else "nacked"] += 1
                if fate == "give up to a savepoint":
                    with db.transaction(force_rollback=True):
                        driven.ack(db, messages[0].batch_id)
                driven.ack(db, messages[0].batch_id)
                own[queue, consumer, "acked"] += len(messages)
            if fate != "roll back":
                with self._lock:
                    self.tally += own
                    self.batches[queue, consumer] += 1

    def _saw_everything(self) -> bool:
        """Whether each kind of thing has happened: how soon it does, the scheduler has a say in."""
        with self._lock:
            seen = {what for (_, _, what), number in self.tally.items() if number}
        return seen >= set(COUNTERS) - {"redelivered"} and self.redelivered > 0

    def _produce(self) -> None:
        choices = random.Random(self.seed)
        db = self.database.connect()
        while not self._stop.is_set():
            queue = choices.choice(self.QUEUES)
            with db.transaction(force_rollback=choices.random() < 0.2):
                driven.send(db, queue, *("{}" for _ in range(choices.randrange(1, 8))))
            driven.value(db, "select pgque.ticker()")

    def _maintain(self) -> None:
        choices = random.Random(self.seed + 1)
        db = self.database.connect()
        while not self._stop.is_set():
            keep = choices.random() < 0.7
            with db.transaction(force_rollback=not keep):
                moved = driven.value(db, "select pgque.maint_retry_events()")
            self.redelivered += moved if keep else 0

    def _replay(self) -> None:
        """Replays what one queue's consumers gave up on, purges the other's, at last for good."""
        choices = random.Random(self.seed + 2)
        db = self.database.connect()
        ways = {
            "one": ("replayed", "select replayed from pgque.dlq_replay_all(%s)"),
            "two": ("purged", "select pgque.dlq_purge(%s, '0')"),
        }
        ending = False
        while not ending:
            ending = self._stop.is_set()
            for queue, (what, statement) in ways.items():
                keep = ending or choices.random() < 0.7
                with db.transaction(force_rollback=not keep):
                    count = driven.value(db, statement, queue)
                if keep and count:
                    with self._lock:
                        self.tally[queue, None, what] += count

    def _roll_up(self) -> None:
        """Roll-ups that end well, that are given up, and whose connection dies."""
        choices = random.Random(self.seed + 3)
        killer = self.database.connect()
        while not self._stop.is_set():
            fate = choices.choice(("commit", "commit", "roll back", "crash"))
            db = self.database.connect(autocommit=False)
            driven.value(db, "select pgque.instrumentation_rollup(%s)", choices.randrange(1, 200))
            if fate == "crash":
                driven.value(killer, "select pg_terminate_backend(%s)", db.info.backend_pid)
                continue
            (db.commit if fate == "commit" else db.rollback)()
            db.close()

    def _read(self) -> None:
        """No figure is ever negative, and none falls."""
        before: dict[tuple[str, str], float] = {}
        with psycopg.connect(self.database.dsn(), row_factory=psycopg.rows.dict_row, autocommit=True) as db:
            while not self._stop.is_set():
                now = instrumentation(db)
                assert {key: now.get(key) for key in before if now.get(key, -1) < before[key]} == {}
                assert min(now.values()) >= 0
                before = now


@pytest.mark.parametrize("seed", [1, 2])
def test_a_random_workload_is_counted_to_the_last_event(
    pack_database: Database, instrumented: Connection, seed: int
) -> None:
    workload = Workload(pack_database, seed)
    workload.run()

    found = counts(instrumented)
    redelivered = sum(number for (_, _, what), number in found.items() if what == "redelivered")
    assert {key: number for key, number in found.items() if key[2] != "redelivered"} == workload.tally
    assert redelivered == workload.redelivered
    assert {what for _, _, what in found} == set(COUNTERS), "the workload left something out"
    for (queue, consumer), batches in workload.batches.items():
        for name in HISTOGRAMS:
            rows = instrumented.execute(
                "select value from pgque.otel_metrics() where metric_name = %s and labels @> %s",
                (f"{name}_count", Jsonb({"queue": queue, "consumer": consumer})),
            ).fetchall()
            assert [int(row["value"]) for row in rows] == [batches]

    # The same whether it comes from the log, from the totals or from both.
    before = instrumentation(instrumented)
    while roll_up(instrumented, 100):
        assert instrumentation(instrumented) == before
    assert one(instrumented, "select count(*) as rows from pgque.instrumentation_log") == {"rows": 0}
    assert counts(instrumented) == found


def test_every_counter_is_0_before_anything_happened(counted: Queue) -> None:
    rows = counted.db.execute(
        "select metric_name, metric_type, labels->>'consumer' as consumer, value"
        " from pgque.instrumented_metrics() where not labels ? 'le' and metric_type = 'counter'"
    ).fetchall()
    assert {(row["metric_name"], row["consumer"], row["metric_type"], int(row["value"])) for row in rows} == {
        ("pgque.message.acked_total", "app", "counter", 0),
        ("pgque.message.nacked_total", "app", "counter", 0),
        ("pgque.message.redelivered_total", "app", "counter", 0),
        ("pgque.message.dead_lettered_total", "app", "counter", 0),
        ("pgque.message.replayed_total", None, "counter", 0),
        ("pgque.message.purged_total", None, "counter", 0),
    }
    for name in HISTOGRAMS:
        buckets, total, count = histogram(counted.db, name)
        assert set(buckets.values()) == {0}
        assert (total, count) == (0, 0)


def test_acked_comes_once_and_is_counted_not_read_off_the_position(counted: Queue) -> None:
    ack(counted, take(counted, 10))
    first = one(counted.db, "select min(tick_id) as tick from pgque.tick")["tick"]
    for position in (first, None, first):  # back, as it is, back again
        counted.db.execute("select pgque.register_consumer_at('q', 'app', %s)", (position,))
    assert counts(counted.db) == {("q", "app", "acked"): 10}
    assert counted.consume("app") == 10
    assert counts(counted.db) == {("q", "app", "acked"): 20}
    rows = counted.db.execute(
        "select value from pgque.otel_metrics() where metric_name = 'pgque.message.acked_total'"
    ).fetchall()
    assert len(rows) == 1


def test_batches_that_nobody_worked_on_are_not_counted(counted: Queue) -> None:
    # Given up, even where that means to go on from the batch's end.
    take(counted, 5)
    end = one(counted.db, "select sub_next_tick as tick from pgque.subscription")["tick"]
    counted.db.execute("select pgque.register_consumer_at('q', 'app', %s)", (end,))
    # Without an event, though the sequence ran on: the engine skips it.
    counted.db.execute("select pgque.force_next_tick('q')")
    assert counted.tick() is not None
    assert counted.receive("app") == []
    # Taken back by hand.
    take(counted, 5)
    counted.db.execute("update pgque.subscription set sub_batch = null, sub_next_tick = null")

    assert counts(counted.db) == {}
    assert histogram(counted.db, "pgque.batch.size")[2] == 0


def test_an_empty_batch_that_a_consumer_did_see_is_one_of_size_0(counted: Queue) -> None:
    counted.wait(61)
    assert counted.tick() is not None
    batch = one(counted.db, "select pgque.next_batch('q', 'app') as id")["id"]
    assert one(counted.db, "select pgque.finish_batch(%s) as done", batch)["done"] == 1
    buckets, total, count = histogram(counted.db, "pgque.batch.size")
    assert (buckets["1"], buckets["+Inf"], total, count) == (1, 1, 0, 1)


@pytest.mark.parametrize(
    ("size", "bound"), [(1, "1"), (2, "10"), (10, "10"), (11, "50"), (100_001, "+Inf")]
)
def test_sizes_fall_into_their_buckets(counted: Queue, size: int, bound: str) -> None:
    ack(counted, take(counted, size))
    buckets, total, count = histogram(counted.db, "pgque.batch.size")
    assert next(le for le in buckets if buckets[le]) == bound
    assert (total, count, buckets["+Inf"]) == (size, 1, 1)
    assert list(buckets.values()) == sorted(buckets.values())


def test_sizes_are_of_what_was_delivered(counted: Queue) -> None:
    counted.subscribe("other")
    counted.send_and_tick(4)
    messages = counted.receive("other")
    counted.nack("other", messages[0])
    ack(counted, messages)
    counted.db.execute("update pgque.retry_queue set ev_retry_after = now()")
    counted.db.execute("select pgque.maint_retry_events()")  # for the other, not for app
    with counted.db.transaction(force_rollback=True):
        counted.send(50)
    counted.db.execute("select pgque.force_next_tick('q')")
    counted.send_and_tick(2)
    counted.consume("app")
    counted.consume("other")
    assert histogram(counted.db, "pgque.batch.size", "app")[1:] == (6, 2)
    assert histogram(counted.db, "pgque.batch.size", "other")[1:] == (7, 2)


def test_processing_is_the_time_from_taking_to_finishing(counted: Queue) -> None:
    for seconds in (7, 40, 40, 100_000):
        messages = take(counted, 3)
        counted.wait(seconds)
        counted.receive("app")  # asking again is not taking again
        ack(counted, messages)
    buckets, total, count = histogram(counted.db, "pgque.processing_latency_seconds")
    assert [buckets[le] for le in ("5", "10", "30", "60", "1800", "+Inf")] == [0, 1, 1, 3, 3, 4]
    assert count == 4
    assert 100_087 <= total < 100_087 + 600


@pytest.mark.parametrize(
    ("time", "isfinite"), [("infinity", 0), ("-infinity", 0), ("epoch", 1), ("now", 1), ("9999-12-31", 1)]
)
def test_no_time_that_a_clock_may_show_does_harm(counted: Queue, time: str, isfinite: int) -> None:
    messages = take(counted, 3)
    counted.db.execute(
        "update pgque.tick set tick_time = %s where tick_id ="
        " (select sub_next_tick from pgque.subscription)", (time,),
    )
    counted.db.execute("update pgque.subscription set sub_active = %s::timestamptz + '1 hour'", (time,))
    ack(counted, messages)
    for _ in range(2):
        found = instrumentation(counted.db)
        assert found["pgque.batch.size_sum", '{"queue": "q", "consumer": "app"}'] == 3
        assert min(found.values()) >= 0
        waits = "select * from pgque.wait_history(1, 'app', now() - interval '1 hour')"
        assert len(counted.db.execute(waits).fetchall()) == isfinite
        roll_up(counted.db)


def test_a_batch_whose_ticks_are_gone_has_no_size(counted: Queue) -> None:
    messages = take(counted, 3)
    counted.db.execute("delete from pgque.tick")
    ack(counted, messages)
    roll_up(counted.db)
    assert histogram(counted.db, "pgque.batch.size")[1:] == (0, 0)
    assert histogram(counted.db, "pgque.processing_latency_seconds")[2] == 1


def test_what_a_cooperative_member_does_counts_for_its_group(counted: Queue) -> None:
    db = counted.db
    counted.subscribe("app.a")
    counted.send_and_tick(600)
    assert counted.receive("app.a")
    db.execute("update pgque.subscription set sub_role = 'coop_main' where sub_batch is null")
    db.execute(
        "update pgque.subscription set sub_role = 'coop_member', sub_parent ="
        " (select sub_id from pgque.subscription where sub_role = 'coop_main') where sub_batch is not null"
    )
    db.execute(
        "insert into pgque.retry_queue (ev_retry_after, ev_queue, ev_id, ev_owner)"
        " select now(), sub_queue, 1, sub_id from pgque.subscription where sub_role = 'coop_member'"
    )
    # As a member finishes: it keeps no position.
    db.execute(
        "update pgque.subscription set sub_last_tick = null, sub_next_tick = null, sub_batch = null"
        " where sub_role = 'coop_member'"
    )
    assert counts(db) == {("q", "app", "acked"): 600, ("q", "app", "nacked"): 1}
    assert not [labels for _, labels in instrumentation(db) if "app.a" in labels]


def test_retries_that_are_lost_with_their_consumer_are_not_redelivered(counted: Queue) -> None:
    messages = take(counted, 5)
    for message in messages:
        counted.nack("app", message)
    ack(counted, messages)
    assert counts(counted.db)["q", "app", "nacked"] == 5
    counted.db.execute("update pgque.retry_queue set ev_retry_after = now() where ev_id % 2 = 0")
    redelivered = one(counted.db, "select pgque.maint_retry_events() as n")["n"]
    assert 0 < redelivered < 5
    counted.db.execute("delete from pgque.retry_queue")
    assert counts(counted.db)["q", "app", "redelivered"] == redelivered


def test_whoever_is_gone_leaves_nothing_behind(counted: Queue) -> None:
    db = counted.db
    counted.subscribe("other")
    for consumer in ("app", "other"):
        ack(counted, take(counted, 3, consumer))
    roll_up(db)
    ack(counted, take(counted, 4))
    db.execute("select pgque.unsubscribe('q', 'app')")
    assert set(counts(db)) == {("q", "other", "acked")}
    counted.subscribe("app")  # another one of the same name
    assert set(counts(db)) == {("q", "other", "acked")}
    roll_up(db)
    assert one(db, "select count(distinct sub_id) as n from pgque.instrumentation_total") == {"n": 1}

    ack(counted, take(counted, 2))
    db.execute("select pgque.drop_queue('q', true)")
    assert counts(db) == {}
    roll_up(db)
    assert one(db, "select count(*) as n from pgque.instrumentation_total") == {"n": 0}
    assert instrumentation(db) == {}


# --- in nobody's way -----------------------------------------------------------------------------


@pytest.mark.parametrize("blocked", ["pgque.instrumentation_log", "pgque.tick", "pgque.event_1"])
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_locked_table_makes_no_consumer_wait(
    counted: Queue, pack_database: Database, blocked: str, end: str
) -> None:
    counted.db.execute("set statement_timeout = '20 s'")  # whoever waits for the lock ends in an error
    ack(counted, take(counted, 3))
    messages = take(counted, 4)
    with psycopg.connect(pack_database.dsn()) as other:
        other.execute(f"lock table {blocked} in access exclusive mode".encode())
        ack(counted, messages)
        counted.db.execute("select pgque.dlq_purge('q')")
        getattr(other, end)()
    assert counts(counted.db) == {("q", "app", "acked"): 3}  # the other is uncounted, not guessed
    ack(counted, take(counted, 5))
    assert counts(counted.db) == {("q", "app", "acked"): 8}


@pytest.mark.parametrize("rolled_back", [True, False])
def test_truncating_the_log_costs_what_was_in_it_and_no_more(
    counted: Queue, pack_database: Database, rolled_back: bool
) -> None:
    ack(counted, take(counted, 3))
    roll_up(counted.db)
    ack(counted, take(counted, 4))
    messages = take(counted, 5)
    with psycopg.connect(pack_database.dsn()) as other:
        other.execute("truncate pgque.instrumentation_log")
        ack(counted, messages)
        (other.rollback if rolled_back else other.commit)()
    ack(counted, take(counted, 6))
    assert counts(counted.db) == {("q", "app", "acked"): 3 + 6 + (4 if rolled_back else 0)}


def test_without_its_log_the_engine_works_on(counted: Queue) -> None:
    counted.db.execute("drop table pgque.instrumentation_log cascade")
    counted.db.execute("select pgque.set_queue_config('q', 'max_retries', '0')")
    messages = take(counted, 3)
    counted.nack("app", messages[0])
    counted.db.execute("select pgque.set_queue_config('q', 'max_retries', '5')")
    counted.nack("app", messages[1])
    ack(counted, messages)
    counted.db.execute("update pgque.retry_queue set ev_retry_after = now()")
    assert one(counted.db, "select pgque.maint_retry_events() as n") == {"n": 1}
    assert one(counted.db, "select replayed from pgque.dlq_replay_all('q')") == {"replayed": 1}
    counted.db.execute(UNINSTALL.read_bytes())
    assert counted.tick() is not None
    assert counted.consume("app") == 2


def test_a_consumer_that_has_a_batch_open_is_not_disturbed_by_a_roll_up(
    counted: Queue, pack_database: Database
) -> None:
    counted.db.execute("set statement_timeout = '20 s'")
    ack(counted, take(counted, 3))
    messages = take(counted, 4)
    with psycopg.connect(pack_database.dsn()) as first, psycopg.connect(pack_database.dsn()) as second:
        assert driven.value(first, "select pgque.instrumentation_rollup()") == 1
        ack(counted, messages)  # during a roll-up
        assert counts(counted.db) == {("q", "app", "acked"): 7}
        second.execute("set statement_timeout = '20 s'")
        assert driven.value(second, "select pgque.instrumentation_rollup()") == 0, "one at a time"
    assert counts(counted.db) == {("q", "app", "acked"): 7}
    assert roll_up(counted.db) == 1


def test_a_roll_up_takes_as_much_as_it_is_told(counted: Queue) -> None:
    for _ in range(5):
        ack(counted, take(counted, 1))
    assert [roll_up(counted.db, 2) for _ in range(4)] == [2, 2, 1, 0]
    assert counts(counted.db) == {("q", "app", "acked"): 5}


def test_a_roll_up_refuses_what_would_make_consumers_fail(counted: Queue) -> None:
    counted.db.execute("set default_transaction_isolation = 'serializable'")
    with pytest.raises(psycopg.Error, match="must not run in a serializable transaction"):
        roll_up(counted.db)


def test_the_length_of_the_log_is_a_metric(counted: Queue) -> None:
    def rows() -> int:
        query = "select value from pgque.otel_metrics() where metric_name = %s and labels = '{}'"
        return int(counted.db.execute(query, (LOG_ROWS,)).fetchall()[0]["value"])

    assert rows() == 0
    for _ in range(3):
        ack(counted, take(counted, 1))
    assert rows() == 3
    roll_up(counted.db)
    assert rows() == 0
