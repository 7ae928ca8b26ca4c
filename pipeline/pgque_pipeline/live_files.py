"""Files that others still write to: what is new in them, whatever they are called by now.

A file is known by what it holds: by its first bytes, and by those before the place up to which it was read.
So it goes on under a new name after a rotation, also on disks that number files anew, and what
has taken its name begins at its own begin. Lines are read once they are whole.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pgque_pipeline import reading, unpacking
from pgque_pipeline.reading import PACKED, Share
from pgque_pipeline.warehouse.manifest import InputFile

_MARK_BYTES = 4096  # at either end
_BLOCK = 1024 * 1024
# A file that is gone may come back under another name: packed, or in a folder that is listed later.
_REMEMBERED_SECONDS = 600


class MovedError(Exception):
    """A file isn't what it was when it was listed, and isn't to be found near by either."""


@dataclass(frozen=True)
class Piece:
    """Bytes of a file: whole lines, and at the end of a file that nobody writes to, whatever is there.

    mark      what tells the file, up to `end`
    mtime_ns  of packed files, else 0. Of them `begin` counts what they hold, and `end` is their size.
    """

    path: str
    begin: int
    end: int
    mark: str
    mtime_ns: int = 0

    @property
    def packed(self) -> bool:
        """Whether it is read as a whole."""
        return self.mtime_ns != 0


@dataclass(frozen=True)
class Look:
    """What was found new.

    files   all that is known of input once the pieces have been read
    pieces  what to read
    again   files that are read from their begin
    moved   new names by old ones
    more    whether something is left, as it would be too much at a time
    """

    files: Mapping[str, InputFile]
    pieces: tuple[Piece, ...] = ()
    again: tuple[str, ...] = ()
    moved: Mapping[str, str] | None = None
    more: bool = False

    def as_json(self) -> dict[str, Any]:
        """In the form that an offset has."""
        return {
            "files": {path: [file.size, file.mtime_ns, file.mark] for path, file in self.files.items()},
            "pieces": [asdict(piece) for piece in self.pieces],
            "again": [*self.again],
            "moved": dict(self.moved or {}),
            "more": self.more,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Look:
        """The opposite of `as_json`."""
        return cls(
            files={path: InputFile(*values) for path, values in data["files"].items()},
            pieces=tuple(Piece(**piece) for piece in data["pieces"]),
            again=tuple(data["again"]),
            moved=data["moved"],
            more=data["more"],
        )


class Watch:
    """Looks at files time and again.

    settle  seconds without a change after which nobody writes to a file any more
    limit   bytes to read at a time, about
    """

    def __init__(self, *, settle: float, limit: int) -> None:
        self._settle = settle
        self._limit = limit
        self._seen: dict[str, tuple[InputFile, float]] = {}
        self._missing: dict[str, float] = {}

    def look(self, found: Mapping[Path, InputFile], known: Mapping[str, InputFile]) -> Look:
        """What of the files that are there is new to somebody who knows these."""
        return _Look(self, {str(path): state for path, state in found.items()}, known, self._limit).all()

    def note(self, found: Mapping[str, InputFile]) -> None:
        """Remember since when each file has been as it is."""
        now = time.monotonic()
        self._seen = {
            path: before if (before := self._seen.get(path)) and before[0] == state else (state, now)
            for path, state in found.items()
        }

    def closed(self, path: str) -> bool:
        """Whether nobody seems to write to the file any more."""
        state, since = self._seen[path]
        return time.monotonic() - since >= self._settle or time.time() - state.mtime_ns / 1e9 >= self._settle

    def forgotten(self, gone: Iterable[str]) -> set[str]:
        """Those of the files that were gone in all looks of some time."""
        now = time.monotonic()
        self._missing = {path: self._missing.get(path, now) for path in gone}
        return {path for path, since in self._missing.items() if now - since >= _REMEMBERED_SECONDS}


class _Look:
    def __init__(
        self, watch: Watch, found: Mapping[str, InputFile], known: Mapping[str, InputFile], limit: int
    ) -> None:
        self._watch = watch
        self._found = found
        self._known = known
        self._left = limit
        self._files = dict(known)
        self._pieces: list[Piece] = []
        self._again: list[str] = []
        self._moved: dict[str, str] = {}
        self._more = False

    def all(self) -> Look:
        self._watch.note(self._found)
        changed = [path for path, state in self._found.items() if self._known.get(path) != state]
        changed.sort(key=lambda path: (self._found[path].mtime_ns, path))  # the oldest first
        gone = {path: file for path, file in self._known.items() if not Path(path).exists()}
        places: dict[str, int] = {}
        for path in changed:
            before = self._known.get(path)
            if before is None:
                continue
            if before.mark and _holds(path, before):
                places[path] = before.size
            elif before.mark:
                gone[path] = before  # another file has taken its name
        others = [path for path in changed if path not in places]
        old_names = _Names({path: file for path, file in gone.items() if file.mark})
        for path in others:
            old = old_names.take(path)
            if old is not None:
                self._moved[old] = path
                places[path] = gone[old].size
        # All at once: in a rotation one takes the name that another leaves.
        for old in self._moved:
            del self._files[old]
        self._files |= {new: gone.pop(old) for old, new in self._moved.items()}
        for path in changed:
            self._one(path, places.get(path, 0))
        for path in self._watch.forgotten(path for path in gone if path not in self._found):
            del self._files[path]
        return Look(self._files, tuple(self._pieces), tuple(self._again), self._moved, self._more)

    def _one(self, path: str, place: int) -> None:
        """Find what is new in a file that was read up to `place`."""
        if self._left <= 0:
            self._more = True
            return
        try:
            with Path(path).open("rb") as file:
                if unpacking.is_packed(file.read(unpacking.HEAD)):
                    self._packed(path, place)
                else:
                    self._plain(path, file, place)
        except FileNotFoundError:
            return  # the next look finds it under another name

    def _packed(self, path: str, place: int) -> None:
        state = self._found[path]
        if self._watch.closed(path):
            self._put(Piece(path, place, state.size, "", state.mtime_ns), state, state.size * PACKED)

    def _plain(self, path: str, file: BinaryIO, begin: int) -> None:
        state = self._found[path]
        end = _end_of_lines(file, begin, state.size)
        if end - begin > self._left:
            whole, enough = end, begin + self._left
            end = _end_of_lines(file, begin, enough)
            if end == begin:
                end = reading.end_of_line(file, enough, whole)
            self._left = 0  # what is younger has to wait
            self._more = self._more or end < whole
        elif end < state.size and self._watch.closed(path):
            # The last line will not become whole. If it does, the file is read once more from its begin.
            self._put(Piece(path, begin, state.size, _mark(file, state.size)), state, state.size - begin)
            return
        if end > begin:
            mark = _mark(file, end)
            self._put(Piece(path, begin, end, mark), InputFile(end, state.mtime_ns, mark), end - begin)

    def _put(self, piece: Piece, state: InputFile, size: int) -> None:
        self._pieces.append(piece)
        self._left -= size
        if piece.begin == 0:
            self._again.append(piece.path)
        self._files[piece.path] = state


class _Names:
    """Files that are gone, to be found by what they hold."""

    def __init__(self, files: Mapping[str, InputFile]) -> None:
        # Files may begin alike: the one of which more is known comes first.
        self._files = dict(sorted(files.items(), key=lambda item: -item[1].size))

    def take(self, path: str) -> str | None:
        """The old name of a file. No other will be told that it is the same."""
        old = next((name for name, file in self._files.items() if _holds(path, file)), None)
        if old is not None:
            del self._files[old]
        return old


# --- marks ---------------------------------------------------------------------------------------


def _holds(path: str, known: InputFile) -> bool:
    """Whether the file is the known one, which may have grown since."""
    try:
        with Path(path).open("rb") as file:
            if unpacking.is_packed(file.read(unpacking.HEAD)):
                return _mark_of(unpacking.content(file), known.size) == known.mark
            return _mark(file, known.size) == known.mark
    except unpacking.UNREADABLE:
        return False


def _mark(file: BinaryIO, end: int) -> str:
    """What tells a file that was read up to `end`; of a shorter one, nothing."""
    size = min(end, _MARK_BYTES)
    file.seek(0)
    head = file.read(size)
    file.seek(end - size)
    tail = file.read(size)
    return _digest(head, tail) if len(tail) == size else ""


def _mark_of(content: Iterator[bytes], end: int) -> str:
    """The same of what a packed file holds."""
    size = min(end, _MARK_BYTES)
    head, tail, place = b"", b"", 0
    for chunk in content:
        head += chunk[: size - len(head)]
        tail = (tail + chunk[: end - place])[-size:]
        place += len(chunk)
        if place >= end:
            return _digest(head, tail)
    return ""


def _digest(head: bytes, tail: bytes) -> str:
    return hashlib.sha256(head + tail).hexdigest()[:24]


def _end_of_lines(file: BinaryIO, begin: int, size: int) -> int:
    """The end of the last whole line before `size`; `begin` if there is none."""
    end = size
    while end > begin:
        start = max(begin, end - _BLOCK)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return begin


# --- reading -------------------------------------------------------------------------------------


def read(task: Iterable[Share[Piece]]) -> Iterator[tuple[str, list[bytes]]]:
    """The lines of a task, many at a time. Raises MovedError where a file isn't to be found."""
    for share in task:
        found = _packed_lines(share.source) if share.source.packed else _plain_lines(share)
        yield from ((share.source.path, texts) for texts in found)


def _packed_lines(piece: Piece) -> Iterator[list[bytes]]:
    for path in _near(piece):
        try:
            with path.open("rb") as file:
                state = os.fstat(file.fileno())
                if (state.st_size, state.st_mtime_ns) == (piece.end, piece.mtime_ns):
                    yield from reading.unpacked(file, skip=piece.begin)
                    return
        except FileNotFoundError:
            continue
    raise MovedError(piece.path)


def _plain_lines(share: Share[Piece]) -> Iterator[list[bytes]]:
    piece = share.source
    for path in _near(piece):
        try:
            with path.open("rb") as file:
                if _mark(file, piece.end) == piece.mark:
                    yield from reading.lines_between(
                        file, share.begin, share.end, first=piece.begin, last=piece.end
                    )
                    return
        except FileNotFoundError:
            continue
    raise MovedError(piece.path)


def _near(piece: Piece) -> Iterator[Path]:
    """The file by its name, and the others in its folder, as one of which it may be by now."""
    path = Path(piece.path)
    yield path
    yield from (other for other in sorted(path.parent.glob("*")) if other != path and other.is_file())
