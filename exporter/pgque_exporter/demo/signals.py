"""Ctrl-C and SIGTERM, from the first moment of the demo to its last."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal came while nothing could be told to end; unwinds the stack, cleaning up on the way."""


class Signals:
    """The first signal asks for the end; those after it change nothing, as cleaning up is under way."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._tell: Callable[[], object] | None = None

    @contextmanager
    def telling(self, tell: Callable[[], object]) -> Iterator[None]:
        """Within, a signal calls `tell`; afterwards it is only noted."""
        self._tell = tell
        try:
            yield
        finally:
            self._tell = lambda: None

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self.received is not None:
            return
        self.received = signal.Signals(number)
        if self._tell is None:
            raise Interrupted
        self._tell()


def _under_nohup() -> bool:
    return signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@contextmanager
def catching() -> Iterator[Signals]:
    """Catch the signals that end a program; outside of `telling` they raise Interrupted."""
    signals = Signals()
    numbers = [number for number in _NUMBERS if number is not signal.SIGHUP or not _under_nohup()]
    before = {number: signal.signal(number, signals._receive) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
