"""However files are cut into tasks, each of their lines is read once; files that are gone are told."""

from __future__ import annotations

import gzip
import io
import tempfile
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pgque_pipeline import reading

# Lines that are empty, blank, long, torn, and ended in both ways, at all places.
PARTS = st.lists(
    st.sampled_from([b"\n", b"\r\n", b"\r", b" ", b"a", b"bc", b"d" * 7, b"e" * 40]), max_size=40
)


def tasks(paths: Iterable[Path]) -> list[list[reading.Share[reading.File]]]:
    found, _ = reading.opened(paths)
    return reading.shares(found)


def read(task: Iterable[reading.Share[reading.File]]) -> list[tuple[str, bytes]]:
    gone: list[str] = []
    found = [(Path(path).name, line) for path, texts in reading.read(task, gone.append) for line in texts]
    return found + [(Path(path).name, b"gone") for path in gone]


def lines_of(content: bytes) -> list[bytes]:
    """Those that count, by the book."""
    return [line.rstrip(b"\r") for line in content.split(b"\n") if line.strip()]


@given(
    contents=st.lists(PARTS.map(b"".join), min_size=1, max_size=4),
    task_bytes=st.integers(1, 60),
    chunk=st.integers(1, 50),
)
def test_the_lines_of_all_shares_are_those_of_the_files(
    contents: list[bytes], task_bytes: int, chunk: int
) -> None:
    expected = [(str(n), line) for n, content in enumerate(contents) for line in lines_of(content)]
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.multiple(reading, _TASK_BYTES=task_bytes, _CHUNK=chunk),
    ):
        paths = [Path(folder, str(n)) for n in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        assert [line for task in tasks(paths) for line in read(task)] == expected


@given(content=PARTS.map(b"".join), chunk=st.integers(1, 50), cuts=st.lists(st.integers(0, 300)).map(sorted))
def test_shares_of_a_part_of_a_file_keep_to_it(content: bytes, chunk: int, cuts: list[int]) -> None:
    """The part begins with a line and ends anywhere, as what a stream finds new in a file does."""
    before, after = b"before\n", b"after\n"
    first, last = len(before), len(before) + len(content)
    places = [first, *(min(first + cut, last) for cut in cuts), last]
    file = io.BytesIO(before + content + after)
    with patch.object(reading, "_CHUNK", chunk):
        found = [
            line
            for begin, end in pairwise(places)
            for texts in reading.lines_between(file, begin, end, first=first, last=last)
            for line in texts
        ]
    assert found == lines_of(content)


def test_many_small_files_make_few_tasks_and_a_large_one_many(tmp_path: Path) -> None:
    paths = [tmp_path / f"{n:02}" for n in range(50)]
    for path in paths:
        path.write_bytes(b"line\n")
    large, packed = tmp_path / "large", tmp_path / "packed"
    large.write_bytes(b"line\n" * 100)
    packed.write_bytes(gzip.compress(b"line\n"))
    with patch.object(reading, "_TASK_BYTES", 100):
        assert [len(task) for task in tasks(paths)] == [20, 20, 10]
        assert [len(task) for task in tasks([large])] == [1] * 5
        assert [len(task) for task in tasks([packed, packed])] == [1, 1], "it is larger than it looks"


def test_a_share_of_a_file_that_has_shrunk_has_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    path.write_bytes(b"one\ntwo\nthree\n")
    with patch.object(reading, "_TASK_BYTES", 5):
        found = tasks([path])
    path.write_bytes(b"one\n")
    assert [read(task) for task in found] == [[(path.name, b"one")], [], []]


def test_a_file_that_is_gone_is_told_and_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    before, between, after = (tmp_path / name for name in ("before", "between", "after"))
    for path in (before, between, after):
        path.write_bytes(b"line\n")
    before.unlink()
    lines = reading.lines(spark, [before, between, after])
    assert lines.gone == {str(before)}
    (task,) = lines.tasks
    between.unlink()
    assert read(task) == [("after", b"line"), ("between", b"gone")]
    assert lines.spread(_count) == ([1], frozenset({str(before), str(between)}))


def _count(number: int, lists: reading.Lists) -> int:
    return sum(len(texts) for _, texts in lists)
