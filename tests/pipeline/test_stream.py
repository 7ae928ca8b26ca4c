"""A stream makes the tables that a run makes of the same input, however that comes and whatever kills it."""

from __future__ import annotations

import gzip
import io
import math
import random
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pgque_exporter.errors import UserError
from pgque_pipeline import stream as stream_module
from pgque_pipeline.progress import Progress
from pgque_pipeline.run import Summary
from pgque_pipeline.schemas import POINTS
from pgque_pipeline.stream import Stop, StreamRequest, stream
from pgque_pipeline.warehouse.store import open_warehouse
from tests.pipeline import compare
from tests.pipeline.history import history
from tests.pipeline.test_crash import IN_A_ROW, KILLS, SEED, kill_after
from tests.pipeline.test_run import BEGIN, Runs, write
from tests.pipeline.truth import SETTINGS, truth
from tests.support.processes import wait_for

FOR_EVER = 1e6
# Files that such a stream makes until nothing is left to do, as was counted: 40 to 90.
PATHS = 60


@pytest.fixture
def runs(spark: SparkSession, tmp_path: Path) -> Runs:
    return Runs(spark, tmp_path)


def follow(
    spark: SparkSession, runs: Runs, stop: Stop, *, progress: Progress | None = None, **choices: Any
) -> Summary:
    request = StreamRequest(inputs=[runs.input], settings=SETTINGS, **choices)
    warehouse = open_warehouse(runs.root, create=True)
    return stream(spark, warehouse, request, progress or Progress(quiet=True), stop)


@contextmanager
def following(spark: SparkSession, runs: Runs, **choices: Any) -> Iterator[None]:
    """A stream as long as the context is open; whatever it dies of is raised at the end."""
    stop = Stop()
    died: list[BaseException] = []

    def work() -> None:
        try:
            follow(spark, runs, stop, trigger=0.2, **choices)
        except BaseException as error:  # noqa: BLE001 - raised below
            died.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.asked.set()
        thread.join()
    if died:
        raise died[0]


def add(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def test_a_stream_equals_the_oracle_however_the_input_arrives(spark: SparkSession, runs: Runs) -> None:
    """Begun by a run; then lines in halves, a rotation, a packed file, late and repeated points, rubbish."""
    lines = history(31, BEGIN, 16)
    other = history(32, BEGIN, 4)
    live, old, packed = (runs.input / name for name in ("live.json", "live.1.json", "live.1.json.gz"))
    third = len(lines) // 3
    late = lines[: third * 2][::9]
    early = [line for line in lines[: third * 2] if line not in late]
    write(live, early[:third])
    runs.run()

    def taken() -> bool:
        """Whether the stream has read all that is whole."""
        known = runs.warehouse.manifest.files
        return all(
            known[str(path)].size == path.stat().st_size
            for path in runs.input.iterdir()
            if str(path) in known
        ) and {Path(path).name for path in known} >= {path.name for path in runs.input.iterdir()}

    with following(spark, runs, tables_every=FOR_EVER, settle=0.5):
        text = "".join(f"{line}\n" for line in [*early[third:], "rubbish"])
        add(live, text[: len(text) // 2])
        add(live, text[len(text) // 2 :])
        wait_for(taken, "all of the live file", timeout=200)
        live.rename(old)
        add(live, "".join(f"{line}\n" for line in [*lines[third * 2 :], *late]))
        wait_for(taken, "the file that took its name", timeout=200)
        with pytest.raises(UserError, match="another run is writing here"):
            runs.run()
        held = {(row["series_id"], row["ts"]) for row in compare.rows(runs.warehouse.read(spark, POINTS))}
        assert len(held) == len(truth(lines)["points"]), "what was taken can be read before tables are made"
        packed.write_bytes(gzip.compress(old.read_bytes()))
        old.unlink()
        write(runs.input / "other.json", other)
        wait_for(taken, "what is packed", timeout=200)
    summary = follow(spark, runs, Stop(), once=True)
    assert (summary.points, summary.refused) == (0, 0), "nothing was left"
    assert runs.differences([*lines, *other]) == []
    assert {(Path(row["file"]).name, row["text"]) for row in runs.rows("quarantine")} == {
        (packed.name, "rubbish")
    }
    assert runs.run() == Summary(), "a run finds nothing new"


def test_points_go_on_while_the_tables_cannot_be_made(
    spark: SparkSession, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that they need is broken on the disk until somebody mends it; and so is another later on."""
    monkeypatch.setattr(stream_module, "_TRIES", 1_000_000)
    lines = history(41, BEGIN, 5)
    first, *pieces = (lines[number : number + 12] for number in range(0, len(lines), 12))
    live = runs.input / "live.json"
    write(live, first)
    runs.run()
    told = io.StringIO()

    def failures() -> list[tuple[str, str]]:
        return re.findall(r"the tables can't be made, failure (\d+) of \d+ in a row: (.*)", told.getvalue())

    def taken() -> bool:
        return runs.warehouse.manifest.files[str(live)].size == live.stat().st_size

    def failed(times: int) -> bool:
        return len(failures()) >= times

    def made() -> bool:
        state = runs.warehouse.manifest
        return not (state.fresh or state.pending or state.stale)

    with following(spark, runs, tables_every=0.2, progress=Progress(told, quiet=True)):
        for half in (pieces[: len(pieces) // 2], pieces[len(pieces) // 2 :]):
            (folder,) = runs.warehouse.paths(runs.warehouse.folders(POINTS))
            (broken,) = folder.glob("*.parquet")
            content = broken.read_bytes()
            broken.write_bytes(content[:100])
            before = len(failures())
            for count, piece in enumerate(half, 1):
                add(live, "".join(f"{line}\n" for line in piece))
                wait_for(taken, "the points", timeout=200)
                wait_for(partial(failed, before + count), "the tables fail", timeout=200)
            broken.write_bytes(content)
            wait_for(made, "the tables", timeout=200)
            found = failures()[before:]
            assert [number for number, _ in found] == [str(number + 1) for number in range(len(found))]
            why = f"ArrowInvalid: {broken}: "
            assert {text[: len(why)] for _, text in found} == {why}
    assert runs.run() == Summary(), "a run finds nothing to do"
    assert runs.differences(lines) == []


@pytest.mark.parametrize("seed", range(SEED, SEED + math.ceil(KILLS / IN_A_ROW)))
def test_a_killed_stream_is_gone_on_with(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    """Killed while it takes small batches and makes tables, with files that grow and are renamed between."""
    chance = random.Random(seed)
    runs = Runs(spark, tmp_path)
    lines: list[str] = []
    rest = ""
    live = runs.input / "live.json"
    for number in range(IN_A_ROW):
        new = history(1000 * seed + number, BEGIN, 4)
        lines += new
        text = rest + "".join(f"{line}\n" for line in new)
        cut = len(text) - chance.randint(0, 2000)
        add(live, text[:cut])
        rest = text[cut:]
        assert kill_after(spark, runs, chance.randint(1, PATHS), "stream")
        if chance.random() < 0.5:
            add(live, rest)
            rest = ""
            live.rename(runs.input / f"live.{number}.json")
    add(live, rest)
    follow(spark, runs, Stop(), once=True)
    assert runs.differences(lines) == []
    assert runs.rows("quarantine") == []
