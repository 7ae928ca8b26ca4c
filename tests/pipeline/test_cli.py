"""The command line as a person meets it: one clear line, an exit code, no traceback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from pgque_exporter import __version__
from pgque_pipeline import cli
from pgque_pipeline.schemas import TABLES
from pgque_pipeline.warehouse.lock import only_run
from pgque_pipeline.warehouse.manifest import Manifest, commit
from pgque_pipeline.warehouse.store import open_warehouse
from tests.pipeline.history import history
from tests.pipeline.test_run import BEGIN, write
from tests.support.database import Database
from tests.support.java import SMALL
from tests.support.processes import Process, session_words


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    try:
        code = cli.main([str(word) for word in words])
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 1
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"pgque-pipeline {__version__}\n", "")
    assert run(capsys)[0] == 2
    code, out, _ = run(capsys, "run", "--help")
    assert code == 0
    assert "--warehouse FOLDER" in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--from", "2026-02-30"), "'2026-02-30' is no day such as 2026-01-31"),
        (("--from", "2026-02-02", "--to", "2026-02-01"), "--from is after --to"),
        (("--time-zone", "Mars/Base"), "'Mars/Base' is no time zone such as Europe/Berlin"),
        (("--time-zone", "../../etc/passwd"), "is no time zone"),
        (("--watermark", "-1"), "'-1' is no whole number"),
        (("--memory", "plenty"), "'plenty' is no amount of memory such as 2g or 1500m"),
    ],
)
def test_a_wrong_choice_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    write(tmp_path / "metrics.json", [])
    places = ("--input", tmp_path / "metrics.json", "--warehouse", tmp_path / "warehouse")
    code, out, err = run(capsys, "run", *places, *words)
    assert (code, out) == (2, "")
    assert told in err


def test_a_stream_needs_a_time_between_batches(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for text in ("0", "-1", "soon", "nan", "inf"):
        code, _, err = run(
            capsys, "stream", "--input", tmp_path, "--warehouse", tmp_path / "w", f"--trigger={text}"
        )
        assert (code, f"{text!r} is no number of seconds above 0" in err) == (2, True)


def test_wrong_places_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, empty, full = tmp_path / "metrics.json", tmp_path / "empty", tmp_path / "full"
    write(file, [])
    empty.mkdir()
    full.mkdir()
    (full / "photo.jpg").touch()

    def refused(input_: Path, warehouse: Path) -> str:
        code, out, err = run(capsys, "run", "--input", input_, "--warehouse", warehouse)
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
        return err.removeprefix("pgque-pipeline: error: ").strip()

    new = tmp_path / "new"
    assert refused(tmp_path / "gone", new) == f"{tmp_path}/gone: there is no such file or folder"
    assert refused(empty, new) == f"{empty}: there is no file in this folder"
    assert refused(file, file) == f"{file}: the warehouse has to be a folder"
    assert refused(file, full) == (
        f"{full}: this folder holds other things (photo.jpg). Give a new or empty folder"
    )
    with only_run(empty):
        told = refused(file, empty)
    assert told.startswith(f"{empty}: another run is writing here (process {os.getpid()} since ")
    code, _, err = run(capsys, "tables", "--warehouse", empty)
    assert (code, err) == (
        2,
        f"pgque-pipeline: error: {empty}: there is no warehouse here. `pgque-pipeline run` makes one\n",
    )


@pytest.mark.parametrize("content", ["", "{}", '{"format": 99}', '{"format": 1, "number": "x"}'])
def test_a_manifest_of_another_kind_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str
) -> None:
    (tmp_path / "manifest-000000000001.json").write_text(content)
    code, _, err = run(capsys, "tables", "--warehouse", tmp_path)
    assert code == 2
    assert "manifest-000000000001.json: this is no manifest that this version can read" in err


def test_tables_tells_each_column(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    commit(tmp_path, Manifest(whole={"slo": "slo/1"}))
    code, out, err = run(capsys, "tables", "--warehouse", tmp_path)
    assert (code, err) == (0, "")
    assert f"  {tmp_path}/slo/1\n" in out
    for table in TABLES.values():
        assert f"{table.name}: {table.doc}\n" in out
        assert all(f"    {field.name} {field.type}" in out for field in table.fields)


def command(name: str, input_: Path, warehouse: Path) -> list[str | Path]:
    words = [sys.executable, "-m", "pgque_pipeline", name, "--memory", "1g"]
    return [*words, "--input", input_, "--warehouse", warehouse]


def run_watched(
    words: Sequence[str | Path],
) -> tuple[subprocess.CompletedProcess[str], set[tuple[str, ...]]]:
    """Run a command to its end; and the words of its processes that others see from Java's start on."""
    seen: set[tuple[str, ...]] = set()
    with (
        subprocess.Popen(
            words,
            env={**os.environ, **SMALL},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process,
        ThreadPoolExecutor(1) as pool,
    ):
        said = pool.submit(process.communicate)
        while not said.done():
            now = session_words(process.pid)
            if seen or any(Path(one[0]).name == "java" for one in now):
                seen |= now
            wait([said], timeout=0.1)
    return subprocess.CompletedProcess(words, process.returncode, *said.result()), seen


@pytest.mark.servers("pg15")
def test_a_run_from_the_command_line(java: None, database: Database, tmp_path: Path) -> None:
    write(tmp_path / "metrics.json", [*history(1, BEGIN, 1), "broken"])
    dsn = f"{database.dsn()} password=hunter2"
    words = command("run", tmp_path / "metrics.json", tmp_path / "warehouse") + ["--publish-to", dsn]
    result, others_see = run_watched(words)
    assert result.returncode == 0, result.stderr
    assert {Path(program).name for program, *_ in others_see} >= {"java", Path(sys.executable).name}
    assert any("--publish-to" in words for words in others_see)
    assert "hunter2" not in str(others_see)
    assert "hunter2" not in result.stderr
    read, *published = result.stdout.splitlines()
    assert read.startswith("1 files read, ")
    assert read.endswith(" points taken, 1 refused, 1 days made")
    assert [line.partition(":")[0] for line in published] == ["baseline", "slo", "forecast"]
    (rows,) = database.connect().execute("select count(*) from queue_history.slo").fetchall()
    assert f"slo: {rows[0]} rows published, {rows[0]} of them changed, 0 removed; as of 2026-" in published[1]
    assert rows[0] > 0
    steps = [line for line in result.stderr.splitlines() if line.startswith(("reading", "making"))]
    assert steps == [
        "reading 1 of 1 files",
        "making days 2026-03-28 to 2026-03-28",
        "making the tables without days",
    ]
    assert "Traceback" not in result.stderr


def test_a_stream_from_the_command_line(java: None, tmp_path: Path) -> None:
    """It says what it takes; whoever else would write is refused; told to end, it ends well."""
    file, warehouse = tmp_path / "metrics.json", tmp_path / "warehouse"
    write(file, [*history(1, BEGIN, 1), "broken"])
    words = [*command("stream", file, warehouse), "--trigger", "1"]
    with Process(words, log=tmp_path / "log", env=SMALL) as stream:
        stream.wait_for(lambda: "tables of 1 days made in" in stream.output(), "tables", timeout=200)
        refused = subprocess.run(command("run", file, warehouse), capture_output=True, text=True, check=False)
        os.killpg(stream.pid, signal.SIGINT)  # as a terminal does: to all processes of the command
        assert stream.wait(60) == 0, stream.log_tail()
    assert refused.returncode == 2
    assert f"another run is writing here (process {stream.pid} since" in refused.stderr
    told = stream.output()
    taken = re.search(
        r"^\d\d:\d\d:\d\d ([\d,]+) points, [\d,]+ points/s, the newest .+ old, 1 refused$", told, re.M
    )
    assert taken, told
    assert told.endswith(f"\n{taken[1]} points taken, 1 refused\n")
    assert "Traceback" not in told
    assert "Exception" not in told
    assert not [*(warehouse / "checkpoints").glob("*")]


def test_a_stream_whose_tables_fail_ends(java: None, tmp_path: Path) -> None:
    """Where a table's folder has to be there is a file. Told each time, at the fifth it gives up."""
    file, warehouse = tmp_path / "metrics.json", tmp_path / "warehouse"
    write(file, history(1, BEGIN, 1))
    warehouse.mkdir()
    (warehouse / "series").write_text("in the way")
    words = [*command("stream", file, warehouse), "--quiet", "--trigger", "1", "--tables-every", "0.1"]
    result = subprocess.run(words, env={**os.environ, **SMALL}, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (1, ""), result.stderr
    *warnings, error = [line for line in result.stderr.splitlines() if line.startswith("pgque-pipeline: ")]
    counted = [
        re.findall(r"the tables can't be made, failure (\d) of 5 in a row: (.*)", line) for line in warnings
    ]
    why = f"NotADirectoryError: [Errno 20] Not a directory: '{warehouse}/series/"
    assert [(number, told[: len(why)]) for [(number, told)] in counted] == [
        (number, why) for number in "12345"
    ]
    assert error.startswith(
        f"pgque-pipeline: error: {warehouse}: the tables can't be made, 5 times in a row: {why}"
    )
    assert error.endswith("mend the cause and start the stream again")
    state = open_warehouse(warehouse, create=False).manifest
    assert state.files[str(file)].size == file.stat().st_size
    assert state.fresh
