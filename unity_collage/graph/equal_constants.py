"""Equal constants: those of several functions become one, in memory and for code that finds shared constants.

A rewrite that folds constants, such as a transposed weight, makes a constant of its own for each variant of a model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax

Functions = Mapping[ir.GlobalVar, ir.BaseFunc]

_structural_map: Any = tvm_ffi.structural_map  # type: ignore[reportUnknownMemberType]

_SMALL_BYTES = 4096
"""Constants below this size are not compared: a digest costs more than their memory."""

_Name = tuple[object, ...]
"""The type of a constant and a digest of its bytes."""


@dataclass(slots=True)
class EqualConstants:
    """Finds the first of equal constants; each is read once."""

    _first: dict[_Name, ir.GenericConst] = field(default_factory=dict[_Name, ir.GenericConst])
    _known: dict[ir.GenericConst, ir.GenericConst] = field(
        default_factory=dict[ir.GenericConst, ir.GenericConst]
    )
    """The representative of each constant that was seen."""

    def first(self, constant: ir.GenericConst) -> ir.GenericConst:
        """The first constant that was asked for and is equal to this one."""
        if constant not in self._known:
            self._known[constant] = self._first.setdefault(_name_of(constant), constant)
        return self._known[constant]


def with_equal_shared(after: Functions, before: Functions) -> dict[ir.GlobalVar, ir.BaseFunc]:
    """Functions ``after`` a rewrite, with large equal constants that are new since ``before`` merged into one."""
    made = {gvar: _large(func) for gvar, func in after.items()}
    old = set[ir.GenericConst]().union(*map(_large, before.values()))
    fresh = {gvar: constants - old for gvar, constants in made.items() if constants - old}
    if len(fresh) < 2:
        return dict(after)
    equal, new = EqualConstants(), set[ir.GenericConst]().union(*fresh.values())

    def shared(constant: ir.GenericConst) -> ir.GenericConst:
        return equal.first(constant) if constant in new else constant

    return {
        gvar: _structural_map(func, (ir.GenericConst, shared)) if gvar in fresh else func
        for gvar, func in after.items()
    }


def _large(func: ir.BaseFunc) -> set[ir.GenericConst]:
    found = set[ir.GenericConst]()

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, ir.GenericConst) and _nbytes(expr) >= _SMALL_BYTES:
            found.add(expr)

    if isinstance(func, relax.Function):
        relax.analysis.post_order_visit(func.body, visit)
    return found


def _nbytes(constant: ir.GenericConst) -> int:
    tensor = constant.value
    return prod(map(int, tensor.shape)) * tvm.DataType(str(tensor.dtype)).bits // 8


def _name_of(constant: ir.GenericConst) -> _Name:
    tensor = constant.value
    array: Any
    try:
        array = np.from_dlpack(tensor)
    except (TypeError, BufferError, RuntimeError):  # a type that numpy does not have
        array = tensor.numpy()
    array = np.ascontiguousarray(array)
    digest = hashlib.blake2b(array.reshape(-1).view(np.uint8), digest_size=16).digest()
    return str(tensor.dtype), tuple(map(int, tensor.shape)), digest
