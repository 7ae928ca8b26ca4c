"""The few rules of protobuf's wire format that laying out a request by hand takes.

Numbers of a data point all have a fixed width, so once a request is laid out, new times and values
are written over the old ones in place, and nothing is serialised again.
"""

from __future__ import annotations

import struct

VARINT, FIXED64, BYTES = 0, 1, 2  # wire types


def tag(field: int, wire_type: int) -> int:
    """What stands before a field's content. One byte: for fields up to 15."""
    return field << 3 | wire_type


def varint(number: int) -> bytes:
    """A number of 0 or more, seven bits a byte."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def heading(field: int, length: int) -> bytes:
    """What stands before `length` bytes that are a text, message or packed list."""
    return bytes((tag(field, BYTES),)) + varint(length)


def message(field: int, content: bytes) -> bytes:
    """A field that is a text, message or packed list."""
    return heading(field, len(content)) + content


def enum(field: int, number: int) -> bytes:
    """A field that is a small number: an enumeration's or a truth value."""
    return bytes((tag(field, VARINT),)) + varint(number)


def doubles(field: int, numbers: tuple[float, ...]) -> bytes:
    """A field that is a list of doubles; nothing at all for an empty one."""
    return message(field, struct.pack(f"<{len(numbers)}d", *numbers)) if numbers else b""
