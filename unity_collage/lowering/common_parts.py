"""Shares constants between the modules of a program, so that its file has each weight once.

Each library has a blob with the weights of its kernels, and TVM's virtual machine has those of all other kernels. If
kernels of several backends read one weight, as in variants of a model, each of them has it. Here the blobs are
merged, and modules get new offsets for their constants. If a constant of the virtual machine is in the blob, a note
of its place replaces it: it is copied from there when the program is loaded, even if it is stored in panels
(:mod:`..schedule.panels`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from struct import Struct
from typing import Any

import numpy as np

from .elf import Blob

VIRTUAL_MACHINE = "relax.VMExecutable"

_ALIGNED = 64
_LENGTH = Struct("<Q")
_TENSOR, _EXTENT = Struct("<QQiiiBBH"), Struct("<q")
"""How TVM writes a tensor: a magic number, a reserved one, kind and number of the device, rank, and the type's code,
bits and lanes. The extents, the number of bytes, and the bytes follow.
"""
_MAGIC = re.compile(re.escape(_LENGTH.pack(0xDD5E40F096B4A13F)))
_LEAST_BYTES, _PREFIX = 4096, 16
"""Smaller tensors stay where they are. Equal tensors are searched among those with the same first bytes."""


@dataclass(slots=True)
class CommonBlob:
    """Constants of libraries, each distinct content once and aligned."""

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


def programs_in(kind: str, saved: Blob) -> Any:
    """The text of a saved module of programs for a library; None for other modules."""
    if not kind.startswith("collage."):
        return None
    (length,) = _LENGTH.unpack(saved[: _LENGTH.size].tobytes())
    text = json.loads(saved[_LENGTH.size : _LENGTH.size + length].tobytes())
    return text if "programs" in text else None


def without_blob(text: Any, saved: Blob, common: CommonBlob) -> Blob:
    """The saved module with programs that find their constants in ``common``."""
    (length,) = _LENGTH.unpack(saved[: _LENGTH.size].tobytes())
    blob = saved[_LENGTH.size + length :]
    for constant in (each for program in text["programs"] for each in program["constants"]):
        begin = constant["offset"]
        constant["offset"] = common.add(blob[begin : begin + constant["nbytes"]])
    code = json.dumps(text, allow_nan=False, separators=(",", ":")).encode()
    code += b" " * (-(_LENGTH.size + len(code)) % _ALIGNED)
    return np.frombuffer(_LENGTH.pack(len(code)) + code, np.int8)


def cut(saved: Blob, common: CommonBlob, offset: int) -> tuple[list[Blob], list[dict[str, Any]]]:
    """The bytes of a saved executable that ``common`` does not have, and all its bytes in pieces.

    The former begin at ``offset``, without gaps.
    """
    own: list[Blob] = []
    pieces: list[dict[str, Any]] = []

    def keep(rest: Blob) -> None:
        pieces.append(_piece(offset + sum(part.nbytes for part in own), rest.nbytes))
        own.append(rest)

    at = 0
    for begin, nbytes, shape in _tensors(saved):
        piece = common.piece(saved[begin : begin + nbytes], shape) if begin >= at else None
        if piece is not None:
            keep(saved[at:begin])
            pieces.append(piece)
            at = begin + nbytes
    keep(saved[at:])
    return own, pieces


def _tensors(saved: Blob) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Where the bytes of large tensors begin, how many there are, and the shape.

    Other bytes may look like the beginning of a tensor; the result is still an exact copy.
    """
    for match in _MAGIC.finditer(saved.data):
        at = match.start() + _TENSOR.size
        if at > saved.nbytes:
            return
        *_, rank, _code, bits, lanes = _TENSOR.unpack(saved[match.start() : at].tobytes())
        begin = at + _EXTENT.size * (rank + 1)
        if not 0 < rank < 16 or begin > saved.nbytes:
            continue
        *shape, nbytes = (number for (number,) in _EXTENT.iter_unpack(saved[at:begin].tobytes()))
        is_whole = nbytes == prod(shape) * bits * lanes // 8 and begin + nbytes <= saved.nbytes
        if is_whole and nbytes >= _LEAST_BYTES:
            yield begin, nbytes, tuple(shape)
