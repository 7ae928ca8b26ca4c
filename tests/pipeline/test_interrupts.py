"""A command that is told to end: soon, without a word of Spark's, and with nothing left running."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline.history import history
from tests.pipeline.test_cli import command
from tests.pipeline.test_run import BEGIN, write
from tests.support.java import SMALL
from tests.support.processes import Process, session_words, wait_for

# What Java says at each start, and a run then.
USUAL = re.compile(r"Picked up JAVA_TOOL_OPTIONS|WARNING: Using incubator|(reading|making) [a-z0-9- ]+$")


def java_starts(run: Process, temporary: Path) -> bool:
    return any("org.apache.spark.deploy.SparkSubmit" in words for words in session_words(run.pid))


def spark_starts(run: Process, temporary: Path) -> bool:
    return any(temporary.glob("blockmgr-*"))


def it_reads(run: Process, temporary: Path) -> bool:
    return "reading 1 of 1 files" in run.output()


@pytest.mark.parametrize(
    ("when", "number", "code"),
    [
        (java_starts, signal.SIGINT, 130),
        (java_starts, signal.SIGTERM, 143),
        (spark_starts, signal.SIGINT, 130),
        (it_reads, signal.SIGINT, 130),
        (it_reads, signal.SIGTERM, 143),
    ],
    ids=lambda given: getattr(given, "__name__", str(given)),
)
def test_a_run_that_is_interrupted(
    java: None, tmp_path: Path, when: Callable[[Process, Path], bool], number: signal.Signals, code: int
) -> None:
    write(tmp_path / "metrics.json", history(1, BEGIN, 1))
    words = command("run", tmp_path / "metrics.json", tmp_path / "warehouse")
    temporary = tmp_path / "temporary"  # too long a name for a socket's
    temporary.mkdir()
    java_too = {name: f"{options} -Djava.io.tmpdir={temporary}" for name, options in SMALL.items()}
    with Process(words, log=tmp_path / "log", env={**java_too, "TMPDIR": str(temporary)}) as run:
        run.wait_for(lambda: when(run, temporary), when.__name__, timeout=120)
        if number == signal.SIGINT:
            os.killpg(run.pid, number)  # as a terminal does: to all processes of the command
        else:
            run.send_signal(number)
        assert run.wait(60) == code, run.log_tail()
        wait_for(lambda: not session_words(run.pid), "the end of all its processes", timeout=60)
    assert not [line for line in run.output().splitlines() if not USUAL.match(line)], run.log_tail()
    assert not [*temporary.iterdir()]
