"""By how much the event loop is late: what every request, deadline and poll of the process waits for.

A loop that is held up looks like slow databases and a slow network. This tells it from them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_EVERY = 0.02  # seconds; of a longer block no more than this is missed
_TOLD_EVERY = 50  # rings: telling costs many times what ringing does


class LoopLag:
    """Tells each second by how many seconds a timer rang too late at most, from `start` to `stop`."""

    def __init__(self, record: Callable[[float], None]) -> None:
        self._record = record
        self._timer: asyncio.TimerHandle | None = None
        self._rings = 0
        self._worst = 0.0

    def start(self) -> None:
        """Begin, on the running event loop."""
        loop = asyncio.get_running_loop()
        due = loop.time() + _EVERY
        self._timer = loop.call_at(due, self._ring, loop, due)

    def stop(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._worst = max(self._worst, loop.time() - due)
        self._rings += 1
        if self._rings == _TOLD_EVERY:
            self._record(self._worst)
            self._rings, self._worst = 0, 0.0
        self.start()
