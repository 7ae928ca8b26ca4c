"""Taking over a changed configuration while the service runs: on SIGHUP, and when a file has changed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from pgque_exporter.config import Config, Files
from pgque_exporter.errors import UserError

log = logging.getLogger(__name__)

_LOOK = 1.0  # seconds between two looks at the files

_Fingerprint = tuple[tuple[str, int, int, int], ...]


class Reloader:
    """Loads the configuration anew when it should be, and hands it on if it is good.

    A bad one is refused with one line in the log; what runs goes on. `report` is told whether the last
    attempt went well and the Unix time of the last one that did.
    """

    def __init__(self, config: Config, load: Callable[[], Config]) -> None:
        self._files = config.files
        self._load = load
        self._seen = _fingerprint(self._files)
        self._loaded_at = time.time()
        self._wished = asyncio.Event()

    def wish(self) -> None:
        """Ask for a reload now, changed or not."""
        self._wished.set()

    async def run(self, apply: Callable[[Config], None], report: Callable[[bool, float], None]) -> None:
        """Watch until cancelled."""
        report(True, self._loaded_at)
        latest = self._seen
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wished.wait(), _LOOK)
            before, latest = latest, await asyncio.to_thread(_fingerprint, self._files)
            # Two looks that agree: a file that is being written at this moment is left to be finished.
            settled = latest != self._seen and latest == before
            if settled or self._wished.is_set():
                self._wished.clear()
                self._seen = latest
                report(await self._reload(apply), self._loaded_at)

    async def _reload(self, apply: Callable[[Config], None]) -> bool:
        if self._files is None:
            log.info("nothing to reload: the configuration came from the environment")
            return True
        try:
            config = await asyncio.to_thread(self._load)
        except UserError as error:
            log.error("configuration refused, the old one stays: %s", error)
            return False
        except Exception as error:  # a mistake of ours must not end the watch
            log.error("configuration refused, the old one stays: unexpected %s", type(error).__name__)
            log.debug("unexpected", exc_info=True)
            return False
        if config.files != self._files:
            self._files = config.files
            self._seen = await asyncio.to_thread(_fingerprint, self._files)
        self._loaded_at = time.time()
        apply(config)
        return True


def _fingerprint(files: Files | None) -> _Fingerprint:
    """What changes whenever a file is edited, replaced, added or removed."""
    found: list[tuple[str, int, int, int]] = []
    for path in files.all() if files is not None else ():
        try:
            status = path.stat()
        except OSError:
            found.append((str(path), 0, 0, 0))
        else:
            found.append((str(path), status.st_mtime_ns, status.st_ino, status.st_size))
    return tuple(found)
