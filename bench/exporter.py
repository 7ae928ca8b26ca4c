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
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.programs import Program, ours, pack_database, peer
from pgque_exporter import catalogue as catalogue_file
from pgque_exporter.body import Body, Encoding
from pgque_exporter.config import TargetConfig
from pgque_exporter.demo.cluster import Cluster, embedded_bindir
from pgque_exporter.exposition import Format, SampleWriter, page_parts
from pgque_exporter.redaction import Redactor
from pgque_exporter.target import Poller

SERIES = (1_000, 10_000, 100_000)
SCRAPES = 300  # in a row, fewer where they are slow
LONGEST = 20.0  # seconds for one series of scrapes
PARALLEL = 8
POLLS = 15

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


def polls(dsn: str) -> float:
    """Median milliseconds from the query to the bytes of a page, over a connection that is kept."""
    catalogue = catalogue_file.load()
    target = TargetConfig("bench", dsn, interval=15, timeout=60, stale_after=120)
    poller = Poller(target, catalogue, Redactor())
    writer = SampleWriter()

    async def run() -> list[float]:
        times = []
        for _ in range(POLLS):
            begin = time.perf_counter()
            snapshot = (await poller.poll()).snapshot
            Body.of(page_parts(catalogue, [writer.samples(snapshot)], Format.TEXT), Encoding.GZIP)
            times.append((time.perf_counter() - begin) * 1000)
        await poller.close()
        return times[2:]

    return statistics.median(asyncio.run(run()))


def cpu_of_polls(service: Program, interval: float) -> float:
    """Milliseconds of processor time a poll of the running service, which nobody asks meanwhile."""
    before, begin = service.cpu, time.perf_counter()
    time.sleep(POLLS * interval)
    return (service.cpu - before) / ((time.perf_counter() - begin) / interval)


def compare(cluster: Cluster, series: int, say: Callable[[str], None]) -> list[str]:
    """One size; what falls short of its goal."""
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
        poll = polls(dsn)
        for label, program in rows.items():
            one = found[label]
            say(
                f"{series:>8} {label:<14}{one.p50:>10.2f}{one.p99:>10.2f}{one.rate:>12.0f}"
                f"{program.megabytes:>10.0f}"
            )
        mine, theirs = service.megabytes, fresh.megabytes
    ratios = {
        "scrape, fresh": (found["peer, fresh"].p50 / found["service"].p50, GOAL_FRESH_SCRAPE),
        "scrape, cached": (found["peer, cached"].p50 / found["service"].p50, GOAL_CACHED_SCRAPE),
        "poll": (found["peer, fresh"].p50 / poll, GOAL_POLL),
    }
    say(f"{series:>8} a poll: {poll:.1f} ms from the query to the page, {cpu:.1f} ms of processor time")
    short = [
        f"{series} series, {label}: {ratio:.1f}x, goal {goal:g}x"
        for label, (ratio, goal) in ratios.items()
        if ratio < goal
    ]
    if series == 10_000 and cpu > GOAL_CPU:
        short.append(f"processor time of a poll: {cpu:.1f} ms, goal {GOAL_CPU:g} ms")
    if series == 10_000 and mine > GOAL_MEGABYTES:
        short.append(f"memory at 10,000 series: {mine:.0f} MB, goal {GOAL_MEGABYTES:g} MB")
    if series == 100_000 and mine > theirs:
        short.append(f"memory at 100,000 series: {mine:.0f} MB, the peer's {theirs:.0f} MB")
    say(f"{series:>8} times faster: " + ", ".join(f"{label} {one:.1f}" for label, (one, _) in ratios.items()))
    return short


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--series", type=int, nargs="+", default=SERIES, metavar="N")
    print(f"{'series':>8} {'':<14}{'p50 ms':>10}{'p99 ms':>10}{'requests/s':>12}{'RSS MB':>10}")
    short: list[str] = []
    with Cluster(embedded_bindir(), settings={"autovacuum": "off"}) as cluster:
        for series in parser.parse_args().series:
            short += compare(cluster, series, print)
    for line in short:
        print(f"short of its goal: {line}")
    print("all goals met" if not short else f"{len(short)} goals missed")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
