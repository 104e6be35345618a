"""Sorted elements and their places."""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from ..context import Context, Converters, Value, dtype_of, positive, rank_of

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


CONVERTERS: Converters = {
    "sort.default": _sort,
    "sort.stable": lambda cx, x, stable, dim=-1, descending=False: _sort(cx, x, dim, descending),
    "argsort.default": _argsort,
    "argsort.stable": lambda cx, x, stable, dim=-1, descending=False: _argsort(cx, x, dim, descending),
    "topk.default": _topk,
}
