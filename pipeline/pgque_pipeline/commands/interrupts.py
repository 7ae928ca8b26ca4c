"""Ctrl-C and SIGTERM, for as long as a command has Spark at work."""

from __future__ import annotations

import logging
import os
import signal
from types import FrameType, TracebackType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Both signals, kept while Spark starts; from `allow` on the first ends the command's body.

    Interrupted while it starts, Java would fail to tell its address, and then never end. Nothing has to be
    saved: what a run has put in force stays, and the next one goes on from there. A signal that comes while
    Spark is being closed ends this process at once. An error after a signal is taken for its consequence.
    Leaving it, SIGTERM becomes the exit code 143.
    """

    def __init__(self) -> None:
        self._asked: int | None = None
        self._allowed = False

    def __enter__(self) -> Interrupts:
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number in _SIGNALS:
            signal.signal(number, self._come)
        return self

    def allow(self) -> None:
        """Raise KeyboardInterrupt with the next signal, or at once if one has come."""
        self._allowed = True
        if self._asked is not None:
            raise KeyboardInterrupt

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if kind is None or self._asked is None:
            return
        if self._asked == signal.SIGTERM:
            raise SystemExit(_exit_code(signal.SIGTERM)) from None
        raise KeyboardInterrupt from None

    def _come(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self._allowed and self._asked is not None:
            os._exit(_exit_code(number))
        self._asked = number
        if self._allowed:
            logging.disable()  # the bridge to Java would log that it was interrupted
            raise KeyboardInterrupt


def _exit_code(number: int) -> int:
    return 128 + number
