"""The archive sink: every snapshot as OTLP JSON lines in files, for the pipeline to read."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pgque_exporter.archive_files import ArchiveFiles
from pgque_exporter.config_archive import ArchiveConfig
from pgque_exporter.otlp.json_lines import LineEncoder, Lines
from pgque_exporter.snapshot import Snapshot

log = logging.getLogger(__name__)

_MOST_WAITING = 500_000  # points; a disk that is slower than the polls must not fill the memory


class Loss(StrEnum):
    """Why a point is not in the archive; the `reason` label of archive_points_dropped_total."""

    QUEUE_FULL = "queue_full"  # the disk is slower than the polls
    WRITE_FAILED = "write_failed"  # the disk is full or gone; the log says which
    ENCODING = "encoding"  # a mistake of ours; the log has it
    SHUTDOWN = "shutdown"  # the service ended first


@dataclass(slots=True)
class ArchiveLedger:
    """Points by what became of them: polled = written + dropped + those that wait."""

    polled: int = 0
    written: int = 0
    dropped: Counter[Loss] = field(default_factory=Counter)


class Archive:
    """Writes each snapshot once, oldest first, in a thread of its own."""

    def __init__(self, config: ArchiveConfig, resource: Mapping[str, str]) -> None:
        self.ledger = ArchiveLedger()
        self.files = ArchiveFiles(config)
        self._resource = resource
        self._encoders: dict[str, LineEncoder] = {}
        self._gone: set[str] = set()  # databases that are forgotten once all is written that waits
        self._waiting: deque[Snapshot] = deque()
        self._under_way = 0  # points
        self._wake = asyncio.Event()
        self._closing = False
        self._done = asyncio.Event()
        self._trouble: str | None = None

    @property
    def queued(self) -> int:
        """Points that wait or are under way."""
        return sum(snapshot.points for snapshot in self._waiting) + self._under_way

    def put(self, snapshot: Snapshot) -> None:
        """Take a snapshot; returns at once."""
        self.ledger.polled += snapshot.points
        self._gone.discard(snapshot.database)
        self._waiting.append(snapshot)
        while self.queued > _MOST_WAITING and len(self._waiting) > 1:
            self.ledger.dropped[Loss.QUEUE_FULL] += self._waiting.popleft().points
        self._wake.set()

    def forget(self, database: str) -> None:
        """A database is polled no more."""
        self._gone.add(database)
        self._wake.set()

    async def run(self) -> None:
        """Write until `close`."""
        while self._waiting or not self._closing:
            self._wake.clear()
            due = self.files.due_in()
            if not self._waiting:
                while self._gone:
                    self._encoders.pop(self._gone.pop(), None)
            if self._waiting:
                await self._write(self._waiting.popleft())
            elif due is not None and due <= 0:
                await self._rotate()
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(due):
                        await self._wake.wait()
        await asyncio.to_thread(self.files.stop)
        self._done.set()

    async def close(self, seconds: float) -> None:
        """Have all written that waits, for at most `seconds`, and the file closed."""
        self._closing = True
        self._wake.set()
        try:
            async with asyncio.timeout(seconds):
                await self._done.wait()
        except TimeoutError:
            log.warning("archive: %s is too slow to be waited for", self.files.folder)
            self.ledger.dropped[Loss.SHUTDOWN] += sum(snapshot.points for snapshot in self._waiting)
            self._waiting.clear()

    async def _write(self, snapshot: Snapshot) -> None:
        self._under_way = snapshot.points
        encoder = self._encoders.get(snapshot.database)
        if encoder is None:
            encoder = self._encoders[snapshot.database] = LineEncoder(self._resource, snapshot.database)
        try:
            lines = await asyncio.to_thread(self._encode_and_append, encoder, snapshot)
        except asyncio.CancelledError:  # the thread goes on, and nobody will know how it ends
            self.ledger.dropped[Loss.SHUTDOWN] += snapshot.points
            raise
        except OSError as error:
            encoder.take_back()
            self.ledger.dropped[Loss.WRITE_FAILED] += snapshot.points
            self._report(f"can't write to {self.files.folder}: {error.strerror}")
        except Exception:
            log.exception("%s: a snapshot could not be archived", snapshot.database)
            self.ledger.dropped[Loss.ENCODING] += snapshot.points
            self._encoders.pop(snapshot.database, None)
        else:
            self.ledger.polled += lines.points - snapshot.points  # marks of series that ended
            self.ledger.written += lines.points
            self._report(None)
        finally:
            self._under_way = 0

    def _encode_and_append(self, encoder: LineEncoder, snapshot: Snapshot) -> Lines:
        lines = encoder.encode(snapshot)
        self.files.append(lines.data)
        return lines

    async def _rotate(self) -> None:
        try:
            await asyncio.to_thread(self.files.rotate)
        except OSError as error:
            self._report(f"can't close a file in {self.files.folder}: {error.strerror}")

    def _report(self, trouble: str | None) -> None:
        """Write a line when the trouble changes."""
        if trouble != self._trouble:
            self._trouble = trouble
            if trouble is not None:
                log.warning("archive: %s; what is polled meanwhile is missing there", trouble)
            else:
                log.info("archive: writing again")
