"""Input files as lines, cut into tasks of about the same size for Spark's workers.

A worker reads what it parses by itself: on the way through Spark lines would cost more than it takes to parse
them. Plain files are cut anywhere, and a line belongs to the share that it begins in. Packed ones are read
as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Generic, Protocol, TypeVar

from pyspark.sql import SparkSession

from pgque_pipeline import unpacking, workers

_TASK_BYTES = 32 * 1024**2
# Packed input is larger than it looks.
PACKED = 8
_CHUNK = 1024 * 1024

# Lines, many at a time, each list with the file that they are of.
Lists = Iterator[tuple[str, list[bytes]]]
T = TypeVar("T")


class Lines(Protocol):
    """Input that Spark's workers read."""

    def spread(self, work: Callable[[int, Lists], T]) -> tuple[list[T], frozenset[str]]:
        """What comes of the lines of each task, with its number; and the files that are gone by then."""


class Cuttable(Protocol):
    """What is to be read of a file: all that is in it where it is packed, else from `begin` to `end`."""

    @property
    def begin(self) -> int: ...  # noqa: D102
    @property
    def end(self) -> int: ...  # noqa: D102
    @property
    def packed(self) -> bool: ...  # noqa: D102


C = TypeVar("C", bound=Cuttable)


@dataclass(frozen=True)
class Share(Generic[C]):
    """Lines of `source` that begin from `begin` on and before `end`; of packed files, all lines."""

    source: C
    begin: int
    end: int


@dataclass(frozen=True)
class File:
    """A file as it was when it was cut."""

    path: str
    end: int
    packed: bool
    begin: int = 0


@dataclass(frozen=True)
class FileLines:
    """The lines of files.

    What a packed file breaks off with, or holds that can't be unpacked, is a line of its own that says so.
    """

    spark: SparkSession
    tasks: Sequence[Sequence[Share[File]]]
    gone: frozenset[str]

    def spread(self, work: Callable[[int, Lists], T]) -> tuple[list[T], frozenset[str]]:
        """What comes of the lines of each task, with its number; and the files that are gone by then."""

        def job(numbered: tuple[int, Sequence[Share[File]]]) -> tuple[T, list[str]]:
            number, task = numbered
            gone: list[str] = []
            return work(number, read(task, gone.append)), gone

        done = workers.spread(self.spark, job, [*enumerate(self.tasks)])
        return [found for found, _ in done], self.gone.union(*(gone for _, gone in done))


def lines(spark: SparkSession, files: Iterable[Path]) -> FileLines:
    """The lines of these files, cut into tasks."""
    found, gone = opened(files)
    return FileLines(spark, shares(found), frozenset(gone))


def opened(files: Iterable[Path]) -> tuple[list[File], list[str]]:
    """What the files are, and the paths of those that aren't there any more."""
    found: list[File] = []
    gone: list[str] = []
    for path in files:
        try:
            with path.open("rb") as file:
                packed = unpacking.is_packed(file.read(unpacking.HEAD))
                found.append(File(str(path), file.seek(0, 2), packed))
        except FileNotFoundError:
            gone.append(str(path))
    return found, gone


def shares(sources: Iterable[C]) -> list[list[Share[C]]]:
    """What each task is to read: large ones divided, small ones together."""
    tasks: list[list[Share[C]]] = []
    room = 0
    for source in sources:
        begin = 0 if source.packed else source.begin
        while begin < source.end:
            if room <= 0:
                tasks.append([])
                room = _TASK_BYTES
            end = source.end if source.packed else min(source.end, begin + room)
            tasks[-1].append(Share(source, begin, end))
            room -= (end - begin) * (PACKED if source.packed else 1)
            begin = end
    return tasks


# --- in a worker ---------------------------------------------------------------------------------


def read(task: Iterable[Share[File]], gone: Callable[[str], None]) -> Lists:
    """The lines of a task; `gone` is told of each file that isn't there any more."""
    for share in task:
        path = share.source.path
        try:
            file = open(path, "rb")  # noqa: SIM115 - what goes wrong later isn't that it is gone
        except FileNotFoundError:
            gone(path)
            continue
        with file:
            found = unpacked(file) if share.source.packed else lines_between(file, share.begin, share.end)
            yield from ((path, texts) for texts in found)


def unpacked(file: BinaryIO, *, skip: int = 0) -> Iterator[list[bytes]]:
    """Lines of a packed file. One that breaks off, or isn't what it seems, ends with what was wrong.

    `skip` bytes of what it holds are left out, unless it is packed by the message.
    """
    file.seek(0)
    head = file.read(unpacking.HEAD)
    if unpacking.is_framed(head):
        file.seek(0)
        for message in unpacking.messages(file):
            yield from _split([message])
        return
    try:
        yield from _split(_after(unpacking.content(file), skip))
    except unpacking.UNREADABLE as error:
        yield [f"the file can't be unpacked to its end: {error}".encode()]


def lines_between(
    file: BinaryIO, begin: int, end: int, *, first: int = 0, last: int | None = None
) -> Iterator[list[bytes]]:
    """Lines that begin from `begin` on and before `end`.

    What stands before `first` and from `last` on doesn't count: there are whole lines before, and the last
    one is as long as it is up to there.
    """
    return _split(_lines_whole(file, begin, end, first, last))


def _lines_whole(file: BinaryIO, begin: int, end: int, first: int, last: int | None) -> Iterator[bytes]:
    """The bytes of these lines."""
    if begin > first:  # the line that lies across belongs to the share before
        begin = end_of_line(file, begin - 1, end)
    if begin >= end:
        return
    file.seek(begin)
    chunk = b""
    for chunk in _chunks(file, end - begin):
        yield chunk
    if chunk.endswith(b"\n"):
        return
    for chunk in _chunks(file, None if last is None else last - end):
        whole, newline, _ = chunk.partition(b"\n")
        yield whole
        if newline:
            return


def end_of_line(file: BinaryIO, place: int, end: int) -> int:
    """Where the line ends that `place` is in; `end`, or that of the file, if not before."""
    file.seek(place)
    for chunk in _chunks(file, end - place):
        found = chunk.find(b"\n")
        if found >= 0:
            return place + found + 1
        place += len(chunk)
    return place


def _chunks(file: BinaryIO, size: int | None) -> Iterator[bytes]:
    """What follows in a file: `size` bytes, fewer if it ends before; None for all."""
    while size is None or size > 0:
        chunk = file.read(_CHUNK if size is None else min(_CHUNK, size))
        if not chunk:
            return
        yield chunk
        size = None if size is None else size - len(chunk)


def _after(chunks: Iterable[bytes], skip: int) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk[skip:]
        skip = max(0, skip - len(chunk))


def _split(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The lines of a text that comes in chunks, but for blank ones."""
    begun: list[bytes] = []  # of a line that is longer than a chunk, not put together before it is whole
    for chunk in chunks:
        head, *more = chunk.split(b"\n")
        begun.append(head)
        if more:
            *whole, rest = b"".join(begun), *more
            begun = [rest]
            if found := _not_blank(whole):
                yield found
    if found := _not_blank([b"".join(begun)]):
        yield found


def _not_blank(texts: Iterable[bytes]) -> list[bytes]:
    return [line for text in texts if (line := text.rstrip(b"\r")) and not line.isspace()]
