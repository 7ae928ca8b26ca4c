"""Where passwords come from when they aren't in a DSN, and whether they have changed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from pgque_exporter.config import TargetConfig


def read(path: Path) -> str:
    """The password in a password file: its text without the end of the line."""
    return path.read_text("utf-8").rstrip("\r\n")


def state(config: TargetConfig) -> bytes:
    """Something that changes when another password may be had; a hash, that tells none.

    It covers the password file, libpq's own file (`~/.pgpass` or another) and `PGPASSWORD`.
    """
    digest = hashlib.sha256(os.environ.get("PGPASSWORD", "").encode("utf-8", "surrogateescape"))
    for path in (config.password_file, _passfile(config.dsn)):
        digest.update(b"\0")
        if path is not None:
            try:
                digest.update(path.read_bytes())
            except OSError as error:
                digest.update(str(error.errno).encode())
    return digest.digest()


def _passfile(dsn: str) -> Path:
    try:
        given = conninfo_to_dict(dsn).get("passfile")
    except (psycopg.Error, UnicodeError):  # to connect fails too, and says why
        given = None
    # Not Path.expanduser(), which fails for a user without a home, as containers have them.
    return Path(os.path.expanduser(str(given or os.environ.get("PGPASSFILE") or "~/.pgpass")))
