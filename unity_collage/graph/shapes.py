"""Static shapes of expressions."""

from __future__ import annotations

import math

import tvm_ffi
from tvm import relax


def shape_of(expr: relax.Expr) -> tuple[int, ...] | None:
    """Its extents, or None for what is no tensor or has unknown ones."""
    values = getattr(getattr(getattr(expr, "ty", None), "shape", None), "values", None)
    if values is None:
        return None
    try:
        return tuple(int(extent) for extent in values)
    except (TypeError, ValueError):
        return None


def extents_of(expr: relax.Expr) -> tuple[int, ...]:
    """The extents of a tensor that is known to have some."""
    shape = shape_of(expr)
    assert shape is not None
    return shape


def nbytes_of(expr: relax.Expr) -> int:
    """Its bytes; 0 where they are unknown."""
    shape = shape_of(expr)
    return 0 if shape is None else math.prod(shape) * tvm_ffi.dtype(str(expr.ty.dtype)).bits // 8
