"""What a program imports, its constants and library programs, as an object file.

TVM makes a constant of LLVM's of these bytes and compiles it, which copies all weights several times. Here they are
written behind the headers of an object file as they are (System V ABI, chapter 4:
https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.intro.html).
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np
import tvm_ffi
from tvm.runtime import Module

_SYMBOL = b"__tvm_ffi__library_bin"
"""Where TVM looks for the imports of a library: their length in bytes, and they themselves."""
_HEADER = Struct("<16sHHIQQQIHHHHHH")
_SECTION = Struct("<IIQQQQIIQQ")
_ENTRY = Struct("<IBBHQQ")
"""An entry of the table of symbols."""

_PROGBITS, _SYMTAB, _STRTAB = 1, 2, 3
_ALLOC, _LARGE = 0x2, 0x10000000
"""Flags of sections. A large one of x86-64 stands behind all others, so that code still reaches its data in 32 bits."""
_GLOBAL_OBJECT = 0x11
_X86_64 = 62
_ALIGNED = 64


def packed_imports(module: Module, _is_system_library: bool, prefix: str, folder: str) -> str:
    """The path of the object file, in ``folder``, with the imports of ``module``: ``export_library`` asks for it.

    It is for the processor of the object files that are in the folder.
    """
    blob = tvm_ffi.get_global_func("runtime.ModulePackImportsToTensor")(module).numpy()
    path = Path(folder) / f"{prefix}imports.o"
    first = next(iter(sorted(Path(folder).glob("lib*.o"))), None)
    _write(path, blob, prefix.encode() + _SYMBOL, _X86_64 if first is None else _machine_of(first))
    return str(path)


def _machine_of(path: Path) -> int:
    """The processor of an object file, as ELF numbers it."""
    with path.open("rb") as file:
        return _HEADER.unpack(file.read(_HEADER.size))[2]


def _write(path: Path, blob: np.ndarray[Any, Any], symbol: bytes, machine: int) -> None:
    names = [
        b"",
        b".lrodata" if machine == _X86_64 else b".rodata",
        b".symtab",
        b".strtab",
        b".note.GNU-stack",
    ]
    name_table = b"\0".join(names) + b"\0"
    symbols = _ENTRY.pack(0, 0, 0, 0, 0, 0)
    symbols += _ENTRY.pack(1, _GLOBAL_OBJECT, 0, 1, 0, blob.nbytes)
    # One table of strings serves the names of sections and of symbols.
    strings = b"\0" + symbol + b"\0" + name_table
    begin = 1 + len(symbol) + 1
    name_at = [0] + [begin + name_table.index(b"\0" + name + b"\0") + 1 for name in names[1:]]

    data = _HEADER.size
    after = data + blob.nbytes
    symbols_at = after + -after % 8
    strings_at = symbols_at + len(symbols)
    sections_at = strings_at + len(strings)
    sections_at += -sections_at % 8
    flags = _ALLOC | (_LARGE if machine == _X86_64 else 0)
    sections = [
        _SECTION.pack(0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        _SECTION.pack(name_at[1], _PROGBITS, flags, 0, data, blob.nbytes, 0, 0, _ALIGNED, 0),
        _SECTION.pack(name_at[2], _SYMTAB, 0, 0, symbols_at, len(symbols), 3, 1, 8, _ENTRY.size),
        _SECTION.pack(name_at[3], _STRTAB, 0, 0, strings_at, len(strings), 0, 0, 1, 0),
        _SECTION.pack(name_at[4], _PROGBITS, 0, 0, after, 0, 0, 0, 1, 0),  # the stack need not be executable
    ]
    magic = b"\x7fELF\x02\x01\x01" + bytes(9)  # 64 bits, little-endian, version 1, System V
    header = _HEADER.pack(
        magic, 1, machine, 1, 0, 0, sections_at, 0, _HEADER.size, 0, 0, _SECTION.size, len(sections), 3
    )
    with path.open("wb") as file:
        file.write(header)
        file.write(blob.data)
        file.write(bytes(symbols_at - after) + symbols + strings)
        file.write(bytes(sections_at - strings_at - len(strings)) + b"".join(sections))
