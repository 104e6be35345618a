"""Writes the imports of a program, its constants and library programs, as an object file.

TVM makes these bytes a constant of LLVM and compiles it, which copies all weights several times. Here TVM writes the
program with marks in place of its constants (``base/pack_imports.cc``), and these are written once, without a copy.

TVM's loader copies the bytes of each module twice before the module copies its constants out of them. So large modules
of a shared library are apart, in a segment of their own. The loader finds a note in their place, which
``base/library_section.cc`` reads.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np
from tvm.runtime import Module

from ..ffi import tvm_ffi
from ..runtime.libraries import load_base
from ..runtime.virtual_machine import STARTING
from .common_parts import (
    VIRTUAL_MACHINE,
    CommonBlob,
    Content,
    Saved,
    blobs_of,
    nbytes_of,
    noted,
    programs_in,
    without_blob,
)
from .elf import Blob, Part, append, machine_of, write

_SYMBOL = b"__tvm_ffi__library_bin"
"""The symbol where TVM looks for the imports of a library: their length in bytes, then the imports."""
_APART = b"__collage__modules_"
"""Prefix of the symbol of separate parts. A digest follows, since other libraries of a process have their own."""
_NOTE = "collage.parts"
"""The kind of a module that says where the parts of another one are."""
_LIBRARY = "_lib"
"""The kind of the module that is the library itself."""
_LARGE_BYTES = 1 << 16
"""Modules of at least this size are apart."""
_ALIGNED = 64
_LENGTH = Struct("<Q")

_MARK = bytes.fromhex("b7e151628aed2a6abf7158809cf4f3c762e7160f38b4da56")
"""Stands, before the number of a constant, in its place: digits of e, as no program has them by chance."""
_MARKS = re.compile(re.escape(_MARK) + b"(.{8})", re.DOTALL)
_TENSOR, _EXTENT = Struct("<QQiiiBBH"), Struct("<q")
"""How TVM writes a tensor: a magic number, a reserved one, kind and number of the device, rank, and the type's code,
bits and lanes. The extents, the number of bytes, and the bytes follow.
"""


def packed_imports(module: Module, _is_system_library: bool, prefix: str, folder: str) -> str:
    """The path of the object file, in ``folder``, with the imports of ``module``; called by ``export_library``.

    It is for the processor of the object files that are in the folder.
    """
    tree, modules = _modules_of(_packed(module))
    return _written([_imports(prefix, tree, modules)], prefix, folder)


@dataclass(slots=True)
class ImportsApart:
    """Writes the imports of a program without its large modules, and these behind the library that a linker makes."""

    _symbol: bytes = b""
    _behind: list[Blob] = field(default_factory=list[Blob])

    def packed(self, module: Module, _is_system_library: bool, prefix: str, folder: str) -> str:
        """:func:`packed_imports` without large modules."""
        packed = _packed(module)
        tree, modules = _modules_of(packed)
        large = [each for each in modules if nbytes_of(each.saved) >= _LARGE_BYTES]
        if large:
            self._symbol = _APART + _digest(packed).encode()
            self._behind, notes = _apart(large, self._symbol.decode())
            for each, note in zip(large, notes, strict=True):
                each.name, each.saved = _NOTE, [_bytes(json.dumps(note).encode())]
        # The symbol gets another address when the modules are there.
        symbol = [Part(self._symbol, [_bytes(bytes(_ALIGNED))])] if large else []
        return _written([_imports(prefix, tree, modules), *symbol], prefix, folder)

    def append(self, library: Path) -> None:
        """Write the large modules behind ``library``, which the object file was linked to."""
        if self._behind:
            append(library, self._symbol, self._behind)


def _imports(prefix: str, tree: Sequence[Blob], modules: Sequence[_Packed]) -> Part:
    blobs = [*tree, *(blob for each in modules for blob in each.blobs())]
    return Part(prefix.encode() + _SYMBOL, [_length_of(blobs), *blobs])


def _packed(module: Module) -> list[Any]:
    """What TVM writes of the imports, with marks; then the bytes, type, shape and place of each constant."""
    load_base()
    with STARTING:
        return list(tvm_ffi.get_global_func("collage.runtime.pack_imports")(module, _MARK))


@dataclass(slots=True)
class _Packed:
    """A module among the imports: its kind, its bytes with marks, and all of its bytes; the library itself has none."""

    name: str
    marked: Blob
    saved: Saved

    def blobs(self) -> list[Blob]:
        """The module as TVM writes it."""
        saved = blobs_of(self.saved)
        length = [] if self.name == _LIBRARY else [_length_of(saved)]
        return [_sized(self.name.encode()), *length, *saved]


def _modules_of(packed: Sequence[Any]) -> tuple[list[Blob], list[_Packed]]:
    """What comes before the modules in the imports, and the modules.

    The format is that of TVM's ``library_module.cc``: the length of the rest; two arrays of numbers that say which
    module imports which; and for each module its kind and, unless it is the library itself, its bytes.
    """
    reader = _Reader(_numpy(packed[0]), _LENGTH.size)
    tree = [reader.sized(8), reader.sized(8)]
    modules: list[_Packed] = []
    while not reader.is_at_end():
        name = _text(reader.sized(1)).decode()
        marked = _bytes(b"") if name == _LIBRARY else reader.sized(1)[_LENGTH.size :]
        modules.append(_Packed(name, marked, _unmarked(marked, packed[1:], name)))
    return tree, modules


def _unmarked(marked: Blob, contents: Sequence[Any], kind: str) -> Saved:
    """A saved module with its constants in place of their marks."""
    parts: list[Blob | Content] = []
    at = 0
    for match in _MARKS.finditer(marked.data):
        (number,) = _LENGTH.unpack(match[1])
        if number >= len(contents):
            continue  # a constant that looks like a mark
        data, dtype, shape, place = contents[number]
        content = Content(
            _numpy(data), (dtype.type_code, dtype.bits, dtype.lanes), tuple(map(int, shape)), int(place)
        )
        begin, head = match.start(), []
        if kind == VIRTUAL_MACHINE:  # the mark is a tensor with one axis
            begin -= _TENSOR.size + 2 * _EXTENT.size
            start = _TENSOR.unpack(marked[begin : begin + _TENSOR.size].tobytes())[:4]
            numbers = (*content.shape, content.data.nbytes)
            text = _TENSOR.pack(*start, len(content.shape), *content.dtype)
            head = [_bytes(text + b"".join(map(_EXTENT.pack, numbers)))]
        parts += [marked[at:begin], *head, content]
        at = match.end()
    return [*parts, marked[at:]]


def _apart(modules: Sequence[_Packed], symbol: str) -> tuple[list[Blob], list[dict[str, Any]]]:
    """The content of ``symbol``, and a note for each of the ``modules``. Their common parts come first."""
    common = CommonBlob()
    texts = [programs_in(each.name, each.saved) for each in modules]
    bare = [
        None if text is None else without_blob(text, each.saved, common)
        for text, each in zip(texts, modules, strict=True)
    ]
    # After the libraries: panels are found among their matrices, not the other way round.
    contents = [
        [noted(part, common) for part in each.saved if isinstance(part, Content)]
        if each.name == VIRTUAL_MACHINE
        else []
        for each in modules
    ]
    parts, end, notes = list(common.parts), common.nbytes, list[dict[str, Any]]()
    for each, program, inside in zip(modules, bare, contents, strict=True):
        own = blobs_of(each.saved) if program is None else [program]
        note: dict[str, Any] = {"kind": each.name, "symbol": symbol, "offset": end}
        if program is not None:
            note["blob_nbytes"] = common.nbytes
        elif inside:
            own, note["contents"] = [each.marked], inside
        nbytes = note["nbytes"] = sum(blob.nbytes for blob in own)
        parts += [*own, _bytes(bytes(-nbytes % _ALIGNED))]
        end += nbytes + -nbytes % _ALIGNED
        notes.append(note)
    return parts, notes


def _written(parts: Sequence[Part], prefix: str, folder: str) -> str:
    path = Path(folder) / f"{prefix}imports.o"
    first = next(iter(sorted(Path(folder).glob("lib*.o"))), None)
    write(path, parts, machine_of(Path("/proc/self/exe") if first is None else first))
    return str(path)


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


def _length_of(parts: Sequence[Blob]) -> Blob:
    return _bytes(_LENGTH.pack(sum(part.nbytes for part in parts)))


def _numpy(tensor: Any) -> Blob:
    """The bytes of a row of bytes, which are not copied."""
    return np.from_dlpack(tensor).view(np.int8)


def _digest(packed: Sequence[Any]) -> str:
    digest = hashlib.sha256(_numpy(packed[0]).data)
    for data, dtype, shape, place in packed[1:]:
        digest.update(_numpy(data).data)
        digest.update(f"{dtype} {tuple(shape)} {place}".encode())
    return digest.hexdigest()[:32]
