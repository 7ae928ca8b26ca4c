"""What the service costs and how fast it answers, beside Debian's prometheus-postgres-exporter.

    make bench-exporter
    python bench/exporter.py --series 1000    # a quick look

Both serve the same rows of the same function in the same run. The peer reads the database with each scrape
("fresh"), or hands out what it read last ("cached", its `cache_seconds`); the service polls on its own
and hands out what is prepared. Times are of whole HTTP requests on kept connections, compressed as Prometheus
asks for it; CPU is that of the program alone, without the database's.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.programs import Program, ours, pack_database, peer
from pgque_exporter import catalogue as catalogue_file
from pgque_exporter.body import Body, Encoding
from pgque_exporter.config import OtlpConfig, TargetConfig
from pgque_exporter.demo.cluster import Cluster, embedded_bindir
from pgque_exporter.exposition import Format, SampleWriter, page_parts
from pgque_exporter.otlp.push import Pusher
from pgque_exporter.redaction import Redactor
from pgque_exporter.target import Poller
from tests.support.collector import run_collector

SERIES = (1_000, 10_000, 100_000)
SCRAPES = 300  # in a row, fewer where they are slow
LONGEST = 20.0  # seconds for one series of scrapes
PARALLEL = 8
POLLS = 25

# Below, a request costs what HTTP costs whatever is on the page: figures, but no goals.
GOALS_FROM = 10_000
GOAL_FRESH_SCRAPE = 50.0  # times faster than the peer that reads the database
GOAL_CACHED_SCRAPE = 10.0  # than the one that doesn't
GOAL_POLL = 2.0  # query to bytes
GOAL_CPU = 25.0  # milliseconds a poll of 10,000 series
GOAL_MEGABYTES = 120.0  # at 10,000 series


@dataclass(frozen=True)
class Scrapes:
    """Milliseconds of requests one after the other, and requests a second with several at once."""

    p50: float
    p99: float
    rate: float


def scrapes(program: Program) -> Scrapes:
    """Ask a program again and again."""
    connection = program.connect()
    times: list[float] = []
    end = time.perf_counter() + LONGEST
    while len(times) < SCRAPES and time.perf_counter() < end:
        times.append(program.scrape(connection)[0])
    times.sort()
    return Scrapes(statistics.median(times), times[int(len(times) * 0.99)], _rate(program, times[0]))


def _rate(program: Program, milliseconds: float) -> float:
    each = max(2, min(50, int(3000 / milliseconds)))

    def several(_: int) -> None:
        connection = program.connect()
        for _number in range(each):
            program.scrape(connection)

    begin = time.perf_counter()
    with ThreadPoolExecutor(PARALLEL) as threads:
        list(threads.map(several, range(PARALLEL)))
    return each * PARALLEL / (time.perf_counter() - begin)


def polls(dsn: str, fresh: Program) -> tuple[float, float]:
    """Median milliseconds from the query to the bytes of a page, and of the peer's scrapes in turn with them.

    Both over connections that are kept.
    """
    catalogue = catalogue_file.load()
    target = TargetConfig("bench", dsn, interval=15, timeout=60, stale_after=120)
    poller = Poller(target, catalogue, Redactor())
    writer = SampleWriter()

    connection = fresh.connect()

    async def run() -> tuple[list[float], list[float]]:
        times, theirs = [], []
        for _ in range(POLLS):
            theirs.append(fresh.scrape(connection)[0])
            begin = time.perf_counter()
            snapshot = (await poller.poll()).snapshot
            Body.of(page_parts(catalogue, [writer.samples(snapshot)], Format.TEXT), Encoding.GZIP)
            times.append((time.perf_counter() - begin) * 1000)
        await poller.close()
        return times[2:], theirs[2:]

    mine, theirs = asyncio.run(run())
    return statistics.median(mine), statistics.median(theirs)


def cpu_of_polls(service: Program, interval: float) -> float:
    """Milliseconds of processor time a poll of the running service, which nobody asks meanwhile."""
    before, begin = service.cpu, time.perf_counter()
    time.sleep(POLLS * interval)
    return (service.cpu - before) / ((time.perf_counter() - begin) / interval)


def late(service: Program) -> tuple[int, int]:
    """How often the event loop was late by more than 50 ms, of how many times that was looked at."""
    name = rb"^pgque_exporter_event_loop_lag_seconds_%s (\d+)"
    soon, every = (
        re.search(name % rest, service.page(), re.MULTILINE) for rest in (rb'bucket\{le="0.05"\}', rb"count")
    )
    if soon is None or every is None:
        raise SystemExit("the page doesn't tell how late the event loop is")
    return int(every[1]) - int(soon[1]), int(every[1])


def pushes(dsn: str) -> float:
    """Median milliseconds from a snapshot to the collector's word that it has all of it."""
    catalogue = catalogue_file.load()
    target = TargetConfig("bench", dsn, interval=15, timeout=60, stale_after=120)
    poller = Poller(target, catalogue, Redactor())

    async def run(endpoint: str) -> list[float]:
        way = OtlpConfig(endpoint, "http", {}, 60.0)
        pusher = Pusher(way, {}, tuple, 3600.0, lambda *_: None, Redactor())
        pusher.start()
        times = []
        for _ in range(POLLS):
            snapshot = (await poller.poll()).snapshot
            begin = time.perf_counter()
            pusher.push(snapshot, time.monotonic() + 60)
            while pusher.queued:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.0005)
            times.append((time.perf_counter() - begin) * 1000)
        await pusher.close(0)
        await poller.close()
        if pusher.ledger.sent != pusher.ledger.polled:
            raise SystemExit(f"the collector has not taken all points: {pusher.ledger}")
        return times[2:]

    with tempfile.TemporaryDirectory() as folder, run_collector(Path(folder)) as collector:
        return statistics.median(asyncio.run(run(collector.http_url)))


@dataclass(frozen=True)
class Goal:
    """A figure and what it should be: at least, or at most."""

    label: str
    figure: float
    least: float | None = None
    most: float | None = None
    unit: str = "x"

    @property
    def met(self) -> bool:
        return (self.least is None or self.figure >= self.least) and (
            self.most is None or self.figure <= self.most
        )

    def __str__(self) -> str:
        bound = f">= {self.least:g}" if self.least is not None else f"<= {self.most:g}"
        return f"{self.label} {self.figure:.1f}{self.unit} ({bound}{'' if self.met else ', MISSED'})"


def compare(cluster: Cluster, series: int) -> list[Goal]:
    """One size: its table, and what it should reach."""
    dsn = pack_database(cluster, series)
    interval = 0.5 if series <= 10_000 else 3.0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        fresh = stack.enter_context(peer(dsn, folder, 0))
        cached = stack.enter_context(peer(dsn, folder, 3600))
        service = stack.enter_context(ours({"bench": dsn}, folder, interval))
        rows = {"service": service, "peer, fresh": fresh, "peer, cached": cached}
        cpu = cpu_of_polls(service, interval)
        found = {label: scrapes(program) for label, program in rows.items()}
        poll, scrape = polls(dsn, fresh)
        for label, program in rows.items():
            one = found[label]
            print(
                f"{series:>8} {label:<14}{one.p50:>10.2f}{one.p99:>10.2f}{one.rate:>12.0f}"
                f"{program.megabytes:>10.0f}"
            )
        mine, theirs = service.megabytes, fresh.megabytes
        blocked, looks = late(service)
    print(f"{series:>8} a poll: {poll:.1f} ms from the query to the page (the peer's scrape: {scrape:.1f})")
    print(f"{series:>8} processor time of a poll: {cpu:.1f} ms")
    print(f"{series:>8} a push: {pushes(dsn):.1f} ms from the snapshot to the collector's answer")
    print(f"{series:>8} event loop late by more than 50 ms: {blocked} of {looks} times", flush=True)
    if series < GOALS_FROM:
        return []
    size = f"{series:,} series:"
    times = {label: one.p50 for label, one in found.items()}
    goals = [
        Goal(f"{size} scrape, peer fresh", times["peer, fresh"] / times["service"], GOAL_FRESH_SCRAPE),
        Goal(f"{size} scrape, peer cached", times["peer, cached"] / times["service"], GOAL_CACHED_SCRAPE),
        Goal(f"{size} poll", scrape / poll, GOAL_POLL),
        Goal(f"{size} loop late by > 50 ms", blocked, most=0, unit=" times"),
    ]
    if series == GOALS_FROM:
        goals += [
            Goal(f"{size} processor time of a poll", cpu, most=GOAL_CPU, unit=" ms"),
            Goal(f"{size} memory", mine, most=GOAL_MEGABYTES, unit=" MB"),
        ]
    else:
        goals.append(Goal(f"{size} memory, of the peer's", mine / theirs, most=1.0))
    return goals


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--series", type=int, nargs="+", default=SERIES, metavar="N")
    print(f"{'series':>8} {'':<14}{'p50 ms':>10}{'p99 ms':>10}{'requests/s':>12}{'RSS MB':>10}")
    goals: list[Goal] = []
    with Cluster(embedded_bindir(), settings={"autovacuum": "off"}) as cluster:
        for series in parser.parse_args().series:
            goals += compare(cluster, series)
    print("; ".join(map(str, goals)))
    return 0 if all(goal.met for goal in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
