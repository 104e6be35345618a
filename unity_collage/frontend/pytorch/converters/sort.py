"""Sorted elements and their places."""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from ..context import Context, Converters, Value, dtype_of, known_size, positive, rank_of, reshaped, shape_of
from .shape import sliced

Expr = relax.Expr


def _order(cx: Context, x: Expr, dim: int, descending: bool) -> Expr:
    """Equal elements stay in their order."""
    return cx.emit(op.argsort(x, positive(dim, rank_of(x)), descending, "int64"))


def _sort(cx: Context, x: Expr, dim: int = -1, descending: bool = False) -> list[Expr]:
    if rank_of(x) == 0:
        return [x, cx.cast(0, "int64")]
    order = _order(cx, x, dim, descending)
    return [cx.emit(op.gather_elements(x, order, positive(dim, rank_of(x)))), order]


def _argsort(cx: Context, x: Expr, dim: int = -1, descending: bool = False) -> Expr:
    return _order(cx, x, dim, descending) if rank_of(x) else cx.cast(0, "int64")


def _topk(cx: Context, x: Expr, k: int, dim: int = -1, largest: bool = True, *_: Value) -> list[Expr]:
    if rank_of(x) == 0:
        return [x, cx.cast(0, "int64")]
    if k == 0:  # to Relax it means all
        return [cx.emit(op.zeros(cx.shape, dtype)) for dtype in (dtype_of(x), "int64")]
    both = cx.emit(op.topk(x, k, positive(dim, rank_of(x)), "both", largest, "int64"))
    return [cx.emit(both[n]) for n in range(2)]


def _kth(cx: Context, x: Expr, k: int, dim: int = -1, keepdim: bool = False) -> list[Expr]:
    """The k-th smallest elements, from 1 on, and where they are."""
    if rank_of(x) == 0:
        return [x, cx.cast(0, "int64")]
    axis = positive(dim, rank_of(x))
    return _kept(cx, [sliced(cx, part, axis, k - 1, k) for part in _sort(cx, x, axis)], axis, keepdim)


def _kept(cx: Context, parts: list[Expr], axis: int, keepdim: bool) -> list[Expr]:
    return parts if keepdim else [cx.emit(op.squeeze(part, [axis])) for part in parts]


def _median(cx: Context, x: Expr, dim: int, keepdim: bool = False) -> list[Expr]:
    """The lower one of two medians, and where it is; NaN if an element is."""
    if rank_of(x) == 0:
        return [x, cx.cast(0, "int64")]
    axis = positive(dim, rank_of(x))
    size = known_size(shape_of(x)[axis], "the size of the axis of a median")
    both = _sort(cx, x, axis)
    found, last = ([sliced(cx, part, axis, n, n + 1) for part in both] for n in ((size - 1) // 2, size - 1))
    if "float" in dtype_of(x):
        has_nan = cx.emit(op.isnan(cx.cast(last[0], "float32")))
        found = [cx.emit(op.where(has_nan, *pair)) for pair in zip(last, found, strict=True)]
    return _kept(cx, found, axis, keepdim)


def _median_of_all(cx: Context, x: Expr) -> Expr:
    return _median(cx, reshaped(cx, x, [-1]), 0)[0]


CONVERTERS: Converters = {
    "sort.default": _sort,
    "sort.stable": lambda cx, x, stable, dim=-1, descending=False: _sort(cx, x, dim, descending),
    "argsort.default": _argsort,
    "argsort.stable": lambda cx, x, stable, dim=-1, descending=False: _argsort(cx, x, dim, descending),
    "topk.default": _topk,
    "kthvalue.default": _kth,
    "median.default": _median_of_all,
    "median.dim": _median,
}
