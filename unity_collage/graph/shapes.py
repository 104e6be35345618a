"""Static shapes of expressions."""

from __future__ import annotations

import math
from collections.abc import Iterable

import tvm_ffi
from tvm import ir, relax, tirx


def ints(values: Iterable[relax.Expr]) -> tuple[int, ...] | None:
    """``values`` as numbers, or None if one of them is symbolic."""
    known: list[int] = []
    for value in values:
        if not isinstance(value, tirx.IntImm):
            return None
        known.append(value.value)
    return tuple(known)


def shape_of(of: relax.Expr | ir.Type) -> tuple[int, ...] | None:
    """The extents of an expression or a type, or None if it is not a tensor or an extent is unknown."""
    ty = of.ty if isinstance(of, relax.Expr) else of
    shape = ty.shape if isinstance(ty, relax.TensorType) else None
    return ints(shape.values) if isinstance(shape, relax.ShapeExpr) else None


def extents_of(of: relax.Expr | ir.Type) -> tuple[int, ...]:
    """The extents of a tensor that is known to have a static shape."""
    shape = shape_of(of)
    assert shape is not None
    return shape


def tensor_type(of: relax.Expr | ir.Type) -> relax.TensorType:
    """The type of an expression that is known to be a tensor; a type is returned as it is."""
    ty = of.ty if isinstance(of, relax.Expr) else of
    assert isinstance(ty, relax.TensorType)
    return ty


def dtype_of(of: relax.Expr | ir.Type) -> str:
    """The element type of an expression that is known to be a tensor, such as ``float32``."""
    return str(tensor_type(of).dtype)


def nbytes_of(expr: relax.Expr) -> int:
    """The size of ``expr`` in bytes; 0 if it is unknown."""
    shape = shape_of(expr)
    return 0 if shape is None else math.prod(shape) * tvm_ffi.dtype(dtype_of(expr)).bits // 8
