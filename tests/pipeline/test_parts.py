"""Tables made in parts: the same as in one, and nothing torn is ever read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pgque_pipeline import daily, fresh, overall, settling
from pgque_pipeline.parts import Part, all_parts, files, newest, parts_for, read, write, write_file
from pgque_pipeline.schemas import INCIDENTS, POINTS, SERIES, Table
from pgque_pipeline.tables.points import parser
from tests.pipeline.history import SECOND, history
from tests.pipeline.test_oracle import weeks_of_one_queue
from tests.pipeline.truth import SETTINGS
from tests.support.processes import wait_for

BEGIN = int(datetime(2026, 3, 30, 21, 13, 5, tzinfo=UTC).timestamp()) * SECOND
NOW = datetime(2027, 1, 1, tzinfo=UTC)


class Made:
    """All tables of some lines, each made in so many parts."""

    def __init__(self, root: Path, lines: Sequence[str], parts: int) -> None:
        self._root, self._parts = root, all_parts(parts)
        texts = [line.encode() for line in lines]
        places = fresh.Places(root / "fresh", root / "refused", (None, None), {})
        fresh.written(parser(NOW)(iter([("input", texts)])), places, 0)
        self._days = sorted(date.fromisoformat(path.name[5:]) for path in (root / "fresh").iterdir())
        for day in self._days:
            self._settle(day, parts)
        for day in self._days:
            self._make(day, parts)
        for folder, make in self._overall():
            for part in self._parts:
                write(make(part), folder, part)

    def rows(self, table: Table) -> list[Any]:
        made = (self._root / table.name).rglob("*.parquet")
        return sorted(
            repr(row) for file in made for row in pq.read_table(file, partitioning=None).to_pylist()
        )

    def _settle(self, day: date, parts: int) -> None:
        for part in self._parts:
            made = settling.Day(day, self._folders("fresh", [day]), [], [], parts)
            settling.settle_part(made, part, self._root / "points", self._root / "series")

    def _make(self, day: date, parts: int) -> None:
        own, series, before = (
            self._folders(*of)
            for of in (("points", [day]), ("series", [day]), ("points", [day - timedelta(days=1)]))
        )
        folders = {table.name: self._root / table.name for table in daily.TABLES}
        for part in self._parts:
            daily.make(daily.Day(day, own, series, before, parts), part, folders, SETTINGS)

    def _overall(self) -> Any:
        names = ("health", "sli", "rollup_1h", "series", "rollup_1m", "rollup_1d", "series")
        past = overall.History(*(self._folders(name, self._days) for name in names))
        for table, (_, make) in overall.makers(past, SETTINGS).items():
            yield self._root / table.name, make

    def _folders(self, name: str, days: Sequence[date]) -> list[Path]:
        return [path for day in days if (path := self._root / name / f"date={day}").is_dir()]


@pytest.fixture(scope="module")
def lines() -> list[str]:
    lines = [line for seed in range(1, 7) for line in history(seed, BEGIN, 60)]
    return lines + weeks_of_one_queue("spring")


@pytest.fixture(scope="module")
def whole(lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("whole"), lines, 1)


def test_parts_make_the_rows_that_the_whole_makes(whole: Made, lines: list[str], tmp_path: Path) -> None:
    divided = Made(tmp_path, lines, 7)
    for table in (POINTS, SERIES, *daily.TABLES, *overall.TABLES):
        assert whole.rows(table), table.name
        assert divided.rows(table) == whole.rows(table), table.name
    assert sum(len(pq.read_table(file)) > 0 for file in files([tmp_path / INCIDENTS.name])) > 1


@pytest.mark.parametrize("count", [1, 3, 7, 1000])
def test_parts_hold_every_id_once_and_no_entity_twice(count: int) -> None:
    bounds = [part.bounds for part in all_parts(count)]
    assert (bounds[0][0], bounds[-1][1]) == (-(2**63), 2**63 - 1)
    assert all(last + 1 == begin for (_, last), (begin, _) in pairwise(bounds))
    assert all(begin % 2**40 == 0 for begin, _ in bounds)


def test_what_a_killed_task_leaves_is_never_read(tmp_path: Path) -> None:
    script = """
import sys; from pathlib import Path; import numpy as np; import pyarrow as pa
from pgque_pipeline.parts import write_file
ids = np.random.default_rng(1).integers(0, 2**62, 20_000_000)
write_file(pa.table({"series_id": ids}), Path(sys.argv[1]))
"""
    target = tmp_path / "part.parquet"
    task = subprocess.Popen([sys.executable, "-c", script, str(target)])
    wait_for(lambda: any(path.stat().st_size for path in tmp_path.iterdir()), "a file is begun", timeout=60)
    os.kill(task.pid, signal.SIGKILL)
    task.wait()
    torn = [*tmp_path.iterdir()]
    assert torn
    assert target not in torn
    schema = pa.schema([("series_id", pa.int64())])
    assert len(read([tmp_path], schema, Part(0, 1))) == parts_for([tmp_path]) - 1 == 0
    write_file(pa.table({"series_id": np.arange(3)}), target)
    assert len(read([tmp_path], schema, Part(0, 1))) == 3


def test_the_newest_time_is_found_behind_a_map(tmp_path: Path) -> None:
    rows = [{"series_id": n, "attributes": [("a", "b")], "first_seen": n * SECOND} for n in (3, 7, 5)]
    write(pa.Table.from_pylist(rows, schema=SERIES.stored), tmp_path, Part(0, 1))
    assert newest([tmp_path], "first_seen") == 7 * SECOND
