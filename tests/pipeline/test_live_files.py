"""Files that grow, are renamed, packed and begun anew: each whole line is read, and read once."""

from __future__ import annotations

import gzip
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgque_pipeline import live_files, reading
from pgque_pipeline.inputs import files_there
from pgque_pipeline.live_files import Look, MovedError, Piece, Watch
from pgque_pipeline.warehouse.manifest import InputFile

FOR_EVER = 1e9


class Follower:
    """Somebody who reads a folder time and again."""

    def __init__(self, folder: Path, *, settle: float = FOR_EVER, limit: int = 1_000_000) -> None:
        self.folder = folder
        self.watch = Watch(settle=settle, limit=limit)
        self.known: dict[str, InputFile] = {}
        self.last = Look({})

    def look(self) -> Look:
        look = self.watch.look(files_there([self.folder]), self.known)
        self.last = Look.from_json(look.as_json())
        assert self.last == look
        return look

    def read(self) -> list[str]:
        """All that is new."""
        found: list[str] = []
        while True:
            look = self.look()
            found += lines_of(look)
            self.known = dict(look.files)
            if not look.more:
                return found


def lines_of(look: Look) -> list[str]:
    found = (texts for task in reading.shares(look.pieces) for _, texts in live_files.read(task))
    return [line.decode() for texts in found for line in texts]


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    return Follower(tmp_path)


def add(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(text)


def test_a_line_is_read_once_it_is_whole(follower: Follower) -> None:
    live = follower.folder / "live.json"
    add(live, "one\ntw")
    assert follower.read() == ["one"]
    assert follower.read() == []
    add(live, "o\r\n\n  \nthree")
    assert follower.read() == ["two"]
    # Whoever reads whole files sees that something of this one is left.
    assert follower.known[str(live)].size < live.stat().st_size


def test_a_last_line_that_will_not_be_whole_is_read_as_it_is(tmp_path: Path) -> None:
    follower = Follower(tmp_path, settle=0)
    live = tmp_path / "live.json"
    add(live, "one\ntw")
    assert follower.read() == ["one", "tw"]
    assert follower.read() == []
    add(live, "o\n")
    assert follower.read() == ["one", "two"]
    assert follower.last.again == (str(live),)


def test_a_file_goes_on_under_another_name(follower: Follower) -> None:
    live, first, second = (follower.folder / name for name in ("live.json", "live.1.json", "live.2.json"))
    add(live, "one\ntwo\nth")
    assert follower.read() == ["one", "two"]
    live.rename(first)
    add(first, "ree\n")
    add(live, "one\n")  # begins as the other did
    assert sorted(follower.read()) == ["one", "three"]
    assert follower.last.moved == {str(live): str(first)}
    first.rename(second)
    live.rename(first)
    add(first, "four\n")
    assert follower.read() == ["four"]
    assert follower.last.moved == {str(live): str(first), str(first): str(second)}
    assert {*follower.known} == {str(first), str(second)}
    second.rename(follower.folder / "live.3.json")
    first.rename(second)
    assert follower.read() == []
    assert follower.last.moved == {str(first): str(second), str(second): str(follower.folder / "live.3.json")}
    assert follower.read() == []
    assert (follower.last.moved, follower.last.again) == ({}, ())


def test_a_file_that_is_packed_goes_on_where_it_was(tmp_path: Path) -> None:
    follower = Follower(tmp_path, settle=0)
    live, packed = tmp_path / "live.json", tmp_path / "live.json.gz"
    add(live, "".join(f"line {n}\n" for n in range(2000)))
    assert len(follower.read()) == 2000
    packed.write_bytes(gzip.compress(live.read_bytes() + b"last\n"))
    live.unlink()
    assert follower.read() == ["last"]
    assert follower.last.moved == {str(live): str(packed)}
    assert follower.read() == []


def test_packed_files_are_read_once_nobody_writes_to_them(follower: Follower) -> None:
    packed = follower.folder / "old.json.gz"
    packed.write_bytes(gzip.compress(b"one\n"))
    assert follower.read() == []
    follower.watch = Watch(settle=60, limit=1000)
    assert follower.read() == []
    hour_ago = packed.stat().st_mtime - 3600
    os.utime(packed, (hour_ago, hour_ago))
    assert follower.read() == ["one"]


def test_a_file_that_was_emptied_begins_anew(follower: Follower) -> None:
    live = follower.folder / "live.json"
    add(live, "one\ntwo\n")
    follower.read()
    live.write_text("three\nfour\nfive\n")
    assert follower.read() == ["three", "four", "five"]
    assert follower.last.again == (str(live),)


def test_much_is_read_in_parts_and_the_oldest_first(tmp_path: Path) -> None:
    follower = Follower(tmp_path, limit=10)
    for age, name in enumerate(("b", "a")):
        path = tmp_path / name
        add(path, f"{name}1\n{name}2\n{name} is longer than that\n")
        os.utime(path, (1000 + age, 1000 + age))
    looks = [follower.look()]
    while looks[-1].more:
        follower.known = dict(looks[-1].files)
        looks.append(follower.look())
    assert [lines_of(look) for look in looks] == [
        ["b1", "b2"], ["b is longer than that"], ["a1", "a2"], ["a is longer than that"],
    ]  # fmt: skip


def test_a_task_reads_the_lines_that_begin_in_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"{'x' * (n * 7 % 13)}{n}" for n in range(300)]
    add(tmp_path / "a", "".join(f"{text}\n" for text in texts))
    for size in (1, 2, 5, 64, 1000):
        monkeypatch.setattr(reading, "_TASK_BYTES", size)
        look = Follower(tmp_path).look()
        assert lines_of(look) == texts


def test_a_file_renamed_between_look_and_read_is_found(follower: Follower) -> None:
    live = follower.folder / "live.json"
    add(live, "one\n")
    look = follower.look()
    live.rename(follower.folder / "old.json")
    add(live, "other\n")
    assert lines_of(look) == ["one"]
    (follower.folder / "old.json").unlink()
    with pytest.raises(MovedError):
        lines_of(look)
    packed = Piece(str(live), 0, 3, "", mtime_ns=1)
    with pytest.raises(MovedError):
        lines_of(Look({}, (packed,)))


def test_files_that_are_gone_are_forgotten_after_a_while(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(follower.folder / "a", "one\n")
    add(follower.folder / "b", "two\n")
    follower.read()
    (follower.folder / "a").unlink()
    follower.read()
    assert len(follower.known) == 2
    monkeypatch.setattr(live_files, "_REMEMBERED_SECONDS", 0)
    follower.read()
    assert [Path(path).name for path in follower.known] == ["b"]


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_to_files_each_line_is_read_once(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    follower = Follower(tmp_path, settle=0 if seed % 3 == 0 else FOR_EVER, limit=chance.choice([40, 10_000]))
    written: list[str] = []
    read: list[str] = []
    live, rest = tmp_path / "live", ""
    numbers = iter(range(10_000))

    def lines() -> Iterator[str]:
        for _ in range(chance.randint(0, 6)):
            written.append(f"{next(numbers)} {'x' * chance.randint(0, 40)}")
            yield f"{written[-1]}\n"

    for _ in range(60):
        event = chance.random()
        if event < 0.55:
            text = rest + "".join(lines())
            # Half a line may be there for a while; not where what is left at an end counts as a line.
            cut = len(text) if seed % 3 == 0 else chance.randint(0, len(text))
            add(live, text[:cut])
            rest = text[cut:]
        elif event < 0.7 and live.exists():
            add(live, rest)
            rest = ""
            live.rename(tmp_path / f"live.{next(numbers)}")
        elif event < 0.75:
            for old in tmp_path.glob("live.*"):
                if not old.name.endswith("gz"):
                    packed = tmp_path / f".{old.name}.gz"
                    packed.write_bytes(gzip.compress(old.read_bytes()))
                    old.unlink()
                    packed.rename(tmp_path / f"{old.name}.gz")
        else:
            read += follower.read()
    add(live, rest)
    follower.watch = Watch(settle=0, limit=10_000)
    read += follower.read()
    assert sorted(read) == sorted(written)
