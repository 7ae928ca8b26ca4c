"""Java's classes of Spark, made ready once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pgque_pipeline import class_archive
from pgque_pipeline.java import Java, needed_java


def prepare(home: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(home)}
    command = [sys.executable, "-m", "pgque_pipeline", "prepare"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)




def test_an_archive_is_made_and_found(java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert class_archive.options(needed_java()) == ()
    done = prepare(tmp_path)
    assert done.returncode == 0, done.stderr
    assert (done.stdout.strip(), done.stderr) == (str(class_archive.place(needed_java())), "")
    assert [path.suffix for path in (tmp_path / "pgque-exporter").iterdir()] == [".jsa"]
    (shared, *_) = class_archive.options(needed_java())
    assert shared == f"-XX:SharedArchiveFile={done.stdout.strip()}"


def test_another_java_has_an_archive_of_its_own() -> None:
    one, other = (Java("java", f'openjdk version "{version}"') for version in ("17.0.1", "21.0.2"))
    assert class_archive.place(one) != class_archive.place(other)


def test_a_folder_that_cannot_be_written_to_is_said(java: None, tmp_path: Path) -> None:
    (tmp_path / "pgque-exporter").write_text("no folder", "utf-8")
    done = prepare(tmp_path)
    assert done.returncode == 2
    assert f"{tmp_path}/pgque-exporter: can't write here: File exists" in done.stderr
    assert "Traceback" not in done.stderr
