"""What the engine costs beside PgQ: the same work in three databases of one server.

    make bench-engine

PgQ comes from Debian, once as the extension with its functions in C, once as the variant in PL/pgSQL alone
that its package holds. Each round does every piece of work once in each database, by turns first, so that
whatever else the machine does hits all alike. Given are events per second, medians over the rounds. The
ratios of the last line are of the time that the server's process had a processor, since how fast a disk
takes a commit is nobody's merit; medians over the rounds of the ratio within a round. The exit code is 1
where the engine takes longer than PgQ's PL/pgSQL, where a batch saves less than it should, or where events
leave dead rows behind.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from psycopg import sql

from pgque_exporter.demo.cluster import Cluster
from tests.support.database import ENGINE_INSTALL, Database, new_database, run_file
from tests.support.debian import EXTENSIONS, POSTGRES_VERSION, postgres
from tests.support.queue import value

PAYLOAD = "x" * 200
SINGLE = 500  # events per round, each in a transaction of its own
LOOP = 5000  # events per round in one statement; also what a batch and a reader takes
ROUNDS = 30
CYCLE = 200  # events per batch of the sustained load
SUSTAINED = 20.0  # seconds of the load after which dead rows are counted

BATCH_GAIN = 5.0  # how many times faster send_batch() is than a loop of insert_event()
NOT_SLOWER = 1.0  # than PgQ's PL/pgSQL

OURS, IN_PL, IN_C = "PgQue", "PgQ in PL/pgSQL", "PgQ in C"


class Work:
    """The work measured, in one database."""

    def __init__(self, name: str, database: Database) -> None:
        self.name = name
        self.schema = "pgque" if name == OURS else "pgq"
        self._connection = database.connect()
        self.cycles = self.rotations = self.dead_rows = 0
        self._schedule = Path(f"/proc/{self._connection.info.backend_pid}/schedstat")
        self.rates: dict[str, list[float]] = defaultdict(list)  # events per second, by piece of work
        self.costs: dict[str, list[float]] = defaultdict(list)  # nanoseconds of a processor per event
        self._loop = self._statement(
            "select count({}.insert_event('q', 'type', %s)) from generate_series(1, %s::int)"
        )
        self._ask("create_queue('q')")
        self._ask("set_queue_config('q', 'ticker_max_count', '1')")
        self._ask("set_queue_config('q', 'rotation_period', '1 second')")
        self._ask("register_consumer('q', 'app')")

    def round(self) -> None:
        insert = self._statement("select {}.insert_event('q', 'type', %s)")
        with self._connection.cursor() as cursor:
            self._measure(
                "insert_event, a transaction each",
                SINGLE,
                lambda: [cursor.execute(insert, (PAYLOAD,)) for _ in range(SINGLE)],
            )
        self._drain()
        self._measure(
            "insert_event, in a loop", LOOP, lambda: self._connection.execute(self._loop, (PAYLOAD, LOOP))
        )
        self._read("get_batch_events", "select ev_id, ev_data from {}.get_batch_events(%s)")
        if self.schema == "pgque":
            batch = "select pgque.send_batch('q', 'type', array_fill(%s::text, array[%s::int]))"
            self._measure("send_batch", LOOP, lambda: self._connection.execute(batch, (PAYLOAD, LOOP)))
            self._read(
                "receive", "select msg_id, payload from pgque.receive('q', 'app', 1000000) where %s > 0"
            )
        self.maintain()

    def sustain(self, seconds: float) -> None:
        """A load in which an event goes through everything there is, with rotations as they come."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._connection.execute(self._loop, (PAYLOAD, CYCLE))
            batch = self._next_batch()
            event = value(
                self._connection, f"select min(ev_id) from {self.schema}.get_batch_events(%s)", batch
            )
            self._ask("event_retry(%s, %s, 0)", batch, event)
            self._ask("finish_batch(%s)", batch)
            self.rotations += self.maintain()
            self.cycles += 1
        self._connection.execute("select pg_stat_force_next_flush()")
        self.dead_rows = int(
            value(
                self._connection,
                "select coalesce(sum(n_dead_tup), 0) from pg_stat_user_tables where relname ~ '^event_[0-9]'",
            )
        )

    def maintain(self) -> int:
        """Bring back retries and rotate if it is time; how many rotations that were."""
        self._ask("maint_retry_events()")
        self._ask("maint_rotate_tables_step1('q')")
        return int(self._ask("maint_rotate_tables_step2()"))

    def _drain(self) -> None:
        self._ask("finish_batch(%s)", self._next_batch())

    def _read(self, what: str, statement: str) -> None:
        batch = self._next_batch()
        query = self._statement(statement)
        self._measure(what, LOOP, lambda: self._connection.execute(query, (batch,)).fetchall())
        self._ask("finish_batch(%s)", batch)

    def _next_batch(self) -> int:
        assert self._ask("ticker('q')") is not None
        return int(self._ask("next_batch('q', 'app')"))

    def _measure(self, what: str, events: int, work: Callable[[], object]) -> None:
        worked, started = self._processor(), time.perf_counter()
        work()
        self.rates[what].append(events / (time.perf_counter() - started))
        self.costs[what].append((self._processor() - worked) / events)

    def _processor(self) -> int:
        """Nanoseconds that the server's process has had a processor."""
        return int(self._schedule.read_text().split()[0])

    def _ask(self, call: str, *args: object) -> Any:
        return value(self._connection, f"select {self.schema}.{call}", *args)

    def _statement(self, text: str) -> sql.Composed:
        return sql.SQL(text).format(sql.Identifier(self.schema))


def compare(cluster: Cluster, contrib: Path, rounds: int, sustained: float) -> dict[str, Work]:
    """The work of all three; ours goes on with a sustained load."""
    with new_database(cluster) as ours, new_database(cluster) as in_pl, new_database(cluster) as in_c:
        ours.install(ENGINE_INSTALL)
        run_file(in_pl.dsn(), contrib / "pgq_pl_only.sql")
        in_c.connect().execute("create extension pgq")
        every = {
            name: Work(name, database) for name, database in ((OURS, ours), (IN_PL, in_pl), (IN_C, in_c))
        }
        works = list(every.values())
        for number in range(rounds):
            first = number % len(works)
            for work in works[first:] + works[:first]:
                work.round()
        every[OURS].sustain(sustained)
        return every


def ratio(every: dict[str, Work], what: str, other: str, other_what: str | None = None) -> float:
    """How many times less ours costs."""
    pairs = zip(every[OURS].costs[what], every[other].costs[other_what or what], strict=True)
    return statistics.median(theirs / mine for mine, theirs in pairs)


def report(every: dict[str, Work]) -> bool:
    """Print it all; whether the goals are met."""
    print(f"{'events per second':<36}" + "".join(f"{name:>18}" for name in every))
    for what in every[OURS].rates:
        cells = (
            f"{statistics.median(work.rates[what]):>18,.0f}" if what in work.rates else f"{'-':>18}"
            for work in every.values()
        )
        print(f"{what:<36}" + "".join(cells))
    ours = every[OURS]
    print(
        f"\nsustained load: {ours.cycles} batches of {CYCLE} events with a retry each,"
        f" {ours.rotations} rotations, {ours.dead_rows} dead rows in event tables"
    )
    gain = ratio(every, "send_batch", OURS, "insert_event, in a loop")
    beside = {what: (ratio(every, what, IN_PL), ratio(every, what, IN_C)) for what in every[IN_PL].rates}
    short = [what for what, (in_pl, _) in beside.items() if in_pl < NOT_SLOWER]
    short += ["send_batch"] * (gain < BATCH_GAIN) + ["dead rows"] * (ours.dead_rows > 0 or ours.rotations < 3)
    print(
        "; ".join(
            (
                *(
                    f"{what}: {in_pl:.2f} x PL/pgSQL, {in_c:.2f} x C"
                    for what, (in_pl, in_c) in beside.items()
                ),
                f"send_batch: {gain:.1f} x a loop",
                f"dead rows: {ours.dead_rows}",
                f"short: {', '.join(short) or 'nothing'}",
            )
        )
    )
    return not short


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    parser.add_argument("--sustained", type=float, default=SUSTAINED, help=f"seconds, default {SUSTAINED:g}")
    arguments = parser.parse_args()
    server = postgres(extensions=EXTENSIONS)
    contrib = server.bindir.parents[3] / "share/postgresql" / str(POSTGRES_VERSION) / "contrib"
    settings = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
    with Cluster(server.bindir, env=server.env, settings=settings) as cluster:
        every = compare(cluster, contrib, arguments.rounds, arguments.sustained)
        return 0 if report(every) else 1


if __name__ == "__main__":
    sys.exit(main())
