"""Child processes of tests: output kept in a file, conditions waited for, ended by process id."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")

_TAIL = 4000  # characters of a log that a failure shows


class Process:
    """A program that runs while the context is open.

    `env` is what its environment needs beside ours; standard output and error go to `log`.
    """

    def __init__(
        self,
        argv: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.argv = [str(word) for word in argv]
        self.name = Path(self.argv[0]).name
        self.log = log
        self._env = {**os.environ, **(env or {})}
        self._cwd = cwd
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start the program; it may be started again once it has ended."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                cwd=self._cwd,
                start_new_session=True,  # Ctrl-C is for pytest, which then ends us
            )
        return self

    @property
    def pid(self) -> int:
        """Process id, also of a program that has ended."""
        return self._started.pid

    @property
    def returncode(self) -> int | None:
        """Exit code, or None while the program runs."""
        return self._started.poll()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the program; harmless when it has ended."""
        self._started.send_signal(number)

    def wait(self, timeout: float) -> int:
        """Wait for the program to end by itself; its exit code."""
        try:
            return self._started.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} still runs after {timeout:g} s{self.log_tail()}") from None

    def stop(self, timeout: float = 10.0) -> int:
        """Ask the program to end, and make it if it doesn't; its exit code."""
        self._started.terminate()
        try:
            return self._started.wait(timeout)
        except subprocess.TimeoutExpired:
            self._started.kill()
            return self._started.wait(timeout)

    def output(self) -> str:
        """All that the program has written so far."""
        return self.log.read_text("utf-8", errors="replace") if self.log.exists() else ""

    def log_tail(self) -> str:
        """The end of the output, as an appendix to a failure's message."""
        return f"\n--- end of the output of {self.name} ---\n{self.output()[-_TAIL:]}"

    def wait_for(
        self,
        condition: Callable[[], T],
        what: str,
        *,
        timeout: float = 20.0,
        ignoring: tuple[type[Exception], ...] = (),
    ) -> T:
        """Wait until `condition` gives something true, and return that.

        Fails with the end of the log when the program ends or time runs out; exceptions in
        `ignoring` mean "not yet".
        """

        def still_running() -> T:
            if self.returncode is not None:
                raise AssertionError(f"{self.name} ended with exit code {self.returncode} before: {what}")
            return condition()

        try:
            return wait_for(still_running, what, timeout=timeout, ignoring=ignoring)
        except AssertionError as error:
            raise AssertionError(f"{error}{self.log_tail()}") from error.__cause__

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.stop()

    @property
    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process


def wait_for(
    condition: Callable[[], T],
    what: str,
    *,
    timeout: float = 20.0,
    ignoring: tuple[type[Exception], ...] = (),
) -> T:
    """Wait until `condition` gives something true, and return that; fail saying what never came.

    Exceptions in `ignoring` mean "not yet". The time-out only ends a test that would fail anyway, so
    it is long: a slow machine must not change a result.
    """
    deadline = time.monotonic() + timeout
    while True:
        last: object
        cause: Exception | None = None
        try:
            last = result = condition()
            if result:
                return result
        except ignoring as error:
            last = cause = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what}; at last: {last!r}") from cause
        time.sleep(0.02)


def session_words(leader: int) -> set[tuple[str, ...]]:
    """The words of each process of a session that is there now."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(folder.name)) == leader and (text := (folder / "cmdline").read_text("utf-8")):
                found.add(tuple(text.split("\0")))
        except OSError:
            continue  # it has ended
    return found
