"""How a command that runs until it is told otherwise comes to its end, whatever hangs."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading

log = logging.getLogger(__name__)

_LAST_RESORT = 4.7  # seconds after the signal


class Ending:
    """Listens for SIGTERM and Ctrl-C on the running event loop; `stop` is set at the first.

    code  the exit code: 0, or 130 after Ctrl-C
    """

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.code = 0
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end, number)

    def _end(self, number: signal.Signals) -> None:
        self.code = 130 if number is signal.SIGINT else 0
        if self.stop.is_set():
            os._exit(self.code)  # asked twice: no more patience
        log.info("%s: ending", number.name)
        self.stop.set()
        # A name lookup runs in a thread that nothing can interrupt.
        timer = threading.Timer(_LAST_RESORT, os._exit, (self.code,))
        timer.daemon = True
        timer.start()
