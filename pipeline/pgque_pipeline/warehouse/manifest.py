"""What is in force: which folders make the tables, which files were read, what is still to be done.

Folders of data never change. A commit writes the next manifest, which takes force by appearing under its
number: at any moment, also after a kill, the newest one is whole and all that it names is there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from pgque_exporter.errors import UserError

FORMAT = 2
_PREFIX, _SUFFIX = "manifest-", ".json"


@dataclass(frozen=True)
class InputFile:
    """An input file as it was when it was read: another size or time means that it is to be read again.

    `mark` tells what it held up to that size, if that is where it can be read on from; else it is empty.
    """

    size: int
    mtime_ns: int
    mark: str = field(default="", compare=False)


@dataclass(frozen=True)
class Manifest:
    """A state of the warehouse. Folders are relative to it.

    days        by table and day: the folder that holds the day
    whole       by table without days: its folder
    quarantine  the folders that together hold this table, the oldest first
    files       input that was read
    fresh       by day: folders with points that were read and aren't in `points` yet
    replaced    days of which only fresh points are to count
    pending     days whose tables have to be made anew
    stale       whether the tables without days are older than those of days
    newest      newest day of the last complete run, from which the watermark counts
    settings    what shaped the tables
    """

    number: int = 0
    days: Mapping[str, Mapping[date, str]] = field(default_factory=dict)
    whole: Mapping[str, str] = field(default_factory=dict)
    quarantine: tuple[str, ...] = ()
    files: Mapping[str, InputFile] = field(default_factory=dict)
    fresh: Mapping[date, tuple[str, ...]] = field(default_factory=dict)
    replaced: frozenset[date] = frozenset()
    pending: frozenset[date] = frozenset()
    stale: bool = False
    newest: date | None = None
    settings: str = ""

    def with_days(self, table: str, folders: Mapping[date, str], days: Iterable[date]) -> Manifest:
        """The same with these folders for `days` of a table; without those days that have no folder."""
        kept = {day: folder for day, folder in self.days.get(table, {}).items() if day not in set(days)}
        return replace(self, days={**self.days, table: {**kept, **folders}})

    def all_folders(self) -> Iterator[str]:
        """Every folder that this state needs."""
        yield from self.whole.values()
        yield from self.quarantine
        for folders in self.fresh.values():
            yield from folders
        for of_table in self.days.values():
            yield from of_table.values()


def load(root: Path, number: int | None = None) -> Manifest:
    """A state by its number; without one the state in force, which is empty in a new warehouse."""
    if number is None:
        numbers = existing(root)
        if not numbers:
            return Manifest()
        number = numbers[-1]
    path = root / name_of(number)
    try:
        return _decode(json.loads(path.read_text("utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            "this is no manifest that this version can read",
            where=str(path),
            hint="was it written by another version? A run into a new folder makes everything anew",
        ) from error


def commit(root: Path, manifest: Manifest) -> Manifest:
    """Put the next state in force; the same with its number. Fails if another one has taken that number."""
    following = replace(manifest, number=manifest.number + 1)
    path = root / name_of(following.number)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    with partial.open("w", encoding="utf-8") as file:
        json.dump(_encode(following), file, separators=(",", ":"), sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(partial, path)  # unlike a rename, it doesn't replace
    except FileExistsError:
        raise UserError(
            f"{path.name} appeared meanwhile", where=str(root), hint="is another run going on?"
        ) from None
    finally:
        partial.unlink()
    sync_folder(root)
    return following


def existing(root: Path) -> list[int]:
    """Numbers of all manifests, oldest first."""
    found = (path.name[len(_PREFIX) : -len(_SUFFIX)] for path in root.glob(f"{_PREFIX}*{_SUFFIX}"))
    return sorted(int(number) for number in found if number.isdigit())


def name_of(number: int) -> str:
    """File name of a manifest."""
    return f"{_PREFIX}{number:012d}{_SUFFIX}"


def sync_folder(folder: Path) -> None:
    """Have the folder's entries survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _encode(manifest: Manifest) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "number": manifest.number,
        "days": {table: _with_text(folders) for table, folders in manifest.days.items()},
        "whole": dict(manifest.whole),
        "quarantine": manifest.quarantine,
        "files": {path: [file.size, file.mtime_ns, file.mark] for path, file in manifest.files.items()},
        "fresh": _with_text(manifest.fresh),
        "replaced": sorted(day.isoformat() for day in manifest.replaced),
        "pending": sorted(day.isoformat() for day in manifest.pending),
        "stale": manifest.stale,
        "newest": manifest.newest.isoformat() if manifest.newest else None,
        "settings": manifest.settings,
    }


def _with_text(by_day: Mapping[date, Any]) -> dict[str, Any]:
    return {day.isoformat(): value for day, value in by_day.items()}


def _decode(data: Any) -> Manifest:
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']}")
    day_of = date.fromisoformat
    return Manifest(
        number=int(data["number"]),
        days={
            table: {day_of(day): folder for day, folder in folders.items()}
            for table, folders in data["days"].items()
        },
        whole=data["whole"],
        quarantine=tuple(data["quarantine"]),
        files={path: InputFile(*values) for path, values in data["files"].items()},
        fresh={day_of(day): tuple(folders) for day, folders in data["fresh"].items()},
        replaced=frozenset(map(day_of, data["replaced"])),
        pending=frozenset(map(day_of, data["pending"])),
        stale=bool(data["stale"]),
        newest=day_of(data["newest"]) if data["newest"] else None,
        settings=str(data["settings"]),
    )
