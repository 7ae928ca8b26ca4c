"""`pgque-pipeline demo` as a newcomer meets it: one command, and a page whose sentences are the tables'."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pgque_pipeline import cli
from pgque_pipeline.report.words import Clock, duration
from pgque_pipeline.schemas import TABLES
from pgque_pipeline.warehouse.store import open_warehouse
from tests.pipeline.conftest import INTERPRETED

Row = dict[str, Any]

# For a day's points nothing is compiled that doesn't pay back.
SHORT_LIVED = {
    "JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "PYSPARK_SUBMIT_ARGS": " ".join(
        [*(f"--conf {name}={value}" for name, value in INTERPRETED.items()), "pyspark-shell"]
    ),
}


def rows(root: Path, table: str) -> list[Row]:
    """A table of the warehouse, read without Spark."""
    folders = open_warehouse(root, create=False).folders(TABLES[table])
    return [row for folder in folders for row in pq.read_table(root / folder).to_pylist()]


def text(page: Path) -> str:
    content = re.sub(r"<style>.*?</style>", "", page.read_text("utf-8"), flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", content)).split())


@pytest.mark.slow
def test_one_command_ends_with_a_report(java: None, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    environment = {
        name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")
    }
    environment |= SHORT_LIVED
    result = subprocess.run(
        [sys.executable, "-m", "pgque_pipeline", "demo", "--folder", folder, "--days", "1", "--memory", "1g"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert f"Report  {folder / 'report.html'}" in result.stdout
    assert "generating 1 day\nreading 2 of 2 files\n" in result.stderr
    said, warehouse = text(folder / "report.html"), folder / "warehouse"

    slo = [row for row in rows(warehouse, "slo") if row["window_hours"] == 28 * 24]
    broken = [row for row in slo if row["burn"] > 1]
    incidents = rows(warehouse, "incidents")
    still = [row for row in incidents if row["ended"] is None]
    assert len(slo) == 19
    assert {row["queue"] for row in broken} == {"billing", "emails"}
    assert {(row["queue"], row["check"]) for row in still} == {
        ("billing", "consumer_lag"), ("billing", "consumer_stuck"),
    }  # fmt: skip
    assert (
        f"{len(broken)} of 19 promises broken; {len(incidents)} incidents, 2 still going on; "
        "2 consumers on the way to be blocked."
    ) in said

    growing = {
        row["consumer"]: row for row in rows(warehouse, "forecast") if row["queue"] in ("billing", "emails")
    }
    clock = Clock("UTC")
    for name, row in growing.items():
        when = clock.minute(row["as_of"] + timedelta(seconds=row["seconds_left"]))
        left, lag, period = (
            duration(row[column]).replace("\u00a0", " ")
            for column in ("seconds_left", "lag_seconds", "rotation_period_seconds")
        )
        assert f"{row['queue']} / {name} will be blocked in {left}" in said
        assert f"its lag of {lag} passes the rotation period of {period} on {when}" in said
    assert growing["ledger"]["seconds_left"] == pytest.approx(5 * 3600, abs=600)
    assert growing["mailer"]["seconds_left_low"] < growing["mailer"]["seconds_left_high"]

    assert rows(warehouse, "quarantine") == []
    assert "Generated. These data are generated" in said
    assert "There is no baseline yet" in said
    assert "The databases were watched without a gap." in said
    assert "With 1 day of data" in said


def test_it_takes_no_folder_that_holds_other_things(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "photo.jpg").touch()
    assert cli.main(["demo", "--folder", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"pgque-pipeline: error: {tmp_path}: this folder holds other things (photo.jpg). "
        "Give a new or empty folder\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]


def test_a_report_needs_a_warehouse_and_a_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for output, told in (
        (tmp_path / "report.html", f"{tmp_path}: there is no warehouse here. `pgque-pipeline run` makes one"),
        (tmp_path, f"{tmp_path}: this is a folder. Name a file, such as report.html"),
        (tmp_path / "gone/report.html", f"{tmp_path}/gone: there is no such folder"),
    ):
        assert cli.main(["report", "--warehouse", str(tmp_path), "--output", str(output)]) == 2
        assert capsys.readouterr().err == f"pgque-pipeline: error: {told}\n"
