"""Words of the command line that other users of the machine shouldn't be able to read.

A list of processes shows them to everyone, for as long as the process runs. Its environment is shown to
its own user alone.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence

_KEPT = "PGQUE_HIDDEN_WORDS"  # by place, from the begin of a program to its second begin
_MAY_HOLD_SECRET = re.compile(r"password|secret|://[^/]*:.*@", re.IGNORECASE | re.DOTALL)


def given() -> list[str]:
    """The words that this program was given, whole.

    Where one holds a password this begins the program anew, by words that hold none. The processes that it
    starts then find the password neither on its command line nor in its environment.
    """
    words = sys.argv[1:]
    kept = os.environ.pop(_KEPT, None)
    if kept is not None:
        for place, word in json.loads(kept).items():
            words[int(place)] = word
        return words
    shown, hidden = split(words)
    if hidden:
        before = sys.orig_argv[: len(sys.orig_argv) - len(words)]
        os.execve(sys.executable, [*before, *shown], {**os.environ, _KEPT: json.dumps(hidden)})  # noqa: S606
    return words


def split(words: Sequence[str]) -> tuple[list[str], Mapping[int, str]]:
    """The same words without secrets of connection strings; those that had one, by their places."""
    shown = [_without_secret(word) if _MAY_HOLD_SECRET.search(word) else word for word in words]
    return shown, {
        place: word for place, (word, left) in enumerate(zip(words, shown, strict=True)) if word != left
    }


def _without_secret(word: str) -> str:
    """A connection string may stand behind an option, a name, or both: `--dsn=shop=postgresql://...`."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    from pgque_exporter.redaction import SECRET_KEYS

    for begin in (0, *(match.end() for match in re.finditer("=", word))):
        try:
            options = conninfo_to_dict(word[begin:])
        except (psycopg.Error, UnicodeError):
            continue  # what is no connection string at all is about to be refused, and the process to end
        left = {name: value for name, value in options.items() if name not in SECRET_KEYS}
        if left != options:
            return word[:begin] + make_conninfo("", **left)
    return word
