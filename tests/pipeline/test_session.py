"""Without a Java that Spark can run on, a person is told what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pgque_exporter.errors import UserError
from pgque_pipeline.session import open_session
from tests.support.java import SMALL
from tests.support.processes import wait_for


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('openjdk version "11.0.2"', "is Java 11"),
        ('java version "1.8.0_292"', "is Java 1"),
        ("who knows", "does not tell its version"),
    ],
)
def test_an_old_java_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, told: str
) -> None:
    program = tmp_path / "bin/java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UserError, match=rf"Java 17 or newer.*{told}.*openjdk-17-jre-headless"):
        open_session()


def test_no_java_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"none was found.*set JAVA_HOME"):
        open_session()


_CLOSED = """
from pgque_pipeline.session import close_session, end_workers, open_session, workers_of

spark = open_session(master="local[2]")
spark.sparkContext.parallelize([1, 2], 2).map(lambda number: 2 * number).collect()
groups = workers_of(spark)
end_workers(spark)
print(*groups, workers_of(spark))
close_session(spark)
"""


def test_workers_are_gone_before_spark_ends(java: None) -> None:
    """Spark's process that forks workers is there after a job; it and its group are ended without a word."""
    ended = subprocess.run(
        [sys.executable, "-c", _CLOSED],
        env={**os.environ, **SMALL},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    group, left = ended.stdout.split()
    assert left == "[]"
    with pytest.raises(ProcessLookupError):
        wait_for(lambda: os.killpg(int(group), 0), "the end of the group")
    assert "Traceback" not in ended.stderr
