"""Whether a request may pass: basic and bearer authentication.

Nothing here tells by its time whether a name, a password or a token was nearly right, and nobody can
have passwords compared faster than one at a time.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Callable, Sequence
from enum import Enum

import bcrypt

from pgque_exporter.web_config import WebConfig

_MOST_REMEMBERED = 100
_MOST_WAITING = 8
_LONGEST_PASSWORD = 72  # bytes; bcrypt takes no more


class Verdict(Enum):
    """What becomes of a request."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    BUSY = "busy"  # too many passwords wait to be compared


class Access:
    """Judges the Authorization header by the configuration as it is at that moment.

    A password costs its comparison by bcrypt once: who has passed is remembered, by a keyed digest.
    """

    def __init__(self, config: Callable[[], WebConfig]) -> None:
        self._config = config
        self._key = os.urandom(32)
        self._passed: set[bytes] = set()
        self._turn = asyncio.Lock()
        self._waiting = 0

    def challenges(self) -> Sequence[str]:
        """What a client is asked for, a WWW-Authenticate header each."""
        config = self._config()
        asked = []
        if config.tokens:
            asked.append('Bearer realm="pgque-exporter"')
        if config.users:
            asked.append('Basic realm="pgque-exporter", charset="UTF-8"')
        return asked

    async def judge(self, authorization: str | None) -> Verdict:
        """The verdict on one request; `authorization` is its header, None if there isn't exactly one."""
        config = self._config()
        if not config.asks:
            return Verdict.ALLOWED
        scheme, _, rest = (authorization or "").partition(" ")
        if scheme.lower() == "bearer" and config.tokens:
            return _verdict(_is_token(rest.strip(), config.tokens))
        if scheme.lower() == "basic" and config.users and (given := _credentials(rest)) is not None:
            return await self._judge_password(*given, config)
        return Verdict.REFUSED

    async def _judge_password(self, name: str, password: bytes, config: WebConfig) -> Verdict:
        known = config.users.get(name)
        # A name that nobody has costs a comparison as well, the dearest there is.
        hashed = known if known is not None else max(config.users.values(), key=_cost)
        mark = self._mark(name, password, hashed)
        if known is not None and mark in self._passed:
            return Verdict.ALLOWED
        if self._waiting >= _MOST_WAITING:
            return Verdict.BUSY
        self._waiting += 1
        try:
            async with self._turn:
                equal = await asyncio.to_thread(_equal, password, hashed)
        finally:
            self._waiting -= 1
        if not equal or known is None:
            return Verdict.REFUSED
        if len(self._passed) >= _MOST_REMEMBERED:
            self._passed.clear()  # only hashes that were changed make it grow
        self._passed.add(mark)
        return Verdict.ALLOWED

    def _mark(self, *parts: str | bytes) -> bytes:
        digest = hashlib.blake2b(key=self._key, digest_size=32)
        for part in parts:
            text = part.encode() if isinstance(part, str) else part
            digest.update(len(text).to_bytes(8, "big") + text)
        return digest.digest()


def _verdict(allowed: bool) -> Verdict:
    return Verdict.ALLOWED if allowed else Verdict.REFUSED


def _is_token(given: str, tokens: Sequence[bytes]) -> bool:
    digest = hashlib.sha256(given.encode("utf-8", "surrogateescape")).digest()
    # Each is compared, whichever fits.
    return sum(hmac.compare_digest(digest, token) for token in tokens) > 0


def _credentials(text: str) -> tuple[str, bytes] | None:
    try:
        name, colon, password = base64.b64decode(text.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None


def _equal(password: bytes, hashed: bytes) -> bool:
    try:
        # A longer one can't be right: whoever made the hash had no more than this.
        fits = len(password) <= _LONGEST_PASSWORD and b"\0" not in password
        return bcrypt.checkpw(password if fits else b"", hashed) and fits
    except ValueError:
        return False


def _cost(hashed: bytes) -> int:
    return int(hashed[4:6])
