"""Input files as rows of OTLP lines, whatever they are packed in.

Plain files are read by Spark's own JSON reader, in parallel also within a file. Packed ones are unpacked
in Python, a file at a time: gzip; zstd; and zstd as the OpenTelemetry Collector writes it, where each line
is packed on its own behind its length in four bytes.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_LENGTH = struct.Struct(">I")
# Names by which Spark's reader would unpack a file itself, and those that it could take for a pattern.
_PACKED_NAMES = (".gz", ".zst", ".bz2", ".lz4", ".snappy", ".deflate", ".zstd")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./=@,+-]+")
# Files that Spark's reader would pass over without a word.
_PASSED_OVER = re.compile(r"_.*|.*\._COPYING_")
# What reading a packed file may end with.
UNREADABLE = (OSError, EOFError, zlib.error)
TEXTS = "file string, line binary"
_CHUNK = 256 * 1024
_BATCH_BYTES = 8 * 1024 * 1024


def lines(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """A row per line: file, and the line in bytes. At least one file has to be given.

    What a packed file breaks off with, or holds that can't be unpacked, is a line of its own that says so.
    """
    packed = [path for path in files if needs_python(path)]
    plain = sorted({*files} - {*packed})
    parts = [_plain(spark, plain)] if plain else []
    parts += [_unpacked(spark, packed)] if packed else []
    return reduce(DataFrame.unionByName, parts)


def needs_python(path: Path) -> bool:
    """Whether the file is packed, by its first bytes, or has a name that Spark's reader would misread."""
    if not _PLAIN_PATH.fullmatch(str(path)) or _PASSED_OVER.fullmatch(path.name):
        return True
    if path.suffix.lower() in _PACKED_NAMES:
        return True
    with path.open("rb") as file:
        head = file.read(8)
    return is_packed(head)


def is_packed(head: bytes) -> bool:
    """Whether a file is packed that begins with these eight bytes."""
    return head.startswith((_GZIP, _ZSTD)) or head[4:].startswith(_ZSTD)


def _plain(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    found = spark.read.text([str(path) for path in files])
    path = sf.regexp_replace(sf.col("_metadata.file_path"), "^file:(//)?", "")
    return found.select(path.alias("file"), sf.col("value").cast("binary").alias("line"))


def _unpacked(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    paths = spark.createDataFrame([(str(path),) for path in files], "path string")
    spread = paths.repartition(len(files)) if len(files) > 1 else paths
    return spread.mapInArrow(_texts, TEXTS)


def _texts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for path in batch.column("path").to_pylist():
            for texts in batched(unpack(Path(path))):
                yield pa.RecordBatch.from_pydict({"file": [path] * len(texts), "line": texts})


def batched(texts: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Lines in lists of a size that suits a task."""
    batch: list[bytes] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def unpack(path: Path, *, skip: int = 0) -> Iterator[bytes]:
    """Lines of a packed file. One that breaks off, or isn't what it seems, ends with what was wrong.

    `skip` bytes of what it holds are left out.
    """
    with path.open("rb") as file:
        head = file.read(8)
        if head[4:].startswith(_ZSTD):
            file.seek(0)
            yield from _framed(file)
            return
        try:
            yield from _lines(_after(content(file), skip))
        except UNREADABLE as error:
            yield f"the file can't be unpacked to its end: {error}".encode()


def content(file: BinaryIO) -> Iterator[bytes]:
    """What a file holds, unpacked; not for messages behind their lengths. Raises one of UNREADABLE."""
    file.seek(0)
    head = file.read(8)
    file.seek(0)
    if head.startswith(_GZIP):
        yield from _gunzip(file)
    elif head.startswith(_ZSTD):
        yield from _chunks(pa.CompressedInputStream(pa.PythonFile(file), "zstd"))
    else:
        yield from _chunks(file)


def _after(chunks: Iterator[bytes], skip: int) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk[skip:]
        skip = max(0, skip - len(chunk))


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


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line for line in whole if line.strip())
    if rest.strip():
        yield rest


def _framed(file: BinaryIO) -> Iterator[bytes]:
    """Messages, each behind its length, as the collector's file exporter writes what it packs."""
    while head := file.read(_LENGTH.size):
        body = file.read(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else b""
        if len(head) < _LENGTH.size or len(body) < _LENGTH.unpack(head)[0]:
            yield b"the file breaks off within a message"
            return
        try:
            message = pa.CompressedInputStream(pa.BufferReader(body), "zstd").read()
        except OSError as error:
            yield f"a message can't be unpacked: {error}".encode()
            continue
        yield from (line for line in message.split(b"\n") if line.strip())
