"""Runs: what is new is added once, whatever is run again, and nothing is lost on the way."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pgque_exporter.errors import UserError
from pgque_pipeline import reading
from pgque_pipeline import run as run_module
from pgque_pipeline.progress import Progress
from pgque_pipeline.run import Request, Summary, run
from pgque_pipeline.schemas import QUARANTINE, TABLES
from pgque_pipeline.warehouse.lock import only_run
from pgque_pipeline.warehouse.store import Warehouse, open_warehouse
from tests.pipeline import compare
from tests.pipeline import otlp_lines as otlp
from tests.pipeline.history import SECOND, history
from tests.pipeline.oracle import OBJECTIVES, Objectives
from tests.pipeline.truth import SETTINGS, difference, truth

NOW = datetime(2026, 4, 2, tzinfo=UTC)
BEGIN = int(datetime(2026, 3, 28, 20, 13, 5, tzinfo=UTC).timestamp()) * SECOND


class Runs:
    """A warehouse with its input, and runs of it in one session."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self.input = folder / "input"
        self.input.mkdir()
        self.root = folder / "warehouse"
        self.said = io.StringIO()

    def run(self, **choices: Any) -> Summary:
        request = Request(inputs=[self.input], settings=choices.pop("settings", SETTINGS), now=NOW)
        warehouse, progress = open_warehouse(self.root, create=True), Progress(self.said)
        return run(self._spark, warehouse, replace(request, **choices), progress)

    @property
    def warehouse(self) -> Warehouse:
        return open_warehouse(self.root, create=False)

    def rows(self, name: str) -> list[dict[str, Any]]:
        return compare.rows(self.warehouse.read(self._spark, TABLES[name]))

    def differences(self, lines: Sequence[str], objectives: Objectives = OBJECTIVES) -> list[str]:
        """What differs between the tables and the oracle's of these lines."""
        warehouse, expected = self.warehouse, truth(lines, objectives)
        series = compare.series_keys(warehouse.read(self._spark, TABLES["series"]))
        return [
            text
            for name in expected
            for text in difference(name, warehouse.read(self._spark, TABLES[name]), series, expected)
        ]


@pytest.fixture
def runs(spark: SparkSession, tmp_path: Path) -> Runs:
    return Runs(spark, tmp_path)


def write(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def test_tables_equal_the_oracle_however_the_input_arrives(runs: Runs) -> None:
    """In two runs, the second with late points and a file that grew."""
    first, second = history(1, BEGIN, 28), history(2, BEGIN, 28)
    cut, late = len(first) // 2, second[::7]
    write(runs.input / "grows.json", first[:cut])
    rest = "\n".join(line for line in second if line not in late)
    (runs.input / "packed.json.gz").write_bytes(gzip.compress(rest.encode()))
    summary = runs.run(batch_bytes=1)  # each file a batch of its own
    assert (summary.files, summary.refused) == (2, 0)
    write(runs.input / "grows.json", first)
    write(runs.input / "late.json", late)
    assert runs.run().files == 2
    assert runs.differences([*first, *second]) == []


def test_nothing_new_changes_nothing_and_a_window_is_replaced(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = history(9, BEGIN, 50)
    write(runs.input / "metrics.json", lines)
    runs.run()
    before = runs.warehouse.manifest
    assert runs.run() == Summary()
    assert runs.warehouse.manifest == before
    monkeypatch.setattr(run_module, "_CHUNK_DAYS", 1)  # each day made by itself
    summary = runs.run(begin=date(2026, 3, 29), end=date(2026, 3, 29))
    assert summary.days == 2  # and the day after, whose counters stand on it
    assert runs.differences(lines) == []


def test_what_was_refused_is_kept_until_its_file_is_mended(runs: Runs) -> None:
    lines = history(3, BEGIN, 3)
    torn = runs.input / "torn.json"
    torn.write_text("\n".join(lines)[:-40], "utf-8")
    write(runs.input / "broken.json", ["broken"])
    summary = runs.run()
    assert (summary.files, summary.refused) == (2, 2)
    reasons = {(Path(row["file"]).name, row["reason"]) for row in runs.rows("quarantine")}
    assert reasons == {(name, "not a line of OTLP JSON") for name in ("torn.json", "broken.json")}
    write(torn, lines)
    runs.run()
    assert [Path(row["file"]).name for row in runs.rows(QUARANTINE.name)] == ["broken.json"]
    assert len(runs.rows("points")) == len(truth(lines)["points"])


def test_files_that_vanish_are_passed_over_and_not_noted_as_read(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = history(10, BEGIN, 3)
    stays, sooner, later = (runs.input / f"{name}.json" for name in ("stays", "sooner", "later"))
    write(stays, lines[::2])
    for path in (sooner, later):
        write(path, ["broken", *lines[1::2]])
    cut = reading.lines

    def while_they_vanish(spark: SparkSession, files: Iterable[Path]) -> reading.Lines:
        sooner.unlink()
        found = cut(spark, files)
        later.rename(runs.root.parent / later.name)
        return found

    monkeypatch.setattr(reading, "lines", while_they_vanish)
    summary = runs.run()
    monkeypatch.undo()
    assert (summary.files, summary.refused) == (1, 0)
    assert [*runs.warehouse.manifest.files] == [str(stays)]
    assert f"passed over, as it is gone by now: {later} and 1 more\n" in runs.said.getvalue()
    assert runs.rows("quarantine") == []
    (runs.root.parent / later.name).rename(later)
    assert runs.run().files == 1
    assert runs.differences(lines) == []
    assert [row["file"] for row in runs.rows("quarantine")] == [str(later)]


def depth(ts: int, value: float | str) -> str:
    """A line of one point, of a database of its own."""
    labels = {"queue": "orders", "database": "other"}
    return otlp.line([otlp.gauge("pgque.queue.depth", [otlp.point(labels, ts, asDouble=value)])])


def test_points_beyond_the_watermark_come_too_late_unless_asked_for(runs: Runs) -> None:
    day = 86400 * SECOND
    early, recent = history(4, BEGIN - 20 * day, 1), history(5, BEGIN, 1)
    write(runs.input / "recent.json", recent)
    runs.run()
    refused = [depth(BEGIN - 20 * day, "NaN"), depth(BEGIN, "NaN"), "{"]
    write(runs.input / "early.json", [*early, *refused, depth(BEGIN - 25 * day, 1)])
    summary = runs.run()
    points = len(truth(early)["points"])
    assert (summary.points, summary.refused >= points) == (0, True)
    late = "too late: older than the watermark"
    reasons = {"not a finite value", "not a line of OTLP JSON"}
    assert {row["reason"] for row in runs.rows("quarantine")} == {late, *reasons}
    assert {row["database"] for row in runs.rows("series")} == {"db5"}
    # Who asks for those days gets them, and keeps days that the input has no more.
    (runs.input / "recent.json").unlink()
    summary = runs.run(begin=datetime.fromtimestamp(BEGIN / SECOND, UTC).date() - timedelta(days=20))
    assert summary.points >= points
    assert runs.differences([*early, *recent]) == []
    # What is in the tables now is no longer refused; what is older still is.
    told = sorted((row["reason"], row["text"][-40:]) for row in runs.rows("quarantine"))
    assert [reason for reason, _ in told] == [
        "not a finite value", "not a finite value", "not a line of OTLP JSON", late,
    ]  # fmt: skip


def test_points_that_were_in_time_are_not_refused_when_their_file_grows(runs: Runs) -> None:
    day = 86400 * SECOND
    lines = [depth(BEGIN - 20 * day, 1), depth(BEGIN, 2), "broken"]
    write(runs.input / "grows.json", lines)
    assert (summary := runs.run()).points == 2
    assert summary.refused == 1
    write(runs.input / "grows.json", [*lines, depth(BEGIN - 21 * day, 3), depth(BEGIN - 20 * day + 1, 4)])
    assert runs.run().refused == 3
    told = sorted((row["reason"], row["text"][-14:]) for row in runs.rows("quarantine"))
    late = "too late: older than the watermark"
    assert told == [
        ("not a line of OTLP JSON", "broken"), (late, '"asDouble":3}}'), (late, '"asDouble":4}}'),
    ]  # fmt: skip
    assert len(runs.rows("points")) == 2


def test_other_settings_make_the_tables_anew(runs: Runs) -> None:
    lines = history(6, BEGIN, 2)
    write(runs.input / "metrics.json", lines)
    runs.run(settings=replace(SETTINGS, max_gap=30))
    runs.run()
    assert runs.differences(lines) == []


def test_windows_end_where_their_samples_do_however_long_others_go_on(runs: Runs) -> None:
    labels = {"engine": "pgque", "database": "shop", "queue": "orders", "consumer": "app"}
    hour = 3600 * SECOND
    lag = [otlp.point(labels, BEGIN - (100 * 24 - n * 48) * hour, asDouble=float(n)) for n in range(10)]
    other = [otlp.point(labels, BEGIN, asDouble=1.0)]
    lines = [otlp.line([otlp.gauge("pgque.consumer.lag_seconds", lag), otlp.gauge("shop.size", other)])]
    write(runs.input / "metrics.json", lines)
    runs.run()
    seen = {row["window_hours"]: row["total"] for row in runs.rows("slo")}
    assert (seen[1], seen[72], seen[2160]) == (1, 2, 10)


def test_nothing_is_left_of_older_states(runs: Runs) -> None:
    write(runs.input / "a.json", history(7, BEGIN, 1))
    runs.run()
    write(runs.input / "b.json", history(8, BEGIN, 1))
    (runs.root / "points/000000000099-killed/date=2026-03-28").mkdir(parents=True)
    runs.run()
    assert {Path(path).name for path in runs.warehouse.manifest.files} == {"a.json", "b.json"}
    (runs.input / "a.json").unlink()
    runs.run()
    assert {Path(path).name for path in runs.warehouse.manifest.files} == {"b.json"}
    kept = {*runs.warehouse.manifest.all_folders()}
    found = {str(path.parent.relative_to(runs.root)) for path in runs.root.rglob("*.parquet")}
    states = sorted(runs.root.glob("manifest-*"))
    assert kept <= found
    assert len(states) == 2
    assert not (runs.root / "points/000000000099-killed").exists()


def test_a_second_run_refuses(runs: Runs) -> None:
    write(runs.input / "a.json", [])
    runs.root.mkdir()
    with (
        only_run(runs.root),
        pytest.raises(UserError, match=r"another run is writing here \(process \d+ since"),
    ):
        runs.run()
