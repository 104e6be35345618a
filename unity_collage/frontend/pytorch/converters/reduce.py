"""Sums, means, extrema and other reductions."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

from tvm import relax
from tvm.relax import op

from ..context import (
    Context,
    Converter,
    Converters,
    Value,
    are_equal,
    axes_of,
    dtype_of,
    known_size,
    positive,
    rank_of,
    shape_of,
)

Expr = relax.Expr
Dims = Sequence[int] | int | None


def _reduction(make: Any) -> Converter:
    """``make`` over some axes, in the dtype of the result."""

    def convert(cx: Context, x: Expr, dims: Dims = None, keepdim: bool = False, *_: Value) -> Expr:
        axes = axes_of(dims, rank_of(x))
        return make(cx.cast(x), axes, keepdim) if axes else cx.cast(x)

    return convert


def _total(make: Any) -> Converter:
    """``make`` over all axes; the only other argument is a dtype."""
    reduce = _reduction(make)
    return lambda cx, x, *_: reduce(cx, x)


def _extremum(make: Any) -> Converter:
    """The largest or smallest elements; of booleans it is found among integers."""

    def convert(cx: Context, x: Expr, dims: Dims = None, keepdim: bool = False) -> Expr:
        axes = axes_of(dims, rank_of(x))
        if not axes:
            return x
        if dtype_of(x) == "bool":
            return op.astype(make(cx.cast(x, "int8"), axes, keepdim), "bool")
        return make(x, axes, keepdim)

    return convert


def _quantifier(make: Any, of_nothing: bool) -> Converter:
    """Whether any or all elements are not zero; ``of_nothing`` if there are none."""

    def convert(cx: Context, x: Expr, dims: Dims = None, keepdim: bool = False) -> Expr:
        axes = axes_of(dims, rank_of(x))
        if any(are_equal([shape_of(x)[axis]], [0]) for axis in axes):
            return cx.filled(cx.shape, of_nothing)
        truth = cx.cast(x, "bool")
        return op.astype(make(cx.cast(truth, "int8"), axes, keepdim), cx.dtype) if axes else truth

    return convert


def any_above_minus_infinity(cx: Context, x: Expr, axis: int) -> Any:
    """Whether a row has a number above minus infinity; the axis stays, with one element."""
    truth = op.greater(x, cx.cast(-inf, dtype_of(x)))
    return cx.emit(op.astype(op.max(op.astype(truth, "int8"), [axis], True), "bool"))


def _variance(
    cx: Context, x: Expr, dims: Dims, correction: float | None = None, keepdim: bool = False
) -> Expr:
    """The sum of the squares of x - mean(x), divided by their number minus the correction, which is 1 by default."""
    return variance_and_mean(cx, x, dims, correction, keepdim)[0]


def variance_and_mean(
    cx: Context, x: Expr, dims: Dims, correction: float | None = None, keepdim: bool = False
) -> tuple[Expr, Expr]:
    """``var_mean``: both are computed from the mean, in two passes."""
    axes = axes_of(dims, rank_of(x))
    count = prod(known_size(shape_of(x)[axis], "a size") for axis in axes)
    mean = cx.emit(op.mean(x, axes, keepdims=True))
    away = cx.emit(op.subtract(x, mean))
    squares = op.sum(op.multiply(away, away), axes, keepdim)
    divisor = max(count - (1 if correction is None else correction), 0)
    # Divided and not multiplied: over fewer elements than the correction the result is infinite or NaN.
    found = cx.emit(op.divide(squares, cx.cast(float(divisor))))
    return found, mean if keepdim else cx.emit(op.squeeze(mean, axes))


def _place(make: Any) -> Converter:
    """The index of an extremum along an axis, or in the flattened tensor."""

    def convert(cx: Context, x: Expr, dim: int | None = None, keepdim: bool = False) -> Expr:
        if rank_of(x) == 0:
            return cx.cast(0, "int64")
        if dim is not None:
            return _index(cx, make, x, positive(dim, rank_of(x)), keepdim)
        flat = cx.emit(op.reshape(x, [-1]))
        return op.reshape(_index(cx, make, flat, 0, False), [1] * rank_of(x) if keepdim else [])

    return convert


def _index(cx: Context, make: Any, x: Expr, axis: int, keepdim: bool) -> Expr:
    numbers = cx.cast(x, "int8") if dtype_of(x) == "bool" else x
    return cx.cast(cx.emit(make(numbers, axis, keepdim)), "int64")


def _extremum_with_place(values: Any, place: Any) -> Converter:
    """``max.dim``: the largest elements along an axis, and where they are."""

    def convert(cx: Context, x: Expr, dim: int, keepdim: bool = False) -> list[Expr]:
        return [
            cx.emit(_extremum(values)(cx, x, dim, keepdim)),
            cx.emit(_place(place)(cx, x, dim, keepdim)),
        ]

    return convert


def _norm(
    cx: Context, x: Expr, order: float = 2, dims: Dims = None, keepdim: bool = False, *_: Value
) -> Expr:
    """(sum of |x|^p)^(1/p); the largest or smallest |x| if p is infinite, the number of elements that are not zero if p
    is 0."""
    axes = axes_of(dims, rank_of(x))
    size = cx.emit(op.abs(cx.cast(x)))
    if order == 0:
        size = cx.emit(op.astype(op.not_equal(size, cx.cast(0)), cx.dtype))
        return op.sum(size, axes, keepdim) if axes else size
    if not axes:
        return size
    if order in (float("inf"), float("-inf")):
        return (op.max if order > 0 else op.min)(size, axes, keepdim)
    if order == 1:
        return op.sum(size, axes, keepdim)
    if order == 2:
        return op.sqrt(op.sum(op.multiply(size, size), axes, keepdim))
    return op.power(op.sum(op.power(size, cx.cast(float(order))), axes, keepdim), cx.cast(1 / order))


CONVERTERS: Converters = {
    "sum.default": _total(op.sum),
    "sum.dim_IntList": _reduction(op.sum),
    "mean.default": _total(op.mean),
    "mean.dim": _reduction(op.mean),
    "prod.default": _total(op.prod),
    "prod.dim_int": _reduction(op.prod),
    "amax.default": _extremum(op.max),
    "amin.default": _extremum(op.min),
    "max.default": _extremum(op.max),
    "min.default": _extremum(op.min),
    "any.default": _quantifier(op.max, False),
    "any.dim": _quantifier(op.max, False),
    "any.dims": _quantifier(op.max, False),
    "all.default": _quantifier(op.min, True),
    "all.dim": _quantifier(op.min, True),
    "all.dims": _quantifier(op.min, True),
    "var.correction": _variance,
    "var_mean.correction": lambda cx, *args: list(variance_and_mean(cx, *args)),
    "argmax.default": _place(op.argmax),
    "argmin.default": _place(op.argmin),
    "max.dim": _extremum_with_place(op.max, op.argmax),
    "min.dim": _extremum_with_place(op.min, op.argmin),
    "linalg_vector_norm.default": _norm,
}
