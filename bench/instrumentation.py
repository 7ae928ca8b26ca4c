"""What the instrumentation costs: the same work in two databases of one server, with and without it.

    make bench-instrument

Each round does every piece of work once in either database, by turns first, so that whatever else the
machine does hits both alike. Given are medians; the difference is the median over the rounds of the
difference within a round. The last column is the same for the time that the server's process had a
processor, which says more on a busy machine. Where the data lies in memory a commit waits for no disk:
what is added is the same, the share that it has looks larger than it is elsewhere.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pgque_exporter.demo.cluster import Cluster
from tests.support.database import (
    ENGINE_INSTALL,
    INSTRUMENTATION_INSTALL,
    PACK_INSTALL,
    Connection,
    Database,
    installation,
    new_database,
)
from tests.support.queue import create_queue, value

BATCHES = (10, 500, 5000)  # events in each
RETRIES = 1000  # per call of batch_retry() and maint_retry_events()
SECONDS = 60.0  # for the comparison; reading takes half of that
CONSUMERS = (10, 100, 1000)
LOGGED = (0, 10_000, 100_000)  # rows that nobody has rolled up
RUNS = 5

RECEIVE: LiteralString = "select min(batch_id), min(msg_id) from pgque.receive('q', 'app', 1000000)"
NACK: LiteralString = (
    "select pgque.nack(%s, row(%s, null, null, null, null, null, null, null, null, null)::pgque.message,"
    " '1 day')"
)
READ: LiteralString = "select count(*) from pgque.instrumented_metrics()"
LOG: LiteralString = (
    "insert into pgque.instrumentation_log (what, at, queue_id, sub_id, processing, wait, events)"
    " select 'batch', now(), s.sub_queue, s.sub_id, 5000000 * random(), 10000000 * random(), 1000 * random()"
    " from pgque.subscription s,"
    " generate_series(1, %s / (select count(*) from pgque.subscription))"
)

Durations = dict[str, list[tuple[float, float]]]  # by piece of work: milliseconds, of these on a processor


class Work:
    """The work measured, in one database. Every step is a transaction of its own."""

    def __init__(self, database: Database) -> None:
        self._connection: Connection = database.connect()
        self._schedule = Path(f"/proc/{self._connection.info.backend_pid}/schedstat")
        self.durations: Durations = defaultdict(list)
        value(self._connection, "select pgque.create_queue('q')")
        value(self._connection, "select pgque.set_queue_config('q', 'ticker_max_count', '1')")
        value(self._connection, "select pgque.set_queue_config('q', 'max_retries', '1000000')")
        value(self._connection, "select pgque.subscribe('q', 'app')")

    def batch(self, events: int) -> None:
        """Take a batch, finish it."""
        self._send(events)
        with self._timed(f"receive + ack, {events} events"):
            row = self._connection.execute(RECEIVE).fetchone()
            assert row is not None
            with self._timed(f"ack, {events} events"):
                self._connection.execute("select pgque.ack(%s)", (row[0],))

    def failure(self) -> None:
        """Have one event of a batch retried."""
        self._send(BATCHES[0])
        batch, message = self._connection.execute(RECEIVE).fetchall()[0]
        with self._timed("nack"):
            self._connection.execute(NACK, (batch, message))
        self._connection.execute("select pgque.ack(%s)", (batch,))

    def poll(self) -> None:
        """Look for a batch where there is none."""
        with self._timed("receive, nothing there"):
            self._connection.execute(RECEIVE)

    def retries(self) -> None:
        """Bring a thousand retries back, and take them."""
        connection = self._connection
        connection.execute("delete from pgque.retry_queue")
        self._send(RETRIES)
        batch = value(connection, "select min(batch_id) from pgque.receive('q', 'app', 1000000)")
        with self._timed(f"batch_retry, {RETRIES} events"):
            connection.execute("select pgque.batch_retry(%s, 0)", (batch,))
        connection.execute("select pgque.ack(%s)", (batch,))
        with self._timed(f"maint_retry_events, {RETRIES} events"):
            connection.execute("select pgque.maint_retry_events()")
        connection.execute("select pgque.ticker('q')")
        rest = value(connection, "select pgque.next_batch('q', 'app')")
        connection.execute("select pgque.ack(%s)", (rest,))

    def _send(self, count: int) -> None:
        self._connection.execute(
            "select pgque.send_batch('q', array_agg(repeat('x', 200))) from generate_series(1, %s)", (count,)
        )
        assert value(self._connection, "select pgque.ticker('q')") is not None

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        worked, started = self._processor(), time.perf_counter()
        yield
        ended = time.perf_counter()
        self.durations[what].append(((ended - started) * 1000, (self._processor() - worked) / 1e6))

    def _processor(self) -> int:
        """Nanoseconds that the server's process has had a processor."""
        return int(self._schedule.read_text().split()[0])


def compare(cluster: Cluster, seconds: float) -> tuple[Durations, Durations]:
    """Durations without and with the instrumentation, round by round."""
    with new_database(cluster) as without, new_database(cluster) as with_it:
        for database in (without, with_it):
            database.install(ENGINE_INSTALL)
            database.install(PACK_INSTALL)
        with_it.install(INSTRUMENTATION_INSTALL)
        pair = (Work(without), Work(with_it))
        rollup = with_it.connect()
        end = time.monotonic() + seconds
        number = 0
        while time.monotonic() < end:
            for work in pair if number % 2 else pair[::-1]:
                work.batch(BATCHES[0])
                work.failure()
                work.poll()
                if number % 5 == 0:
                    work.batch(BATCHES[1])
                if number % 50 == 0:
                    work.batch(BATCHES[2])
                    work.retries()
            if number % 200 == 0:
                value(rollup, "select pgque.instrumentation_rollup()")
            number += 1
        return pair[0].durations, pair[1].durations


def print_comparison(without: Durations, with_it: Durations) -> None:
    print(f"{'ms':<36}{'rounds':>7}{'without':>10}{'with':>10}{'difference':>12}{'processor':>12}")
    for what, plain in without.items():
        pairs = list(zip(plain, with_it[what], strict=True))
        before = statistics.median(a[0] for a, _ in pairs)
        after = statistics.median(b[0] for _, b in pairs)
        difference = statistics.median(b[0] - a[0] for a, b in pairs)
        processor = statistics.median(b[1] - a[1] for a, b in pairs)
        print(
            f"{what:<36}{len(pairs):>7}{before:>10.3f}{after:>10.3f}{difference:>+12.3f}{processor:>+12.3f}"
        )


def print_reading(cluster: Cluster) -> None:
    """How long a poll reads and the roll-up works, by the number of consumers and of rows in the log."""
    columns = "".join(f"{f'read, {rows} rows logged':>28}" for rows in LOGGED)
    print(f"\n{'ms':<12}{columns}{'roll up':>12}")
    for count in CONSUMERS:
        with new_database(cluster) as database:
            for path in (ENGINE_INSTALL, PACK_INSTALL, INSTRUMENTATION_INSTALL):
                database.install(path)
            connection = database.connect()
            for number in range(count):
                create_queue(connection, f"q{number}", "app")
            # A first roll-up, so that there are totals to read.
            connection.execute(LOG, (LOGGED[1],))
            value(connection, "select pgque.instrumentation_rollup()")
            connection.execute("vacuum analyze")
            reads = []
            for before, rows in zip((0, *LOGGED), LOGGED, strict=False):
                if rows > before:
                    connection.execute(LOG, (rows - before,))
                reads.append(statistics.median(_milliseconds(connection, READ) for _ in range(RUNS)))
            rollup = _milliseconds(connection, "select pgque.instrumentation_rollup(10000)")
        name = f"{count} consumers"
        print(f"{name:<14}" + "".join(f"{read:>26.1f}  " for read in reads) + f"{rollup:>10.1f}")
    print("roll up: 10000 rows of the log")


def _milliseconds(connection: Connection, statement: LiteralString) -> float:
    started = time.perf_counter()
    connection.execute(statement).fetchall()
    return (time.perf_counter() - started) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for the comparison (default 60)")
    parser.add_argument("--server", default="pg18", help="pg18 or pg15")
    arguments = parser.parse_args()
    server = installation(arguments.server)
    settings = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
    with Cluster(server.bindir, env=server.env, settings=settings) as cluster:
        print_comparison(*compare(cluster, arguments.seconds))
        print_reading(cluster)


if __name__ == "__main__":
    main()
