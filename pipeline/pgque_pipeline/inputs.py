"""Which files there are to read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from pgque_exporter.errors import UserError
from pgque_pipeline.warehouse.manifest import InputFile


def input_files(places: Iterable[Path]) -> dict[Path, InputFile]:
    """All files of these files and folders, hidden ones left out. Raises UserError where there is none."""
    found: dict[Path, InputFile] = {}
    for place in places:
        if not place.exists():
            raise UserError("there is no such file or folder", where=str(place))
        files = files_there([place])
        if not files:
            raise UserError("there is no file in this folder", where=str(place))
        found |= files
    return found


def files_there(places: Iterable[Path]) -> dict[Path, InputFile]:
    """The same, where there need be none yet. Raises UserError where one can't be read."""
    found: dict[Path, InputFile] = {}
    for place in places:
        paths = [place] if place.is_file() else sorted(place.rglob("*"))
        for path in paths:
            if path != place and not _visible(path, place):
                continue
            try:
                with path.open("rb"):
                    state = path.stat()
            except FileNotFoundError:  # moved meanwhile; the next run finds it under its new name
                continue
            except OSError as error:
                raise UserError(f"can't read this file: {error.strerror}", where=str(path)) from None
            found[path.resolve()] = InputFile(state.st_size, state.st_mtime_ns)
    return found


def refuse_own_files(root: Path, files: Iterable[Path]) -> None:
    """Raises UserError where the warehouse would be read as its own input."""
    if any(root.resolve() in path.parents for path in files):
        raise UserError("the warehouse is within the input", where=str(root))


def without_vanished(files: Mapping[str, InputFile]) -> dict[str, InputFile]:
    """Those of these files that are still there. What has come to an end needn't be remembered for ever.

    Whatever comes back is read again, which adds nothing.
    """
    return {path: state for path, state in files.items() if os.path.exists(path)}


def _visible(path: Path, place: Path) -> bool:
    return path.is_file() and not any(part.startswith(".") for part in path.relative_to(place).parts)
