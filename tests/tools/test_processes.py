"""Child processes of tests: they end, and what goes wrong is told."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import Process, wait_for

IGNORES_SIGTERM = """\
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True:
    time.sleep(1)
"""


def python(code: str, folder: Path) -> Process:
    return Process([sys.executable, "-c", code], log=folder / "log", env={"GREETING": "hello"})


def test_it_runs_while_the_context_is_open(tmp_path: Path) -> None:
    code = "import os, time; print(os.environ['GREETING'], flush=True); time.sleep(600)"
    with python(code, tmp_path) as child:
        child.wait_for(lambda: "hello" in child.output(), "the child greets")
        assert child.returncode is None
        pid = child.pid
    assert child.wait(0) == -15
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    with python(IGNORES_SIGTERM, tmp_path) as child:
        child.wait_for(lambda: "ready" in child.output(), "the child is ready")
        assert child.stop(timeout=0.1) == -9


def test_a_child_that_ends_early_is_told_with_its_last_words(tmp_path: Path) -> None:
    with (
        python("raise SystemExit('no such file')", tmp_path) as child,
        pytest.raises(AssertionError, match=r"exit code 1 before: it listens(.|\n)*no such file"),
    ):
        child.wait_for(lambda: False, "it listens")


def test_a_child_that_never_gets_there_is_told_with_its_last_words(tmp_path: Path) -> None:
    with python("import time; print('thinking', flush=True); time.sleep(600)", tmp_path) as child:
        child.wait_for(lambda: child.output(), "the child writes")
        with pytest.raises(AssertionError, match=r"it listens; at last: False(.|\n)*thinking"):
            child.wait_for(lambda: False, "it listens", timeout=0.1)


def test_waiting_returns_what_was_waited_for() -> None:
    answers: Iterator[int | ConnectionError] = iter([0, ConnectionError("not yet"), 7])

    def ask() -> int:
        answer = next(answers)
        if isinstance(answer, ConnectionError):
            raise answer
        return answer

    assert wait_for(ask, "an answer", ignoring=(ConnectionError,)) == 7


def test_waiting_hides_no_other_error() -> None:
    def ask() -> bool:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        wait_for(ask, "an answer", ignoring=(ConnectionError,))
