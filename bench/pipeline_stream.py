"""How long a line takes from being written to being readable as rows of the tables, while a stream follows.

python bench/pipeline_stream.py
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pyarrow.dataset as ds

from pgque_pipeline.schemas import POINTS
from pgque_pipeline.warehouse import manifest
from pgque_pipeline.warehouse.manifest import Manifest
from tests.support.java import java_home
from tests.support.processes import Process

TRIGGER = 10  # seconds
TABLES_EVERY = 30
BATCHES = 6
SERIES = 1000
EVERY = 1.0  # seconds from line to line
_LOOK = 0.05


def line(moment: float) -> str:
    """A poll of so many queues."""
    time_ns = str(int(moment * 1e6) * 1000)
    points = [
        {
            "attributes": [
                {"key": "database", "value": {"stringValue": "bench"}},
                {"key": "queue", "value": {"stringValue": f"queue_{number}"}},
            ],
            "timeUnixNano": time_ns,
            "asDouble": (number * 7919 + int(moment)) % 1000,
        }
        for number in range(SERIES)
    ]
    metric = {"name": "pgque.queue.depth", "unit": "{event}", "gauge": {"dataPoints": points}}
    request = {"resource": {"attributes": []}, "scopeMetrics": [{"metrics": [metric]}]}
    return json.dumps({"resourceMetrics": [request]}, separators=(",", ":"))


@dataclass
class Seen:
    """Times of lines, in microseconds, and when each was readable first, by table."""

    points: dict[int, float]
    tables: dict[int, float]


def times(folder: Path, known: dict[Path, set[int]]) -> set[int]:
    """The times of points in a folder, which never changes."""
    if folder not in known:
        found = ds.dataset(folder, format="parquet").to_table(columns=["ts"])["ts"]
        known[folder] = {*found.cast("int64").unique().to_pylist()}
    return known[folder]


def main() -> int:
    home = java_home()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        live, root = folder / "input" / "live.json", folder / "warehouse"
        live.parent.mkdir()
        live.touch()
        words = ["stream", "--input", str(live.parent), "--warehouse", str(root)]
        words += ["--trigger", str(TRIGGER), "--tables-every", str(TABLES_EVERY)]
        env = {"JAVA_HOME": str(home)} if home else {}
        begun = time.monotonic()
        with Process([sys.executable, "-m", "pgque_pipeline", *words], log=folder / "log", env=env) as stream:
            stream.wait_for(lambda: root.is_dir(), "the warehouse", timeout=120)
            seen = follow(stream, live, root, begun)
            code = stream.stop(30)
            told = stream.output()
        print(told.strip())
        tell(seen, told)
        return 0 if code == 0 else 1


def follow(stream: Process, live: Path, root: Path, begun: float) -> Seen:
    """Write lines and watch for them until enough batches were taken."""
    written: list[int] = []
    seen = Seen({}, {})
    known: dict[Path, set[int]] = {}
    number, batches, due = -1, 0, time.time()
    with live.open("a") as file:
        while batches <= BATCHES:  # the first has what came while Spark started
            if stream.returncode is not None:
                raise SystemExit(stream.log_tail())
            if time.time() >= due:
                due += EVERY
                moment = int(time.time() * 1e6)
                file.write(line(moment / 1e6) + "\n")
                file.flush()
                written.append(moment)
            numbers = manifest.existing(root)
            if numbers and numbers[-1] != number:
                state = manifest.load(root, numbers[-1])
                number = numbers[-1]
                taken = look(root, state, seen, known)
                if taken and not batches:
                    print(f"first batch {time.monotonic() - begun:.1f} s after the start")
                batches += taken
            time.sleep(_LOOK)
    first = min(seen.points.values())
    for table in (seen.points, seen.tables):
        for moment in [*table]:
            if table[moment] <= first:
                del table[moment]
    return seen


def look(root: Path, state: Manifest, seen: Seen, known: dict[Path, set[int]]) -> bool:
    """Note what is readable by now; whether points came."""
    now, before = time.time(), len(seen.points)
    made = [root / folder for folder in state.days.get(POINTS.name, {}).values()]
    fresh = [root / folder for folders in state.fresh.values() for folder in folders]
    for folder in made:  # put in force together with all tables of the day
        for moment in times(folder, known):
            seen.tables.setdefault(moment, now)
    for folder in [*made, *fresh]:
        for moment in times(folder, known):
            seen.points.setdefault(moment, now)
    return len(seen.points) > before


def tell(seen: Seen, told: str) -> None:
    """Print the delays, and what of them is the batch itself; the rest is the wait for its trigger."""
    print(
        f"{SERIES:,} points in a line, every {EVERY:g} s; trigger {TRIGGER} s, tables every {TABLES_EVERY} s"
    )
    for name, table in (("points", seen.points), ("tables", seen.tables)):
        delays = sorted(at - moment / 1e6 for moment, at in table.items())
        if delays:
            print(
                f"written to readable, {name}: median {statistics.median(delays):.1f} s, "
                f"least {delays[0]:.1f} s, most {delays[-1]:.1f} s, of {len(delays)} lines"
            )
    batches = re.findall(r" ([\d,]+) points, ([\d,]+) points/s", told)
    seconds = [int(points.replace(",", "")) / int(rate.replace(",", "")) for points, rate in batches[1:]]
    if seconds:
        print(f"a batch itself: median {statistics.median(seconds):.1f} s, most {max(seconds):.1f} s")
    for tables in re.findall(r"tables of .*", told):
        print(tables)


if __name__ == "__main__":
    sys.exit(main())
