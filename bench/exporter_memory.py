"""Whether the service's memory stays while series come and go: 10,000 new ones with each poll.

python bench/exporter_memory.py
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.programs import Program, ours, pack_database
from pgque_exporter.demo.cluster import Cluster, embedded_bindir

SERIES = 10_000
NEW_SERIES = 1_000_000
WARM = 200_000  # from here on memory should stay
INTERVAL = 0.5  # seconds
GOAL = 0.05  # of what it is when warm

# A name that differs from poll to poll.
_NAME = "'queue_' || n || '_' || extract(epoch from now())"
_POLLS = re.compile(rb'pgque_exporter_polls_total\{database="bench",result="ok"\} (\d+)')


def polls(service: Program) -> int:
    """How often it has polled."""
    found = _POLLS.search(service.page())
    return int(found[1]) if found else 0


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, Cluster(embedded_bindir()) as cluster:
        dsn = pack_database(cluster, SERIES, queues=_NAME)
        with ours({"bench": dsn}, Path(folder), INTERVAL) as service:
            begun = polls(service)
            sizes: list[tuple[int, float]] = []
            while not sizes or sizes[-1][0] < NEW_SERIES:
                time.sleep(5)
                sizes.append(((polls(service) - begun) * SERIES, service.megabytes))
                print(f"{sizes[-1][0]:>10} series have come and gone: {sizes[-1][1]:.0f} MB", flush=True)
    warm = next(size for series, size in sizes if series >= WARM)
    growth = sizes[-1][1] / warm - 1
    print(f"since {WARM}: {growth:+.1%}, goal {GOAL:.0%} at most")
    return 0 if abs(growth) <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
