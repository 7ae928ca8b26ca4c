"""What packed files hold: gzip; zstd; and zstd as the OpenTelemetry Collector writes it.

Of the last each message is packed on its own, behind its length in four bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_LENGTH = struct.Struct(">I")
# What reading a packed file may end with.
UNREADABLE = (OSError, EOFError, zlib.error)
# Bytes by which a file tells how it is packed.
HEAD = 8
_CHUNK = 256 * 1024


def is_packed(head: bytes) -> bool:
    """Whether a file is packed that begins with these eight bytes."""
    return head.startswith((_GZIP, _ZSTD)) or is_framed(head)


def is_framed(head: bytes) -> bool:
    """Whether it is packed by the message."""
    return head[_LENGTH.size :].startswith(_ZSTD)


def content(file: BinaryIO) -> Iterator[bytes]:
    """What a file holds, unpacked; not for messages behind their lengths. Raises one of UNREADABLE."""
    file.seek(0)
    head = file.read(HEAD)
    file.seek(0)
    if head.startswith(_GZIP):
        yield from _gunzip(file)
    elif head.startswith(_ZSTD):
        yield from _chunks(pa.CompressedInputStream(pa.PythonFile(file), "zstd"))
    else:
        yield from _chunks(file)


def messages(file: BinaryIO) -> Iterator[bytes]:
    """Messages, each behind its length, as the collector's file exporter writes what it packs.

    One that can't be had is a text that says so.
    """
    while head := file.read(_LENGTH.size):
        body = file.read(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else b""
        if len(head) < _LENGTH.size or len(body) < _LENGTH.unpack(head)[0]:
            yield b"the file breaks off within a message"
            return
        try:
            yield pa.CompressedInputStream(pa.BufferReader(body), "zstd").read()
        except OSError as error:
            yield f"a message can't be unpacked: {error}".encode()


def _chunks(stream: BinaryIO | pa.NativeFile) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK):
        yield chunk


def _gunzip(file: BinaryIO) -> Iterator[bytes]:
    """What a gzip file holds; unlike gzip's own reader, all of it that comes before a mistake."""
    unpacker = zlib.decompressobj(wbits=31)
    for packed in _chunks(file):
        rest = packed
        while rest:
            if unpacker.eof:  # another member follows
                unpacker = zlib.decompressobj(wbits=31)
            yield unpacker.decompress(rest)
            rest = unpacker.unused_data
    if not unpacker.eof:
        raise EOFError("it breaks off")
