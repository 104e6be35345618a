"""Products of matrices, and attention."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt

import numpy as np
from tvm import ir, relax
from tvm.relax import op

from ..context import (
    CallRefused,
    Context,
    Converters,
    Value,
    dtype_of,
    known_size,
    rank_of,
    reshaped,
    shape_of,
    swapped,
)
from .create import below_diagonal
from .reduce import any_above_minus_infinity

Expr = relax.Expr


def _product(cx: Context, a: Expr, b: Expr) -> Expr:
    return op.matmul(cx.cast(a), cx.cast(b))


def _linear(cx: Context, x: Expr, weight: Expr, bias: Expr | None = None) -> Expr:
    """x weight^T + bias."""
    if rank_of(weight) == 2:
        is_known = isinstance(weight, ir.GenericConst)
        weight = cx.constants.transposed(weight) if is_known else cx.emit(op.permute_dims(weight))
    product = op.matmul(x, weight)
    return product if bias is None else op.add(product, bias)


def _scaled_sum(cx: Context, summand: Expr, product: Expr, beta: float, alpha: float) -> Expr:
    """beta summand + alpha product; with beta 0 the summand is ignored, even NaN."""
    scaled = product if alpha == 1 else op.multiply(product, cx.cast(alpha))
    if beta == 0:
        return scaled
    return op.add(scaled, cx.cast(summand) if beta == 1 else op.multiply(cx.cast(summand), cx.cast(beta)))


def _addmm(cx: Context, summand: Expr, a: Expr, b: Expr, beta: float = 1, alpha: float = 1) -> Expr:
    return _scaled_sum(cx, summand, _product(cx, a, b), beta, alpha)


def _addbmm(cx: Context, summand: Expr, a: Expr, b: Expr, beta: float = 1, alpha: float = 1) -> Expr:
    """The products of a batch are added."""
    return _scaled_sum(cx, summand, op.sum(_product(cx, a, b), [0]), beta, alpha)


def _outer(cx: Context, a: Expr, b: Expr) -> Expr:
    return op.multiply(op.expand_dims(cx.cast(a), 1), op.expand_dims(cx.cast(b), 0))


def _attention(
    cx: Context,
    query: Expr,
    key: Expr,
    value: Expr,
    mask: Expr | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Expr:
    """softmax(query key^T scale + mask) value; a row with all keys masked is zero, as in torch."""
    if dropout:
        raise CallRefused("its dropout is random")
    if enable_gqa:
        key, value = (_repeated_heads(cx, each, shape_of(query)[-3]) for each in (key, value))
    rank = rank_of(key)
    width = known_size(shape_of(query)[-1], "the width of a head")
    factor = 1 / sqrt(width) if scale is None else scale
    turned = swapped(cx, key, [*range(rank - 2), rank - 1, rank - 2])
    scores = cx.emit(op.multiply(op.matmul(query, turned), cx.cast(factor)))
    if is_causal:  # a query sees the keys up to its own place
        mask = below_diagonal(cx, *(shape_of(each)[-2] for each in (query, key)))
    added = None if mask is None else _added(cx, mask)
    weights = op.nn.softmax(scores if added is None else op.add(scores, added), -1)
    found = cx.emit(op.matmul(weights, value))
    return found if added is None or is_causal else _zero_where_masked(cx, found, added)


def _repeated_heads(cx: Context, x: Expr, heads: int) -> Expr:
    """Each head repeated for each of its heads of queries."""
    *batch, few, rows, width = shape_of(x)
    if few == heads:
        return x
    wide = op.broadcast_to(op.expand_dims(x, len(batch) + 1), [*batch, few, heads // few, rows, width])
    return reshaped(cx, cx.emit(wide), [*batch, heads, rows, width])


def _added(cx: Context, mask: Expr) -> Expr:
    """A mask that is added to the scores: a boolean one says which keys count."""
    if dtype_of(mask) != "bool":
        return cx.cast(mask)
    if isinstance(mask, ir.GenericConst):
        return relax.const(np.where(mask.value.numpy(), 0.0, -np.inf).astype(cx.dtype), cx.dtype)
    return cx.emit(op.where(mask, cx.cast(0.0), cx.cast(-inf)))


def _zero_where_masked(cx: Context, found: Expr, mask: Expr) -> Expr:
    """Zeros in place of the NaNs of rows without a key."""
    if isinstance(mask, ir.GenericConst) and (mask.value.numpy().max(-1) > -np.inf).all():
        return found
    return op.where(any_above_minus_infinity(cx, mask, rank_of(mask) - 1), found, cx.cast(0.0))


def _cdist(cx: Context, a: Expr, b: Expr, order: float, *_: Value) -> Expr:
    """The distances between the rows of ``a`` and those of ``b``."""
    away = op.subtract(op.expand_dims(a, rank_of(a) - 1), op.expand_dims(b, rank_of(b) - 2))
    size = cx.emit(op.abs(away))
    if order == inf:
        return op.max(size, [-1])
    if order == 1:
        return op.sum(size, [-1])
    if order == 2:
        return op.sqrt(op.sum(op.multiply(size, size), [-1]))
    if order == 0:
        raise CallRefused("it counts the elements that differ")
    return op.power(op.sum(op.power(size, cx.cast(order)), [-1]), cx.cast(1 / order))


def _trilinear(
    cx: Context,
    a: Expr,
    b: Expr,
    c: Expr,
    expand_a: Sequence[int],
    expand_b: Sequence[int],
    expand_c: Sequence[int],
    summed: Sequence[int],
    *_: Value,
) -> Expr:
    """The sum over some axes of a b c, each with more axes of size one."""
    wide = [
        cx.emit(op.expand_dims(each, list(axes))) if axes else each
        for each, axes in ((a, expand_a), (b, expand_b), (c, expand_c))
    ]
    return op.sum(op.multiply(op.multiply(wide[0], wide[1]), wide[2]), list(summed))


CONVERTERS: Converters = {
    **{f"{name}.default": _product for name in ("mm", "bmm", "matmul", "mv", "dot", "vdot")},
    "linear.default": _linear,
    "addmm.default": _addmm,
    "addmv.default": _addmm,
    "baddbmm.default": _addmm,
    "addbmm.default": _addbmm,
    "outer.default": _outer,
    "scaled_dot_product_attention.default": _attention,
    "_cdist_forward.default": _cdist,
    "_trilinear.default": _trilinear,
}
