"""Words of the command line that other users of the machine shouldn't be able to read.

A list of processes shows them to everyone, for as long as the process runs. Its environment is shown to
its own user alone.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

_DSN = re.compile(r"--dsn?(?:=(.*))?", re.DOTALL)  # argparse takes a shortened option as well
_MAY_HOLD_PASSWORD = re.compile(r"password|://[^/]*:.*@", re.IGNORECASE | re.DOTALL)


def hide_password() -> None:
    """Begin this program anew with the password of `--dsn` in PGPASSWORD; return if there is none."""
    given = len(sys.argv) - 1
    found = split(sys.argv[1:])
    if found is None:
        return
    words, password = found
    before = sys.orig_argv[: len(sys.orig_argv) - given]
    os.execve(sys.executable, [*before, *words], {**os.environ, "PGPASSWORD": password})  # noqa: S606


def split(words: Sequence[str]) -> tuple[list[str], str] | None:
    """The same words with no password in `--dsn`, and the password; None where that has none."""
    for index, word in enumerate(words):
        match = _DSN.fullmatch(word)
        if match is None:
            continue
        place = index if match[1] is not None else index + 1
        dsn = match[1] if match[1] is not None else words[place] if place < len(words) else ""
        if not _MAY_HOLD_PASSWORD.search(dsn) or (found := _split_dsn(dsn)) is None:
            return None
        shown, password = found
        written = f"--dsn={shown}" if place == index else shown
        return [*words[:place], written, *words[place + 1 :]], password
    return None


def _split_dsn(dsn: str) -> tuple[str, str] | None:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    try:
        options = conninfo_to_dict(dsn)
    except (psycopg.Error, UnicodeError):
        return None  # it is about to be refused, and the process to end
    password = options.pop("password", None)
    # In a service file, a password would come before the one in the environment.
    if not password or "service" in options:
        return None
    return make_conninfo("", **options), str(password)
