"""What tests fetch and unpack for themselves: where it lies, and words for what it is."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.support.repository import ROOT


class Unavailable(Exception):
    """A program can't be had on this machine; the text says why."""


@dataclass(frozen=True)
class Program:
    """A program, and what its environment needs beside the usual."""

    path: Path
    env: Mapping[str, str] = field(default_factory=dict)

    def full_env(self) -> dict[str, str]:
        """A whole environment to run the program in."""
        return {**os.environ, **self.env}


@dataclass(frozen=True)
class Postgres:
    """The programs of one PostgreSQL version, and what their environment needs beside the usual."""

    bindir: Path
    env: Mapping[str, str] = field(default_factory=dict)


@cache
def tools_folder(source: str) -> Path:
    """Where what comes from one source is unpacked: in the checkout, if PostgreSQL's user can enter that.

    A server refuses to run as root and is then started as another user, who can't reach a checkout
    in root's home.
    """
    folder = ROOT / ".tools" / source
    if os.geteuid() == 0 and not all(path.stat().st_mode & 0o001 for path in (ROOT, *ROOT.parents)):
        folder = Path("/var/cache/pgque-exporter") / source
    folder.mkdir(parents=True, exist_ok=True)
    for path in (folder, folder.parent):
        path.chmod(0o755)  # whatever the umask says
    return folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time in this folder; the lock goes with the process."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
