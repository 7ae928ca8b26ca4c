"""Files of lines in one folder, of which no line is lost and none is torn, within a bound on the disk.

The file being written ends in `.part`. It is closed when it is large or old enough: compressed and renamed
in one step, so that whoever reads the other files sees each whole and once.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from isal import isal_zlib

from pgque_exporter.config_archive import ArchiveConfig
from pgque_exporter.errors import UserError

log = logging.getLogger(__name__)

_OPEN, _PLAIN, _PACKED, _UNFINISHED = ".jsonl.part", ".jsonl", ".jsonl.gz", ".jsonl.gz.tmp"
_NAME = "metrics-%Y%m%dT%H%M%S.%fZ"  # UTC, sorted by time
_OURS = "metrics-????????T??????.??????Z"  # a collector's file exporter calls its files nearly the same
_BLOCK = 2**20  # bytes at a time
_LEVEL = 1
_GZIP = 16  # in place of the zlib format


@dataclass(slots=True)
class _OpenFile:
    file: IO[bytes]
    path: Path
    opened: float  # monotonic time
    size: int = 0


class ArchiveFiles:
    """The files of one service. Not for several threads at a time."""

    def __init__(self, config: ArchiveConfig) -> None:
        self._config = config
        self.folder = config.directory
        self._lock: IO[bytes] | None = None
        self._open: _OpenFile | None = None
        self.size = 0  # bytes of all files
        self.deleted = 0  # files that went to make room

    def start(self) -> None:
        """Take the folder, and close what an earlier service left open.

        UserError if it can't be written to, or belongs to another service.
        """
        where = str(self.folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = (self.folder / ".lock").open("wb")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for path in self._files(_UNFINISHED):
                path.unlink()
            for path in self._files(_OPEN):
                self._recover(path, compress=True)
        except BlockingIOError:
            self._release()
            hint = "give each service an archive.directory of its own"
            raise UserError("another service archives there", where=where, hint=hint) from None
        except OSError as error:
            self._release()
            what = f"can't archive there: {error.strerror}"
            raise UserError(what, where=where, hint="check archive.directory and its permissions") from None
        self._measure()

    def append(self, lines: bytes) -> None:
        """Put whole lines on the disk. After an OSError none of them is there."""
        if self._open is None:
            self._open = self._new()
        target = self._open
        try:
            left = memoryview(lines)
            while left:  # a file without a buffer may take a part
                left = left[target.file.write(left) :]
            os.fsync(target.file.fileno())
        except OSError:
            self._take_back(target)
            raise
        target.size += len(lines)
        self.size += len(lines)

    def due_in(self) -> float | None:
        """Seconds until the open file is old enough to be closed; None without one."""
        if self._open is None:
            return None
        if self._open.size >= self._config.rotate_size:
            return 0.0
        return max(0.0, self._open.opened + self._config.rotate_after - time.monotonic())

    def rotate(self, *, compress: bool = True) -> None:
        """Close the open file, and delete the oldest of the closed ones if all are too large together."""
        if self._open is not None:
            target, self._open = self._open, None
            with contextlib.suppress(OSError):  # all that counts has been flushed
                target.file.close()
            self._close(target.path, compress=compress and self._config.compress)
        for path in sorted(self._files(_OPEN)):  # that could not be closed before, or have a torn line
            self._recover(path, compress=compress)
        self._make_room()

    def stop(self) -> None:
        """Close the open file and let go of the folder."""
        with contextlib.suppress(OSError):
            self.rotate(compress=False)  # there is no time to compress at the end
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # --- one file --------------------------------------------------------------------------------

    def _new(self) -> _OpenFile:
        self.folder.mkdir(parents=True, exist_ok=True)
        while True:
            name = datetime.now(UTC).strftime(_NAME)
            path = self.folder / f"{name}{_OPEN}"
            try:
                # Unbuffered: after a failure nothing may be left that a later write would bring along.
                file = path.open("xb", buffering=0)
            except FileExistsError:
                continue
            try:
                self._sync_folder()
            except OSError:
                file.close()
                path.unlink()  # or each snapshot would leave one
                raise
            return _OpenFile(file, path, time.monotonic())

    def _take_back(self, target: _OpenFile) -> None:
        try:
            target.file.truncate(target.size)
            target.file.seek(target.size)
        except OSError:  # then the next one begins a file, and the next rotation cuts off the torn line
            self._open = None
            with contextlib.suppress(OSError):
                target.file.close()

    def _recover(self, path: Path, *, compress: bool) -> None:
        """Close a file that was left open by a failure or a kill; a torn last line is cut off."""
        if path.with_name(_stem(path) + _PACKED).exists():
            path.unlink()  # it died between renaming one and deleting the other
            return
        with path.open("r+b") as file:
            whole = _end_of_last_line(file)
            torn = file.seek(0, os.SEEK_END) - whole
            file.truncate(whole)
            os.fsync(file.fileno())
        log.info("%s: it had been left open; %d bytes of a torn line cut off", path, torn)
        self._close(path, compress=compress and self._config.compress)

    def _close(self, path: Path, *, compress: bool) -> None:
        stem = _stem(path)
        if path.stat().st_size == 0:
            path.unlink()
            return
        if compress:
            try:
                self._pack(path, stem)
            except OSError as error:  # no room, most likely: keep it as it is
                log.warning("%s: not compressed: %s", path, error.strerror)
                path.with_name(stem + _UNFINISHED).unlink(missing_ok=True)
            else:
                # From here on it is packed, even if this fails: as a plain file it would be there twice.
                self._sync_folder()
                path.unlink()
                return
        path.rename(path.with_name(stem + _PLAIN))
        self._sync_folder()

    def _pack(self, path: Path, stem: str) -> None:
        packed = path.with_name(stem + _UNFINISHED)
        with path.open("rb") as source, packed.open("wb") as file:
            stream = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, zlib.MAX_WBITS | _GZIP)
            while block := source.read(_BLOCK):
                file.write(stream.compress(block))
            file.write(stream.flush())
            file.flush()
            os.fsync(file.fileno())
        packed.rename(path.with_name(stem + _PACKED))

    # --- all files -------------------------------------------------------------------------------

    def _make_room(self) -> None:
        self._measure()
        for path in sorted([*self._files(_PLAIN), *self._files(_PACKED)], key=lambda path: path.name):
            if self.size <= self._config.max_size:
                return
            self.size -= path.stat().st_size
            path.unlink()
            self.deleted += 1

    def _measure(self) -> None:
        every = [path for kind in (_OPEN, _PLAIN, _PACKED) for path in self._files(kind)]
        self.size = sum(path.stat().st_size for path in every)

    def _files(self, kind: str) -> Iterator[Path]:
        return self.folder.glob(f"{_OURS}{kind}")

    def _sync_folder(self) -> None:
        """Make names last as their contents do."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _stem(path: Path) -> str:
    return path.name.removesuffix(_OPEN)


def _end_of_last_line(file: IO[bytes]) -> int:
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        begin = max(0, end - _BLOCK)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0
