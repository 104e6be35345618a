"""Static shapes of expressions."""

from __future__ import annotations

import math
from collections.abc import Iterable

import tvm_ffi
from tvm import ir, relax, tirx


def ints(values: Iterable[relax.Expr]) -> tuple[int, ...] | None:
    """The numbers that ``values`` are, or None if one of them is not known yet."""
    known: list[int] = []
    for value in values:
        if not isinstance(value, tirx.IntImm):
            return None
        known.append(value.value)
    return tuple(known)


def shape_of(expr: relax.Expr) -> tuple[int, ...] | None:
    """Its extents, or None for what is not a tensor or has unknown ones."""
    shape = expr.ty.shape if isinstance(expr.ty, relax.TensorType) else None
    return ints(shape.values) if isinstance(shape, relax.ShapeExpr) else None


def extents_of(expr: relax.Expr) -> tuple[int, ...]:
    """The extents of a tensor that is known to have some."""
    shape = shape_of(expr)
    assert shape is not None
    return shape


def tensor_type(of: relax.Expr | ir.Type) -> relax.TensorType:
    """The type of what is known to be a tensor, or that type itself."""
    ty = of.ty if isinstance(of, relax.Expr) else of
    assert isinstance(ty, relax.TensorType)
    return ty


def dtype_of(expr: relax.Expr) -> str:
    """The element type of what is known to be a tensor, such as ``float32``."""
    return str(tensor_type(expr).dtype)


def nbytes_of(expr: relax.Expr) -> int:
    """Its bytes; 0 where they are unknown."""
    shape = shape_of(expr)
    return 0 if shape is None else math.prod(shape) * tvm_ffi.dtype(dtype_of(expr)).bits // 8
