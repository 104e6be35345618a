"""Running sums, products and extrema along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

from ..context import Context, Converter, Converters, Value, dtype_of, known_size, positive, rank_of, shape_of
from .shape import picked

Expr = relax.Expr


def _accumulated(make: Any) -> Converter:
    """A running sum or product."""

    def convert(cx: Context, x: Expr, dim: int, *_: Value) -> Expr:
        value = cx.cast(x)
        return make(value, axis=positive(dim, rank_of(x)), dtype=cx.dtype) if rank_of(x) else value

    return convert


def _running_extremum(holds: Any) -> Converter:
    """The largest or smallest elements so far, and where the last of them is; NaN is beyond all numbers.

    Each step doubles how many elements each place has seen (Hillis and Steele 1986, "Data parallel algorithms").
    ``holds(a, b)``: whether ``a`` counts after ``b``.
    """

    def convert(cx: Context, x: Expr, dim: int) -> list[Expr]:
        if not rank_of(x):
            return [x, cx.cast(0, "int64")]
        axis, dtype = positive(dim, rank_of(x)), dtype_of(x)
        size = known_size(shape_of(x)[axis], "the size of the axis of a running extremum")
        at = np.arange(size).reshape([-1 if n == axis else 1 for n in range(rank_of(x))])
        places = cx.emit(op.broadcast_to(relax.const(at, "int64"), shape_of(x)))
        found = cx.cast(x, "int8") if dtype == "bool" else x
        for before in (1 << step for step in range((size - 1).bit_length())):
            earlier = np.maximum(np.arange(size) - before, 0)
            old, old_places = picked(cx, found, axis, earlier), picked(cx, places, axis, earlier)
            stays = cx.emit(_stays(cx, found, old, holds))
            found = cx.emit(op.where(stays, found, old))
            places = cx.emit(op.where(stays, places, old_places))
        return [cx.cast(found, dtype), places]

    return convert


def _stays(cx: Context, new: Expr, old: Expr, holds: Any) -> Expr:
    if "float" not in dtype_of(new):
        return holds(new, old)
    is_number = op.logical_not(op.isnan(old))
    return op.logical_or(op.isnan(new), op.logical_and(is_number, holds(new, old)))


CONVERTERS: Converters = {
    "cumsum.default": _accumulated(op.cumsum),
    "cumprod.default": _accumulated(op.cumprod),
    "cummax.default": _running_extremum(op.greater_equal),
    "cummin.default": _running_extremum(op.less_equal),
}
