"""How fast the service answers while one of its databases suffers every fault that tests/faults knows.

    python bench/exporter_faults.py

The other database has 10,000 series, and is polled all the time.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.programs import Program, ours, pack_database
from pgque_exporter.demo.cluster import Cluster, embedded_bindir
from tests.faults.faults import FAULTS
from tests.faults.stage import stage

SERIES = 10_000
INTERVAL = 1.0  # seconds between polls, and the time for one
LASTS = 3.0  # seconds of each fault
PAUSE = 0.05  # between two scrapes
GOAL_P99 = 10.0  # milliseconds


class Scraper:
    """Scrapes a program all the time, and keeps how many milliseconds each scrape took."""

    def __init__(self, program: Program) -> None:
        self.times: list[float] = []
        self._program = program
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Scraper:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        connection = self._program.connect()
        while not self._stop.wait(PAUSE):
            self.times.append(self._program.scrape(connection)[0])


def main() -> int:
    with (
        tempfile.TemporaryDirectory() as folder,
        Cluster(embedded_bindir(), settings={"autovacuum": "off"}) as cluster,
        stage() as victim,
    ):
        targets = {"bench": pack_database(cluster, SERIES), "victim": victim.dsn}
        with ours(targets, Path(folder), INTERVAL) as service, Scraper(service) as scraper:
            print(f"{'':<34}{'scrapes':>10}{'p50 ms':>10}{'slowest ms':>12}")
            for name, fault in {"nothing": None, **FAULTS}.items():
                begun = len(scraper.times)
                if fault is None:
                    time.sleep(LASTS)
                else:
                    with fault.happens(victim):
                        time.sleep(LASTS)
                times = scraper.times[begun:]
                print(f"{name:<34}{len(times):>10}{statistics.median(times):>10.2f}{max(times):>12.2f}")
        times = sorted(scraper.times)
        p99 = times[int(len(times) * 0.99)]
    middle = statistics.median(times)
    print(f"all {len(times)} scrapes: p50 {middle:.2f} ms, p99 {p99:.2f} ms, goal {GOAL_P99:g} ms")
    return 0 if p99 <= GOAL_P99 else 1


if __name__ == "__main__":
    sys.exit(main())
