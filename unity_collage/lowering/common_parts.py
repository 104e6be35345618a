"""Shares constants between the modules of a program, so that its file has each weight once.

Each library has a blob with the weights of its kernels, and TVM's virtual machine has those of all other kernels. If
kernels of several backends read one weight, as in variants of a model, each of them has it. Here the blobs are
merged, and modules get new offsets for their constants. The large constants of the virtual machine are there too: they
are copied from there when the program is loaded. One that is stored in panels (:mod:`..schedule.panels`) is made of the
matrix, if a library has that.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from struct import Struct
from typing import Any

import numpy as np

from .elf import Blob

VIRTUAL_MACHINE = "relax.VMExecutable"

_ALIGNED = 64
_LENGTH = Struct("<Q")
_PREFIX = 16
"""Equal contents are searched among those with the same first bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """A constant that is not copied into the bytes of its module."""

    data: Blob
    dtype: tuple[int, int, int]
    """Code, bits and lanes of its type, as DLPack has them."""
    shape: tuple[int, ...]
    place: int
    """Its number among the constants of an executable."""


Saved = Sequence[Blob | Content]
"""All bytes of a saved module, in order."""


@dataclass(slots=True)
class CommonBlob:
    """Constants of all modules, each distinct content once and aligned."""

    parts: list[Blob] = field(default_factory=list)
    nbytes: int = 0
    _known: dict[tuple[int, bytes], list[tuple[int, Blob]]] = field(default_factory=dict)
    """Offsets and contents by length and first bytes."""

    def add(self, content: Blob) -> int:
        """The offset of ``content``, which is added if it is new."""
        for offset, known in self._like(content):
            if np.array_equal(known, content):
                return offset
        offset = self.nbytes
        self._like(content).append((offset, content))
        self.parts += [content, np.zeros(-content.nbytes % _ALIGNED, np.int8)]
        self.nbytes += content.nbytes + -content.nbytes % _ALIGNED
        return offset

    def piece(self, content: Blob, shape: Sequence[int]) -> dict[str, Any] | None:
        """Where the bytes of a tensor are, as ``base/library_section.cc`` reads it; None if they are not here.

        They may be the panels of a matrix: ``panels[i, k, j] = matrix[k, i * width + j]``.
        """
        for offset, known in self._like(content):
            if np.array_equal(known, content):
                return _piece(offset, content.nbytes)
            count, inner = (shape[0], prod(shape[1:-1])) if len(shape) > 2 else (1, 1)
            width = content.nbytes // (count * inner)
            turned = known.reshape(inner, count, width).transpose(1, 0, 2)
            if count > 1 and np.array_equal(turned, content.reshape(count, inner, width)):
                return _piece(offset, width, [count, inner], [width, count * width])
        return None

    def _like(self, content: Blob) -> list[tuple[int, Blob]]:
        return self._known.setdefault((content.nbytes, content[:_PREFIX].tobytes()), [])


def _piece(
    offset: int, nbytes: int, counts: Sequence[int] = (), strides: Sequence[int] = ()
) -> dict[str, Any]:
    return {"offset": offset, "nbytes": nbytes, "counts": list(counts), "strides": list(strides)}


def nbytes_of(saved: Saved) -> int:
    """The length of a saved module."""
    return sum(part.nbytes for part in blobs_of(saved))


def blobs_of(saved: Saved) -> list[Blob]:
    """All bytes of a saved module, in order."""
    return [part.data if isinstance(part, Content) else part for part in saved]


def programs_in(kind: str, saved: Saved) -> Any:
    """The text of a saved module of programs for a library; None for other modules."""
    if not kind.startswith("collage."):
        return None
    text = json.loads(_text_and_blob(saved)[0].tobytes())
    return text if "programs" in text else None


def without_blob(text: Any, saved: Saved, common: CommonBlob) -> Blob:
    """The saved module with programs that find their constants in ``common``."""
    _, blob = _text_and_blob(saved)
    for constant in (each for program in text["programs"] for each in program["constants"]):
        begin = constant["offset"]
        constant["offset"] = common.add(blob[begin : begin + constant["nbytes"]])
    code = json.dumps(text, allow_nan=False, separators=(",", ":")).encode()
    code += b" " * (-(_LENGTH.size + len(code)) % _ALIGNED)
    return np.frombuffer(_LENGTH.pack(len(code)) + code, np.int8)


def _text_and_blob(saved: Saved) -> tuple[Blob, Blob]:
    """The two parts of a saved module of ours: base/saved_module.h describes it."""
    first, *rest = blobs_of(saved)
    (length,) = _LENGTH.unpack(first[: _LENGTH.size].tobytes())
    end = _LENGTH.size + length
    return first[_LENGTH.size : end], rest[0] if rest else first[end:]


def noted(content: Content, common: CommonBlob) -> dict[str, Any]:
    """Where the runtime finds a constant of an executable: it is added to ``common`` if it is new."""
    found = common.piece(content.data, content.shape)
    if found is None:
        found = _piece(common.add(content.data), content.data.nbytes)
    return {**found, "place": content.place, "dtype": list(content.dtype), "shape": list(content.shape)}
