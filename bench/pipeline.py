"""What the pipeline costs beside DuckDB and Polars: the same input, the same work, on two cores.

    make bench-pipeline

Each measurement is a process of its own. Raw OTLP JSON to `points` is timed without starting Spark or
importing anything; a whole run, from input to published tables, is the time of the process, after
`pgque-pipeline prepare`. The exit code is 1 where a ratio falls short; the last line holds them all.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pyarrow import parquet

from bench.pipeline_input import write
from pgque_exporter.demo.cluster import Cluster
from pgque_pipeline.schemas import TABLES
from pgque_pipeline.warehouse.store import open_warehouse
from tests.support.database import installation, new_database
from tests.support.repository import ROOT

POINTS_GAIN = 2.5  # points a second beside DuckDB's and Polars'
NOT_SLOWER = 1.0  # a whole run beside DuckDB's
RISE = 1.0  # cost of a point at 16 times the input
MEMORY = 4 * 1024**3  # bytes at 16 times the input
SMALL_FILES = 2.0  # cost of the same points in 2,000 files
MANY = 16


@dataclass(frozen=True)
class Ran:
    """What a process took: seconds from begin to end, peak memory of it and its children, what it said."""

    seconds: float
    memory: int
    said: dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--many", type=int, default=MANY, help=f"databases of the large input, default {MANY}"
    )
    parser.add_argument("--folder", type=Path, help="where there is room for the input (some 20 GB)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pgque-bench-", dir=arguments.folder) as folder:
        return _compare(Path(folder), arguments.many)


def _compare(folder: Path, many: int) -> int:
    one = write(folder / "one", 1)
    print(f"{one.points:,} points in {one.files} files of OTLP JSON, {one.size / 1e6:,.0f} MB", flush=True)
    ratios: dict[str, tuple[float, bool]] = {}
    process([sys.executable, "-m", "pgque_pipeline", "prepare"])
    with database() as dsn:
        peers = {
            "DuckDB": peer("pipeline_duckdb.py", "points", folder / "one", folder / "duck"),
            "Polars": peer("pipeline_polars.py", "points", folder / "one", folder / "polars"),
        }
        mine = ours("points", folder / "one", folder / "points")
        for name, ran in {"ours": mine, **peers}.items():
            seconds = ran.said["points_seconds"]
            show(f"JSON to points: {name}", one.points, seconds, ran.memory)
            check_same(name, one.points, mine, ran)
            if name != "ours":
                gain = seconds / mine.said["points_seconds"]
                ratios[f"points beside {name}"] = gain, gain >= POINTS_GAIN
        theirs = peer("pipeline_duckdb.py", "run", folder / "one", folder / "duck", dsn)
        whole = run(folder / "one", folder / "warehouse", dsn)
        check_tables(folder / "warehouse", theirs)
        show("whole run: ours", one.points, whole.seconds, whole.memory)
        show("whole run: DuckDB", one.points, theirs.seconds, theirs.memory)
        gain = theirs.seconds / whole.seconds
        ratios["whole run beside DuckDB"] = gain, gain >= NOT_SLOWER
        shutil.rmtree(folder / "one")

        small = write(folder / "small", 1, file_points=1000)
        print(f"{small.points:,} points in {small.files:,} files")
        ran = ours("points", folder / "small", folder / "points")
        show("JSON to points: small files", small.points, ran.said["points_seconds"], ran.memory)
        cost = ran.said["points_seconds"] / mine.said["points_seconds"]
        ratios["small files"] = cost, cost <= SMALL_FILES
        shutil.rmtree(folder / "small")

        large = write(folder / "large", many)
        print(f"{large.points:,} points, {large.size / 1e9:,.1f} GB")
        ran = run(folder / "large", folder / "large-warehouse", dsn)
        show("whole run: large", large.points, ran.seconds, ran.memory)
        rise = ran.seconds / large.points / (whole.seconds / one.points)
        ratios[f"cost of a point at {many} times the input"] = rise, rise <= RISE
        ratios["of 4 GB at that"] = ran.memory / MEMORY, ran.memory <= MEMORY
    short = [name for name, (_, well) in ratios.items() if not well]
    told = "; ".join(f"{name}: {ratio:.2f}" for name, (ratio, _) in ratios.items())
    print(f"{told}; short: {', '.join(short) or 'nothing'}")
    return 1 if short else 0


@contextmanager
def database() -> Iterator[str]:
    """The DSN of a database to publish to."""
    server = installation("pg18")
    with Cluster(server.bindir, env=server.env) as cluster, new_database(cluster) as one:
        yield one.dsn()


def peer(program: str, *words: object) -> Ran:
    return process([sys.executable, str(ROOT / "bench/peers" / program), *map(str, words)])


def ours(*words: object) -> Ran:
    return process([sys.executable, "-m", "bench.pipeline_points", *map(str, words)])


def run(given: Path, warehouse: Path, dsn: str) -> Ran:
    command = [sys.executable, "-m", "pgque_pipeline", "run", "--quiet"]
    return process([*command, "--input", str(given), "--warehouse", str(warehouse), "--publish-to", dsn])


def process(command: list[str]) -> Ran:
    began = time.perf_counter()
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        peak = _Peak(child.pid)
        out, err = child.communicate()
        seconds = time.perf_counter() - began
        memory = peak.end()
    if child.returncode:
        raise SystemExit(f"{' '.join(command[:4])} failed:\n{err[-2000:]}")
    found = [line for line in out.splitlines() if line.startswith("{")]
    return Ran(seconds, memory, json.loads(found[-1]) if found else {})


class _Peak:
    """The most memory that a process and its children had at a time, looked at five times a second."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def end(self) -> int:
        """Bytes."""
        self._over.set()
        self._thread.join()
        return self._most

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            self._most = max(self._most, memory_of_tree(self._pid))


def memory_of_tree(pid: int) -> int:
    """Bytes of a process and all that descend from it; what they share is counted once (PSS)."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                after = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry)] = int(after[1])
    tree, added = {pid}, True
    while added:
        more = {child for child, parent in parents.items() if parent in tree} - tree
        tree |= more
        added = bool(more)
    return sum(map(_proportional, tree))


def _proportional(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    match = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else 0


def show(what: str, points: int, seconds: float, memory: int) -> None:
    rate, cost = points / seconds, seconds / points * 1e6
    print(
        f"{what:<32}{seconds:>8.1f} s {rate:>10,.0f} points/s {cost:>7.1f} us a point"
        f" {memory / 1e6:>7,.0f} MB",
        flush=True,
    )


def check_same(name: str, points: int, mine: Ran, other: Ran) -> None:
    """Whoever is compared has to have done the work."""
    if other.said["rows"]["points"] != points or abs(other.said["sum"] / mine.said["sum"] - 1) > 1e-9:
        raise SystemExit(f"{name} has other points: {other.said}")


def check_tables(warehouse: Path, other: Ran) -> None:
    """The tables of both have to be of the same size."""
    held = open_warehouse(warehouse, create=False)
    mine = {
        name: sum(
            parquet.read_metadata(file).num_rows
            for folder in held.folders(TABLES[name])
            for file in (warehouse / folder).glob("*.parquet")
        )
        for name in other.said["rows"]
    }
    if mine != other.said["rows"]:
        raise SystemExit(f"the tables differ in size: {mine} here, {other.said['rows']} there")


if __name__ == "__main__":
    sys.exit(main())
