"""The part of a page that changes once per poll, in the encodings that somebody asks for."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from isal import isal_zlib

_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_LEVEL = 1  # the others are no smaller with pages


class Encoding(Enum):
    """How a page travels."""

    IDENTITY = "identity"
    GZIP = "gzip"


@dataclass(frozen=True, slots=True)
class Body:
    """A page but for a short tail, which is another each time that it is sent.

    As gzip it is the beginning of one deflate stream, flushed to a byte boundary: a tail can be
    compressed on its own and appended. The result stays a single gzip member; readers such as curl
    take a second member for garbage.
    """

    plain: bytes | None  # each None while nobody asks for it
    deflated: bytes | None
    crc: int
    length: int

    @classmethod
    def of(cls, parts: Sequence[bytes], *encodings: Encoding) -> Body:
        """Prepare what is needed for these encodings; this is the slow part, meant for a thread."""
        plain = b"".join(parts) if Encoding.IDENTITY in encodings else None
        if Encoding.GZIP not in encodings:
            return cls(plain, None, 0, 0)
        stream, crc, deflated = _deflate(), 0, []
        for part in parts:
            deflated.append(stream.compress(part))
            crc = isal_zlib.crc32(part, crc)
        deflated.append(stream.flush(isal_zlib.Z_FULL_FLUSH))
        return cls(plain, b"".join(deflated), crc, sum(map(len, parts)))

    def has(self, encoding: Encoding) -> bool:
        """Whether it was prepared for this encoding."""
        return (self.plain if encoding is Encoding.IDENTITY else self.deflated) is not None

    def page(self, tail: bytes, encoding: Encoding) -> bytes:
        """The whole page, `tail` included; as gzip one member. ValueError if it wasn't prepared for that."""
        if encoding is Encoding.IDENTITY and self.plain is not None:
            return self.plain + tail
        if encoding is Encoding.IDENTITY or self.deflated is None:
            raise ValueError(f"this page wasn't prepared as {encoding.value}")
        stream = _deflate()
        end = stream.compress(tail) + stream.flush(isal_zlib.Z_FINISH)
        trailer = struct.pack("<II", isal_zlib.crc32(tail, self.crc), (self.length + len(tail)) & 0xFFFFFFFF)
        return b"".join((_GZIP_HEADER, self.deflated, end, trailer))


def _deflate() -> isal_zlib.Compress:
    return isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, -zlib.MAX_WBITS)
