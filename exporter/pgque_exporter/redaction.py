"""Keeping secrets out of everything that is written: errors, logs, pages.

libpq and the resolver quote pieces of a connection string back at the reader. A password with an
unescaped `@` or `/` becomes part of the "host" or "port" in such a message, so the parsed password
alone isn't enough: every piece between the user name and the last `@` counts as secret.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus, unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict

MASK = "***"
_LONGEST_LINE = 500
SECRET_KEYS = ("password", "sslpassword", "oauth_client_secret")

# Whatever else happens, these two shapes never pass.
_KEY_VALUE = re.compile(
    r"(?i)\b(password|passwd|sslpassword|oauth_client_secret)(\s*=\s*)('(?:\\.|[^'\\])*'?|[^\s&'\"]+)"
)
_SECRET_KEY = re.compile(r"(?i)\b(?:password|passwd|sslpassword|oauth_client_secret)\s*=\s*")
_URI_USERINFO = re.compile(r"(?i)(postgres(?:ql)?://[^\s:@/]*:)[^\s]*(?=@)")
_URI_SCHEME = re.compile(r"(?i)^\s*postgres(?:ql)?://")
_SEPARATORS = re.compile(r"[@:/?,#&=%\[\]\s'\"\\]+")


def secrets_of_dsn(dsn: str) -> Iterator[str]:
    """Every string in `dsn` that may be (a piece of) a password, also when libpq can't parse it."""
    try:
        parsed = conninfo_to_dict(dsn)
    except (psycopg.Error, UnicodeError):
        parsed = {}
        # Nobody knows where a password ends that broke the rest; the message quotes where that begins.
        for match in _SECRET_KEY.finditer(dsn):
            yield from _with_pieces(dsn[match.end() :])
    for key in SECRET_KEYS:
        if value := parsed.get(key):
            yield str(value)
    for match in _KEY_VALUE.finditer(dsn):
        yield from _with_pieces(match[3].strip("'"))
    if scheme := _URI_SCHEME.match(dsn):
        userinfo, at, _ = dsn[scheme.end() :].rpartition("@")
        _, colon, password = userinfo.partition(":")
        if at and colon:
            yield from _with_pieces(password)


def _with_pieces(password: str) -> Iterator[str]:
    yield password
    for text in (password, unquote(password)):
        for match in _SEPARATORS.finditer(text):
            yield text[match.end() :]
        yield from _SEPARATORS.split(text)


class Redactor:
    """Replaces known secrets in a text by `***`; callable, and safe to use from any thread."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: frozenset[str] = frozenset()
        self._compiled: tuple[frozenset[str], re.Pattern[str] | None] = (self._forms, None)
        self.add(*secrets)

    def add_dsn(self, dsn: str) -> None:
        """Learn the secrets of a connection string."""
        self.add(*secrets_of_dsn(dsn))

    def add(self, *secrets: str) -> None:
        """Learn secrets, in every form in which a message may quote them."""
        forms = self._forms.union(*(_forms(secret) for secret in secrets if secret))
        if forms != self._forms:
            self._forms = forms

    def _pattern(self) -> re.Pattern[str] | None:
        # Compiled when it is wanted, not with each secret: the passwords of hundreds of databases would
        # take seconds.
        forms, pattern = self._compiled
        if forms is not self._forms:
            forms = self._forms
            # Longest first, so that a piece of a password doesn't leave the rest of it readable.
            alternatives = (_alternative(form) for form in sorted(forms, key=len, reverse=True))
            pattern = re.compile("|".join(alternatives))
            self._compiled = (forms, pattern)
        return pattern

    def __call__(self, text: object) -> str:
        """`text` as a string without any secret in it."""
        result = str(text)
        if (pattern := self._pattern()) is not None:
            result = pattern.sub(MASK, result)
        result = _KEY_VALUE.sub(rf"\1\2{MASK}", result)
        return _URI_USERINFO.sub(rf"\1{MASK}", result)


def one_line(text: object, redact: Redactor) -> str:
    """`text` redacted, on one line of limited length and without a full stop, so that a hint can follow."""
    line = " ".join(redact(text).split()).rstrip(".")
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}..."


def _forms(secret: str) -> Iterator[str]:
    escaped = secret.replace("\\", "\\\\").replace("'", "\\'")
    quoted = (quote(secret, safe=""), quote(secret), quote_plus(secret))
    for form in (secret, escaped, repr(secret)[1:-1], *quoted):
        yield form
        yield form.lower()  # host names are lowered on their way into a message


def _alternative(form: str) -> str:
    pattern = re.escape(form)
    if len(form) >= 4:
        return pattern
    # A very short secret is hidden where it stands alone; inside words it would garble every text.
    return rf"(?<!\w){pattern}(?!\w)"


class RedactingFormatter(logging.Formatter):
    """Formats a record, traceback included, and redacts the outcome. Times are UTC."""

    converter = staticmethod(time.gmtime)

    def __init__(self, redact: Redactor) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        """The redacted line or lines of one record."""
        return self._redact(super().format(record))
