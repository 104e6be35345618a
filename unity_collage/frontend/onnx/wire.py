"""Messages of Protocol Buffers as bytes: where their fields are, without a copy of what is in them.

The format: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass

_VARINT, BYTES = 0, 2
"""How a field is written: as a number, or as bytes behind their length."""
_FIXED = {1: 8, 5: 4}
"""The bytes of fields of the other wire types."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message: its bytes, and those of its content."""

    number: int
    wire: int
    start: int
    begin: int
    end: int
    value: int
    """The content of a number."""


def fields_of(data: mmap.mmap | bytes, at: int, end: int) -> Iterator[Field]:
    """The fields of the message in these bytes; raises ValueError or IndexError where they are not one."""
    while at < end:
        start = at
        key, at = _varint(data, at)
        number, wire, value = key >> 3, key & 7, 0
        if wire == _VARINT:
            begin = at
            value, at = _varint(data, at)
        elif wire == BYTES:
            length, begin = _varint(data, at)
            at = begin + length
        else:
            begin = at
            at += _FIXED.get(wire, end)
        if at > end:
            raise ValueError("a field ends behind its message")
        yield Field(number, wire, start, begin, at, value)


def _varint(data: mmap.mmap | bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def message_head(field: int, nbytes: int) -> bytes:
    """What is before a message, or a text, that is a field of another message."""
    text = bytes([field << 3 | BYTES])
    while nbytes > 0x7F:
        text += bytes([nbytes & 0x7F | 0x80])
        nbytes >>= 7
    return text + bytes([nbytes])
