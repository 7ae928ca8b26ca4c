"""Whatever is refused is told once, by the name that its file has, until the file is read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pgque_pipeline import fresh, intake
from pgque_pipeline.intake import Taken, quarantine_with
from pgque_pipeline.tables.points import parser
from pgque_pipeline.warehouse.store import Warehouse
from tests.pipeline import otlp_lines as otlp

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
TODAY = NOW.date()
DAY = timedelta(days=1)
Told = list[tuple[str, str]]


class Quarantine:
    """Folders that tell what was refused, in a warehouse of their own."""

    def __init__(self, root: Path) -> None:
        self.warehouse = Warehouse(root)
        self.folders: tuple[str, ...] = ()

    def refuse(
        self,
        *texts: tuple[str, str],
        gone: Sequence[str] = (),
        again: Sequence[str] = (),
        moved: Mapping[str, str] | None = None,
    ) -> None:
        """Take in these lines, each with its file."""
        folder = f"quarantine/{len([*self.warehouse.root.glob('quarantine/*')])}"
        places = fresh.Places(self.warehouse.root / "points", self.warehouse.root / folder, (None, None), {})
        lines = ((file, [text.encode()]) for file, text in texts)
        assert fresh.written(parser(NOW)(lines), places, 0) == fresh.Outcome(0, None, len(texts))
        taken = Taken(refused=len(texts), quarantine=folder if texts else None, gone=frozenset(gone))
        self.folders = quarantine_with(self.warehouse, self.folders, taken, again=again, moved=moved)

    @property
    def told(self) -> Told:
        return [row for folder in self.folders for row in rows(self.warehouse.root / folder)]


def rows(folder: Path) -> Told:
    found = [row for file in sorted(folder.glob("*")) for row in pq.read_table(file).to_pylist()]
    assert {row["reason"] for row in found} <= {
        "not a line of OTLP JSON",
        "too late: older than the watermark",
    }
    return [(row["file"], row["text"]) for row in found]


@pytest.fixture
def quarantine(tmp_path: Path) -> Quarantine:
    return Quarantine(tmp_path)


def test_what_is_refused_is_added_to_what_is_told(quarantine: Quarantine) -> None:
    quarantine.refuse(("a", "one"), ("a", "one"), ("b", "two"))
    before = quarantine.folders
    quarantine.refuse(("a", "one"), ("c", "three"))
    # A line that stands there three times was refused three times.
    assert quarantine.told == [("a", "one"), ("a", "one"), ("b", "two"), ("a", "one"), ("c", "three")]
    assert quarantine.folders[:1] == before
    quarantine.refuse()
    assert len(quarantine.folders) == 2


def test_of_a_file_that_is_read_again_only_what_is_refused_now_is_told(quarantine: Quarantine) -> None:
    for texts in ([("a", "one"), ("b", "two")], [("c", "three")], [("a", "four")]):
        quarantine.refuse(*texts)
    mixed, others, _ = quarantine.folders
    quarantine.refuse(("a", "five"), again=["a", "d"])
    assert quarantine.told == [("b", "two"), ("c", "three"), ("a", "five")]
    assert len(quarantine.folders) == 3, "of which nothing is left is no more"
    assert mixed not in quarantine.folders
    assert quarantine.folders[1] == others, "which told nothing of it stays as it is"
    quarantine.refuse(again=["a", "b", "c"])
    assert not quarantine.folders


def test_what_is_told_follows_a_file_to_its_new_name(quarantine: Quarantine) -> None:
    quarantine.refuse(("live", "one"), ("live.1", "two"), ("other", "three"))
    quarantine.refuse(("other", "four"))
    quarantine.refuse(("live", "five"), again=["live"], moved={"live": "live.1", "live.1": "live.2"})
    assert quarantine.told == [
        ("live.1", "one"), ("live.2", "two"), ("other", "three"), ("other", "four"), ("live", "five"),
    ]  # fmt: skip


def test_many_folders_become_one(quarantine: Quarantine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "_MOST_FOLDERS", 4)
    expected = [("a", f"line {number}") for number in range(11)]
    sizes = []
    for row in expected:
        quarantine.refuse(row)
        sizes.append(len(quarantine.folders))
    assert quarantine.told == expected
    assert sizes == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3]


def test_nothing_is_told_of_a_file_that_vanished_while_it_was_read(quarantine: Quarantine) -> None:
    quarantine.refuse(("a", "one"))
    quarantine.refuse(("a", "two"), ("b", "three"), gone=["a"])
    assert quarantine.told == [("a", "one"), ("b", "three")]
    quarantine.refuse(("a", "four"), gone=["a"])
    assert quarantine.told == [("a", "one"), ("b", "three")]


def test_a_task_that_is_tried_again_tells_nothing_twice(tmp_path: Path) -> None:
    places = fresh.Places(tmp_path / "points", tmp_path / "refused", (None, None), {})
    for _ in range(2):
        fresh.written(parser(NOW)([("a", [b"one"])]), places, 7)
    fresh.written(parser(NOW)([("a", [b"two"])]), places, 8)
    assert rows(tmp_path / "refused") == [("a", "one"), ("a", "two")]


def line(moment: datetime, queue: str = "orders") -> bytes:
    point = otlp.point({"queue": queue}, int(moment.timestamp()) * 1_000_000, asDouble=1.5)
    return otlp.line([otlp.gauge("pgque.queue.depth", [point])]).encode()


def test_a_late_point_that_was_taken_in_time_is_not_refused(tmp_path: Path) -> None:
    old, older = NOW - 10 * DAY, NOW - 11 * DAY
    places = fresh.Places(tmp_path / "points", tmp_path / "none", (None, None), {})
    fresh.written(parser(NOW)([("a", [line(old), line(older, "mail")])]), places, 0)
    folders: dict[date, list[Path]] = {
        moment.date(): [tmp_path / f"points/date={moment.date()}"] for moment in (old, older)
    }
    given = [
        line(older), line(old), line(old + timedelta(seconds=1)), line(old, "mail"), line(older, "mail"),
        b"{", line(NOW - 12 * DAY), line(NOW),
    ]  # fmt: skip
    places = fresh.Places(tmp_path / "new", tmp_path / "refused", (None, None), folders)
    outcome = fresh.written(parser(NOW, TODAY - 7 * DAY)([("a", given)]), places, 0)
    assert outcome == fresh.Outcome(1, int(NOW.timestamp()) * 1_000_000, 5)
    told = [text for _, text in rows(tmp_path / "refused")]
    times = [f'"{int(moment.timestamp())}' for moment in (older, old + timedelta(seconds=1), old)]
    assert [text[:1] for text in told] == ["{"] * 5
    for text, time in zip(told[:3], times, strict=True):
        assert time in text
    assert "mail" in told[2]
    assert told[3] == "{"
