"""Where metrics are kept as files, and how much room they may take."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from pgque_exporter.config_values import Duration, RawModel, Where, quote
from pgque_exporter.errors import UserError

_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"(\d+)(KiB|MiB|GiB|TiB)")


@dataclass(frozen=True)
class ArchiveConfig:
    """A folder of files with OTLP requests as JSON lines. Times in seconds, sizes in bytes.

    rotate_after, rotate_size   a file is closed when it is so old or so large
    max_size                    of all files together; the oldest go
    """

    directory: Path
    rotate_after: float = 300.0
    rotate_size: int = 64 * 2**20
    max_size: int = 10 * 2**30
    compress: bool = True


def parse_size(text: object) -> int:
    """Bytes of `64MiB`, `10GiB`."""
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise PydanticCustomError(
            "size",
            "{given} is not a size|write a whole number with KiB, MiB, GiB or TiB, such as 64MiB",
            {"given": quote(text)},
        )
    return int(match[1]) * _UNITS[match[2]]


_Size = Annotated[int, BeforeValidator(parse_size)]


class RawArchive(RawModel):
    """The block `archive`."""

    directory: str
    rotate_after: Duration = ArchiveConfig.rotate_after
    rotate_size: _Size = ArchiveConfig.rotate_size
    max_size: _Size = ArchiveConfig.max_size
    compress: bool = ArchiveConfig.compress


def build_archive(raw: RawArchive, where: Where) -> ArchiveConfig:
    """The block made ready; UserError if it can't be."""
    if not raw.directory:
        raise UserError(
            "directory is empty", where=where(("archive", "directory")), hint="name a folder of its own"
        )
    if raw.rotate_size < 2**20:
        raise UserError("rotate_size is below 1MiB", where=where(("archive", "rotate_size")))
    if raw.max_size < 2 * raw.rotate_size:
        raise UserError(
            "max_size is less than two files of rotate_size",
            where=where(("archive", "max_size")),
            hint="the file that is being written would have to go",
        )
    return ArchiveConfig(
        Path(raw.directory), raw.rotate_after, raw.rotate_size, raw.max_size, raw.compress
    )
