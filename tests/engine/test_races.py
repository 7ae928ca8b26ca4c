"""Two sessions at the same thing at the same moment, a thousand times: one of them gets it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.support.database import Connection, Database
from tests.support.queue import ack, create_queue, receive, rows, send, tick, value

pytestmark = pytest.mark.servers("pg18")  # what locks what is the same in all versions

ROUNDS = 1000
Job = Callable[[Connection], object]


class Pair:
    """Two sessions that begin together."""

    def __init__(self, database: Database) -> None:
        self._sessions = [database.connect() for _ in range(2)]
        self._threads = ThreadPoolExecutor(2)

    def both(self, first: Job, second: Job | None = None) -> list[object]:
        """What each got; of an error its text, as long as it is no deadlock."""
        jobs = (first, second or first)
        return list(self._threads.map(self._run, jobs, self._sessions))

    def close(self) -> None:
        self._threads.shutdown()

    @staticmethod
    def _run(job: Job, session: Connection) -> object:
        try:
            return job(session)
        except psycopg.errors.DeadlockDetected:
            raise
        except psycopg.Error as error:
            return str(error.diag.message_primary)


@pytest.fixture
def db(engine_database: Database) -> Connection:
    connection = engine_database.connect()
    create_queue(connection, "orders", "app")
    value(connection, "select pgque.set_queue_config('orders', 'ticker_max_count', '1')")
    return connection


@pytest.fixture
def pair(engine_database: Database) -> Iterator[Pair]:
    sessions = Pair(engine_database)
    yield sessions
    sessions.close()


def publish(db: Connection, payload: str) -> None:
    send(db, "orders", payload)
    assert value(db, "select pgque.ticker('orders')") is not None


def test_a_dead_letter_replayed_by_two_becomes_one_event(db: Connection, pair: Pair) -> None:
    value(db, "select pgque.set_queue_config('orders', 'max_retries', '0')")
    db.execute("select count(pgque.send('orders', i::text)) from generate_series(1, %s::int) i", (ROUNDS,))
    tick(db, "orders")
    db.execute("select count(pgque.nack(batch_id, m)) from pgque.receive('orders', 'app', %s) m", (ROUNDS,))
    value(db, "select pgque.ack(sub_batch) from pgque.subscription")
    db.execute("truncate pgque.event_1_0")
    dead = [letter for (letter,) in rows(db, "select dl_id from pgque.dead_letter order by 1")]
    assert len(dead) == ROUNDS

    for letter in dead:
        got = pair.both(lambda session, n=letter: value(session, "select pgque.dlq_replay(%s)", n))  # type: ignore[misc]
        assert sorted(map(type, got), key=str) == [int, str], got
        assert f"dead letter not found: {letter}" in got
    assert rows(db, "select from pgque.dead_letter") == []
    sent = rows(db, "select ev_data::int from pgque.event_1 order by 1")
    assert sent == [(number,) for number in range(1, ROUNDS + 1)]


def test_all_dead_letters_replayed_by_two_become_one_event_each(db: Connection, pair: Pair) -> None:
    value(db, "select pgque.set_queue_config('orders', 'max_retries', '0')")
    db.execute("select count(pgque.send('orders', i::text)) from generate_series(1, %s::int) i", (ROUNDS,))
    tick(db, "orders")
    db.execute("select count(pgque.nack(batch_id, m)) from pgque.receive('orders', 'app', %s) m", (ROUNDS,))
    value(db, "select pgque.ack(sub_batch) from pgque.subscription")
    db.execute("truncate pgque.event_1_0")

    def replay(session: Connection) -> object:
        [(replayed, failed, error)] = rows(session, "select * from pgque.dlq_replay_all('orders')")
        assert (failed, error) == (0, None)
        return replayed

    assert sum(map(int, map(str, pair.both(replay)))) == ROUNDS
    sent = rows(db, "select ev_data::int from pgque.event_1 order by 1")
    assert sent == [(number,) for number in range(1, ROUNDS + 1)]


def test_two_workers_of_one_consumer_never_share_a_message(db: Connection, pair: Pair) -> None:
    def work(session: Connection) -> object:
        with session.transaction():
            messages = receive(session, "orders", "app")
            if messages:
                assert ack(session, messages[0].batch_id) == 1
            return [message.payload for message in messages]

    done: Counter[str] = Counter()
    for number in range(ROUNDS):
        publish(db, str(number))
        for got in pair.both(work):
            assert isinstance(got, list), got
            done.update(got)
    assert done == Counter(str(number) for number in range(ROUNDS))


def test_what_a_dead_worker_left_is_finished_once(db: Connection, pair: Pair) -> None:
    """By one of two rescuers, or by one rescuer and the worker itself, who comes back at that moment."""
    for name in ("dead", "one", "two"):
        value(db, "select pgque.register_subconsumer('orders', 'group', %s)", name)
    value(db, "select pgque.unsubscribe('orders', 'app')")

    def rescue(name: str) -> Job:
        def work(session: Connection) -> object:
            found = rows(
                session,
                "select batch_id from pgque.receive_coop('orders', 'group', %s, 10, '5 minutes')", name,
            )
            return sum(ack(session, batch) for (batch,) in found)

        return work

    for number in range(ROUNDS):
        publish(db, str(number))
        [(batch, payload)] = rows(
            db, "select batch_id, payload from pgque.receive_coop('orders', 'group', 'dead')"
        )
        assert payload == str(number)
        db.execute("update pgque.subscription set sub_active = now() - interval '1 hour'")
        others = rescue("two") if number % 2 else lambda session, held=batch: ack(session, held)
        got = pair.both(rescue("one"), others)
        assert sorted(got, key=str) == [0, 1], (number, got)
        assert rows(db, "select from pgque.subscription where sub_batch is not null") == []


def test_members_of_a_group_never_share_a_batch(db: Connection, pair: Pair) -> None:
    """Registered cold, at the same moment, and then at work."""
    value(db, "select pgque.unsubscribe('orders', 'app')")
    done: Counter[str] = Counter()

    def work(name: str) -> Job:
        def take(session: Connection) -> object:
            found = rows(
                session,
                "select batch_id, payload from pgque.receive_coop('orders', 'group', %s)", name,
            )
            if found:
                assert ack(session, found[0][0]) == 1
            return [payload for _, payload in found]

        return take

    for number in range(ROUNDS):
        if number % 50 == 0:
            for name in ("one", "two"):
                value(db, "select pgque.unregister_subconsumer('orders', 'group', %s)", name)
            value(db, "select pgque.unsubscribe('orders', 'group')")
            assert rows(db, "select from pgque.consumer") == []
            assert pair.both(work("one"), work("two" if number % 100 else "one")) == [[], []]
        publish(db, f"{number}-1")
        publish(db, f"{number}-2")
        for _ in range(2):
            for got in pair.both(work("one"), work("two")):
                assert isinstance(got, list), got
                done.update(got)
    assert done == Counter(f"{number}-{part}" for number in range(ROUNDS) for part in (1, 2))


def test_a_queue_made_by_two_is_made_once_and_dropped_once(db: Connection, pair: Pair) -> None:
    for _ in range(ROUNDS):
        made = pair.both(lambda session: value(session, "select pgque.create_queue('new')"))
        assert sorted(map(str, made)) == ["0", "1"]
        dropped = pair.both(lambda session: value(session, "select pgque.drop_queue('new', true)"))
        assert sorted(map(str, dropped)) == ["1", "queue not found: new"]
    left = rows(db, "select relname from pg_class where relname like 'event\\_%%' and relkind = 'r'")
    assert len(left) == 5  # the template, and the four of `orders`


@pytest.mark.parametrize(
    ("there", "gone"),
    [
        ("subscribe('orders', 'new')", "unsubscribe('orders', 'new')"),
        ("register_subconsumer('orders', 'new', 'a')", "unregister_subconsumer('orders', 'new', 'a')"),
    ],
    ids=["consumer", "subconsumer"],
)
def test_a_consumer_registered_by_two_is_there_once(
    db: Connection, pair: Pair, there: str, gone: str
) -> None:
    for _ in range(ROUNDS):
        for call in (there, gone):
            got = pair.both(lambda session, c=call: value(session, f"select pgque.{c}"))  # type: ignore[misc]
            assert sorted(map(str, got)) == ["0", "1"], call
        value(db, "select pgque.unsubscribe('orders', 'new')")
    assert rows(db, "select co_name from pgque.consumer") == [("app",)]
