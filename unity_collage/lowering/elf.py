"""Writes data as an object file for a linker, and behind a library that is linked already, both without a copy.

After System V's ABI, chapters 4 and 5: https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.intro.html.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np

X86_64 = 62
"""ELF's number of a processor."""

_HEADER = Struct("<16sHHIQQQIHHHHHH")
_SECTION = Struct("<IIQQQQIIQQ")
_ENTRY = Struct("<IBBHQQ")
"""An entry of the table of symbols."""
_SEGMENT = Struct("<IIQQQQQQ")
"""An entry of the table of segments, which the dynamic loader maps."""

_PROGBITS, _SYMTAB, _STRTAB, _DYNSYM = 1, 2, 3, 11
_LOAD, _TABLE, _READABLE = 1, 6, 4
_ALLOC, _LARGE = 0x2, 0x10000000
"""Flags of sections.

A large section of x86-64 comes after all others, so that code still reaches its data in 32 bits.
"""
_GLOBAL_OBJECT = 0x11
_PAGE = 4096
_SEGMENT_ALIGNED = 1 << 16
"""The largest page of the processors that run programs."""

Blob = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes that a symbol names, in pieces that are written one after the other; a part begins with a page."""

    symbol: bytes
    pieces: Sequence[Blob]

    @property
    def nbytes(self) -> int:
        """The length of all pieces."""
        return sum(piece.nbytes for piece in self.pieces)


def machine_of(path: Path) -> int:
    """The processor of an object file or a program, as ELF numbers it."""
    with path.open("rb") as file:
        return _HEADER.unpack(file.read(_HEADER.size))[2]


def write(path: Path, parts: Sequence[Part], machine: int) -> None:
    """Write an object file with read-only data."""
    names = [
        b"",
        b".lrodata" if machine == X86_64 else b".rodata",
        b".symtab",
        b".strtab",
        b".note.GNU-stack",
    ]
    strings, at = _table([*names, *(part.symbol for part in parts)])
    symbols, nbytes = [_ENTRY.pack(0, 0, 0, 0, 0, 0)], 0
    for part in parts:
        symbols.append(_ENTRY.pack(at[part.symbol], _GLOBAL_OBJECT, 0, 1, nbytes, part.nbytes))
        nbytes += part.nbytes + -part.nbytes % _PAGE
    table = b"".join(symbols)
    symbols_at = _PAGE + nbytes
    strings_at = symbols_at + len(table)
    sections_at = strings_at + len(strings) + -(strings_at + len(strings)) % 8
    flags = _ALLOC | (_LARGE if machine == X86_64 else 0)
    sections = [
        _SECTION.pack(0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        _SECTION.pack(at[names[1]], _PROGBITS, flags, 0, _PAGE, nbytes, 0, 0, _PAGE, 0),
        _SECTION.pack(at[names[2]], _SYMTAB, 0, 0, symbols_at, len(table), 3, 1, 8, _ENTRY.size),
        _SECTION.pack(at[names[3]], _STRTAB, 0, 0, strings_at, len(strings), 0, 0, 1, 0),
        _SECTION.pack(
            at[names[4]], _PROGBITS, 0, 0, symbols_at, 0, 0, 0, 1, 0
        ),  # the stack need not be executable
    ]
    magic = b"\x7fELF\x02\x01\x01" + bytes(9)  # 64 bits, little-endian, version 1, System V
    header = _HEADER.pack(
        magic, 1, machine, 1, 0, 0, sections_at, 0, _HEADER.size, 0, 0, _SECTION.size, len(sections), 3
    )
    with path.open("wb") as file:
        file.write(header + bytes(_PAGE - len(header)))
        for part in parts:
            for piece in part.pieces:
                file.write(piece.data)
            file.write(bytes(-part.nbytes % _PAGE))
        file.write(table + strings)
        file.write(bytes(sections_at - strings_at - len(strings)) + b"".join(sections))


def append(path: Path, symbol: bytes, pieces: Sequence[Blob]) -> None:
    """Write data behind the linked library at ``path``, in a segment of its own, which ``symbol`` names.

    The library defines the symbol already; RuntimeError if not. A linker would copy the data, and the table of segments
    has no room for one more. So the table is written again, behind the data and in the same segment.
    """
    with path.open("r+b") as file:
        library = file.read()
        entry_at, entry = _symbol_in(library, symbol)
        header = list(_HEADER.unpack_from(library))
        table_at, count = header[5], header[10]
        segments = [_SEGMENT.unpack_from(library, table_at + i * _SEGMENT.size) for i in range(count)]
        end = max(at + nbytes for kind, _, _, at, _, _, nbytes, _ in segments if kind == _LOAD)
        begin = len(library) + -len(library) % _SEGMENT_ALIGNED
        address = end + -end % _SEGMENT_ALIGNED
        file.write(bytes(begin - len(library)))
        for piece in pieces:
            file.write(piece.data)
        nbytes = sum(piece.nbytes for piece in pieces)
        file.write(bytes(-nbytes % 8))
        header[5], header[10] = file.tell(), count + 1
        whole = file.tell() + (count + 1) * _SEGMENT.size - begin
        # Segments are sorted by address.
        last = max(i for i, segment in enumerate(segments) if segment[0] == _LOAD)
        added = (_LOAD, _READABLE, begin, address, address, whole, whole, _SEGMENT_ALIGNED)
        segments.insert(last + 1, added)
        if segments[0][0] == _TABLE:  # some linkers note where the table is
            size = len(segments) * _SEGMENT.size
            at = address + header[5] - begin
            segments[0] = (_TABLE, _READABLE, header[5], at, at, size, size, 8)
        file.write(b"".join(_SEGMENT.pack(*segment) for segment in segments))
        file.seek(entry_at)
        file.write(_ENTRY.pack(*entry[:4], address, nbytes))
        file.seek(0)
        file.write(_HEADER.pack(*header))


def _symbol_in(library: bytes, name: bytes) -> tuple[int, tuple[int, ...]]:
    """Where the entry of a symbol is among those for the dynamic loader, and the entry."""
    header = _HEADER.unpack_from(library)
    sections = [_SECTION.unpack_from(library, header[6] + i * _SECTION.size) for i in range(header[12])]
    for _, _, _, _, at, nbytes, strings, *_ in (each for each in sections if each[1] == _DYNSYM):
        names_at = sections[strings][4]
        for entry_at in range(at, at + nbytes, _ENTRY.size):
            entry = _ENTRY.unpack_from(library, entry_at)
            if library.startswith(name + b"\0", names_at + entry[0]):
                return entry_at, entry
    raise RuntimeError(f"the library has no symbol {name.decode()}")


def _table(texts: Sequence[bytes]) -> tuple[bytes, dict[bytes, int]]:
    """A table of strings, and where each of them is."""
    table, at = b"\0", {b"": 0}
    for text in texts:
        if text not in at:
            at[text] = len(table)
            table += text + b"\0"
    return table, at
