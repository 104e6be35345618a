"""Writes the imports of a program, its constants and library programs, as an object file.

TVM makes these bytes a constant of LLVM and compiles it, which copies all weights several times. Here they are
written without a copy.

TVM's loader copies the bytes of each module twice before the module copies its constants out of them. So large
modules are stored separately, and the loader finds a note in their place, which ``base/library_section.cc`` reads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np
import tvm_ffi
from tvm.runtime import Module

from .common_parts import VIRTUAL_MACHINE, CommonBlob, cut, programs_in, without_blob
from .elf import X86_64, Blob, Part, machine_of, write

_SYMBOL = b"__tvm_ffi__library_bin"
"""The symbol where TVM looks for the imports of a library: their length in bytes, then the imports."""
_APART = b"__collage__modules_"
"""Prefix of the symbol of separate parts. A digest follows, since other libraries of a process have their own."""
_NOTE = b"collage.parts"
"""The kind of a module that says where the parts of another one are."""
_LARGE_BYTES = 1 << 16
"""Modules of at least this size are stored separately."""
_ALIGNED = 64
_LENGTH = Struct("<Q")


def packed_imports(module: Module, _is_system_library: bool, prefix: str, folder: str) -> str:
    """The path of the object file, in ``folder``, with the imports of ``module``; called by ``export_library``.

    It is for the processor of the object files that are in the folder.
    """
    return _packed(module, prefix, folder, apart=False)


def imports_apart(module: Module, _is_system_library: bool, prefix: str, folder: str) -> str:
    """The same with large modules stored separately, in sections that the dynamic loader maps."""
    return _packed(module, prefix, folder, apart=True)


def _packed(module: Module, prefix: str, folder: str, apart: bool) -> str:
    blob = np.from_dlpack(tvm_ffi.get_global_func("runtime.ModulePackImportsToTensor")(module))
    path = Path(folder) / f"{prefix}imports.o"
    first = next(iter(sorted(Path(folder).glob("lib*.o"))), None)
    symbol = prefix.encode() + _SYMBOL
    parts = _with_notes(symbol, blob) if apart else [Part(symbol, [blob])]
    write(path, parts, X86_64 if first is None else machine_of(first))
    return str(path)


def _with_notes(symbol: bytes, blob: Blob) -> list[Part]:
    """The imports with notes in place of large modules, and these modules, if there are any.

    The format is that of TVM's ``library_module.cc``: the length of the rest; two arrays of numbers that say which
    module imports which; and for each module its kind and, unless it is the library itself, its bytes.
    """
    reader = _Reader(blob, _LENGTH.size)
    pieces: list[Blob] = [reader.sized(8), reader.sized(8)]
    large: list[tuple[int, str, Blob]] = []
    while not reader.is_at_end():
        kind = reader.sized(1)
        pieces.append(kind)
        if _text(kind) == b"_lib":
            continue
        saved = reader.sized(1)
        if saved.nbytes >= _LARGE_BYTES:
            large.append((len(pieces) - 1, _text(kind).decode(), saved[_LENGTH.size :]))
            pieces[-1] = _sized(_NOTE)
        pieces.append(saved)
    symbol_apart = _APART + _digest(blob).encode()
    apart, notes = _apart([(kind, saved) for _, kind, saved in large], symbol_apart.decode())
    for (place, _, _), note in zip(large, notes, strict=True):
        pieces[place + 1] = _sized(json.dumps(note).encode())
    length = _bytes(_LENGTH.pack(sum(piece.nbytes for piece in pieces)))
    rest = [Part(symbol_apart, apart)] if large else []
    return [Part(symbol, [length, *pieces]), *rest]


def _apart(modules: Sequence[tuple[str, Blob]], symbol: str) -> tuple[list[Blob], list[dict[str, Any]]]:
    """The content of ``symbol``, and a note for each of the saved ``modules`` (kind and bytes).

    Their common parts come first.
    """
    common = CommonBlob()
    texts = [programs_in(kind, saved) for kind, saved in modules]
    bare = [
        saved if text is None else without_blob(text, saved, common)
        for text, (_, saved) in zip(texts, modules, strict=True)
    ]
    parts, end, notes = list(common.parts), common.nbytes, list[dict[str, Any]]()
    for (kind, _), text, saved in zip(modules, texts, bare, strict=True):
        note: dict[str, Any] = {"kind": kind, "symbol": symbol, "offset": end, "nbytes": saved.nbytes}
        own = [saved]
        if text is not None:
            note["blob_nbytes"] = common.nbytes
        elif kind == VIRTUAL_MACHINE and common.nbytes:
            own, note["pieces"] = cut(saved, common, end)
        nbytes = sum(part.nbytes for part in own)
        parts += [*own, _bytes(bytes(-nbytes % _ALIGNED))]
        end += nbytes + -nbytes % _ALIGNED
        notes.append(note)
    return parts, notes


class _Reader:
    """Reads arrays that follow their length."""

    def __init__(self, blob: Blob, begin: int):
        self._blob, self._at = blob, begin

    def is_at_end(self) -> bool:
        return self._at == self._blob.nbytes

    def sized(self, item_nbytes: int) -> Blob:
        """The next array with its length, which counts items."""
        (count,) = _LENGTH.unpack(self._blob[self._at : self._at + _LENGTH.size].tobytes())
        begin, self._at = self._at, self._at + _LENGTH.size + count * item_nbytes
        return self._blob[begin : self._at]


def _text(sized: Blob) -> bytes:
    return sized[_LENGTH.size :].tobytes()


def _sized(text: bytes) -> Blob:
    return _bytes(_LENGTH.pack(len(text)) + text)


def _bytes(text: bytes) -> Blob:
    return np.frombuffer(text, np.int8)


def _digest(blob: Blob) -> str:
    return hashlib.sha256(blob.data).hexdigest()[:32]
