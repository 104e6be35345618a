"""Operators that write to computed places, or reduce into them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from tvm import ir, relax
from tvm.relax import op

from ..context import (
    CallRefused,
    Context,
    Converter,
    Converters,
    Size,
    Value,
    are_equal,
    dtype_of,
    known_size,
    positive,
    rank_of,
    reshaped,
    shape_of,
    swapped,
)
from .index import Places, places_of, without_known_masks

Expr = relax.Expr


def _index_put(
    cx: Context, x: Expr, indices: Sequence[Expr | None], values: Expr, accumulate: bool = False, *_: Value
) -> Expr:
    """``x[indices] = values``, or ``+=``."""
    indices = without_known_masks(indices)
    if any(index is not None and dtype_of(index) == "bool" for index in indices):
        return _put_under_mask(cx, x, indices, values, accumulate)
    found = places_of(cx, x, indices)
    others = [size for n, size in enumerate(shape_of(found.flat)) if n != found.axis]
    spread = [*others[: found.axis], *shape_of(found.index), *others[found.axis :]]
    count = prod(known_size(size, "the number of indices") for size in shape_of(found.index))
    values = cx.emit(op.broadcast_to(cx.cast(values), spread))
    rows = reshaped(cx, values, [*others[: found.axis], count, *others[found.axis :]])
    written = _written(cx, found, reshaped(cx, found.index, [count]), rows, accumulate)
    return _unmoved(cx, written, x, found.order)


def _written(cx: Context, found: Places, index: Expr, rows: Expr, accumulate: bool) -> Any:
    if isinstance(found.index, ir.GenericConst) and not accumulate:
        size = known_size(shape_of(found.flat)[found.axis], "the size of the axis that is written to")
        source = np.arange(size)
        places = found.index.value.numpy().reshape(-1)
        source[places] = size + np.arange(len(places))
        both = cx.emit(op.concat([found.flat, rows], found.axis))
        return cx.emit(op.take(both, relax.const(source.astype("int64"), "int64"), found.axis))
    shape = [-1 if n == found.axis else 1 for n in range(rank_of(found.flat))]
    everywhere = cx.emit(op.broadcast_to(reshaped(cx, index, shape), shape_of(rows)))
    return scattered(cx, found.flat, everywhere, rows, found.axis, "add" if accumulate else "update")


def _unmoved(cx: Context, written: Expr, x: Expr, order: Sequence[int]) -> Expr:
    """The axes taken apart again, and put where they were."""
    shape = reshaped(cx, written, [shape_of(x)[axis] for axis in order])
    return swapped(cx, shape, [list(order).index(axis) for axis in range(len(order))])


def _put_under_mask(
    cx: Context, x: Expr, indices: Sequence[Expr | None], values: Expr, accumulate: bool
) -> Expr:
    """``x[mask] = value``, where the value is the same at all places."""
    mask = indices[0]
    if mask is None or len(indices) > 1 or rank_of(values) > rank_of(x) - rank_of(mask):
        raise CallRefused("values that differ from place to place are written under a mask")
    wide = reshaped(cx, mask, [*shape_of(mask), *[1] * (rank_of(x) - rank_of(mask))])
    new = cx.cast(values)
    return op.where(wide, op.add(x, new) if accumulate else new, x)


def scattered(cx: Context, x: Expr, index: Expr, source: Expr, axis: int, how: str) -> Any:
    """``x`` with the elements of ``source`` written to, or reduced into, the places of ``index`` along an axis."""
    if how == "update" or dtype_of(x) != "bool":
        return cx.emit(op.scatter_elements(x, index, source, axis, how))
    numbers, sources = cx.emit(op.astype(x, "int8")), cx.emit(op.astype(source, "int8"))
    reduced = op.scatter_elements(numbers, index, sources, axis, _OF_BOOLEANS.get(how, how))
    return cx.emit(op.astype(cx.emit(reduced), "bool"))


_OF_BOOLEANS = {"add": "max", "mul": "min"}
"""A sum of booleans is whether one of them is true, a product whether all are."""


def _scatter(how: str) -> Converter:
    def convert(cx: Context, x: Expr, dim: int, index: Expr, source: Value) -> Expr:
        return _scattered(cx, x, dim, index, source, how)

    return convert


def _scattered(cx: Context, x: Expr, dim: int, index: Expr, source: Value, how: str) -> Any:
    """The source may be a number, or larger than the index, which then reads its first elements."""
    if rank_of(x) == 0:
        x, index = reshaped(cx, x, [1]), reshaped(cx, index, [1])
        source = source if isinstance(source, (int, float)) else reshaped(cx, source, [1])
        return reshaped(cx, _scattered(cx, x, 0, index, source, how), [])
    if any(isinstance(size, int) and size == 0 for size in shape_of(index)):
        return x
    axis = positive(dim, rank_of(x))
    if isinstance(source, (int, float)):
        source = cx.filled(shape_of(index), source)
    else:
        source = _first(cx, cx.cast(source), shape_of(index))
    source = cx.emit(source)
    rows = _row_index(cx, index, axis)
    if rows is not None and are_equal(shape_of(x)[1:], shape_of(source)[1:]) and cx.dtype != "bool":
        return cx.emit(op.scatter_nd(x, cx.cast(rows, "int64"), source, how))
    return scattered(cx, x, cx.cast(index, "int64"), source, axis, how)


def _row_index(cx: Context, index: Expr, axis: int) -> Expr | None:
    """(rows, 1): the index of whole rows along axis 0, if ``index`` repeats it for each element of them."""
    repeat = cx.builder.lookup_binding(index) if isinstance(index, relax.Var) else None
    if axis or not isinstance(repeat, relax.Call) or repeat.op != ir.Op.get("relax.broadcast_to"):
        return None
    rows, *others = shape_of(repeat.args[0])
    wide = shape_of(index)
    if len(others) + 1 != len(wide) or not others or any(size != 1 for size in others):
        return None
    if not are_equal([rows], wide[:1]):
        return None
    return reshaped(cx, repeat.args[0], [rows, 1])


def _first(cx: Context, x: Expr, shape: Sequence[Size]) -> Expr:
    if are_equal(shape_of(x), shape):
        return x
    axes = list(range(len(shape)))
    return op.strided_slice(x, axes, [0] * len(shape), list(shape))


_REDUCTIONS = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _scatter_reduce(
    cx: Context, x: Expr, dim: int, index: Expr, source: Expr, reduce: str, include_self: bool = True
) -> Expr:
    """Without ``include_self`` the old element does not count where something is written."""
    if not include_self:
        x = _scattered(cx, x, dim, index, _neutral(reduce, cx.dtype), "update")
    total = _scattered(cx, x, dim, index, source, _REDUCTIONS[reduce])
    if reduce != "mean":
        return total
    ones = cx.emit(cx.filled(shape_of(x), 1.0))
    start = ones if include_self else _scattered(cx, ones, dim, index, 0.0, "update")
    divide = op.divide if "float" in cx.dtype else op.floor_divide
    return divide(total, _scattered(cx, start, dim, index, 1.0, "add"))


def _neutral(reduce: str, dtype: str) -> float:
    """The number that changes no result of a reduction."""
    if reduce in ("sum", "mean", "prod"):
        return float(reduce == "prod")
    if "float" in dtype:
        return -np.inf if reduce == "amax" else np.inf
    limits = np.iinfo(dtype)
    return int(limits.min if reduce == "amax" else limits.max)


def _scatter_by_name(cx: Context, x: Expr, dim: int, index: Expr, source: Value, reduce: str) -> Expr:
    return _scattered(cx, x, dim, index, source, {"add": "add", "multiply": "mul"}[reduce])


def _col2im(
    cx: Context,
    x: Expr,
    size: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Expr:
    """(N, C * kernel, windows) -> (N, C, H, W): elements at one place are added; the batch may be missing."""
    height, width = (extent + 2 * pad for extent, pad in zip(size, padding, strict=True))
    places = np.arange(height * width).reshape(height, width)
    for n, extent in enumerate((height, width)):
        count = (extent - dilation[n] * (kernel[n] - 1) - 1) // stride[n] + 1
        window = np.arange(kernel[n])[:, None] * dilation[n] + np.arange(count) * stride[n]
        places = places.take(window, 2 * n)
    index = places.transpose(0, 2, 1, 3).reshape(-1, 1)
    images: Any = prod(cx.shape[:-2])
    rows = swapped(cx, reshaped(cx, x, [images, len(index)]), [1, 0])
    nothing = cx.emit(cx.filled([height * width, images], 0))
    added = cx.emit(op.scatter_nd(nothing, relax.const(index, "int64"), rows, "add"))
    whole = reshaped(cx, swapped(cx, added, [1, 0]), [*cx.shape[:-2], height, width])
    ends = [pad + extent for pad, extent in zip(padding, size, strict=True)]
    return op.strided_slice(whole, [rank_of(whole) - 2, rank_of(whole) - 1], list(padding), ends)


def _whole_rows(cx: Context, x: Expr, dim: int, index: Expr, source: Value) -> tuple[Expr, Any]:
    """An index of rows as one for each element, and the source in its shape."""
    axis = positive(dim, rank_of(x))
    rows = reshaped(cx, index, [-1])
    shape: list[Size] = [shape_of(rows)[0] if n == axis else size for n, size in enumerate(shape_of(x))]
    column = reshaped(cx, rows, [-1 if n == axis else 1 for n in range(rank_of(x))])
    return cx.emit(op.broadcast_to(column, shape)), source if isinstance(source, (int, float)) else reshaped(
        cx, source, shape
    )


def _index_add(cx: Context, x: Expr, dim: int, index: Expr, source: Expr, alpha: float = 1) -> Expr:
    scaled = source if alpha == 1 else cx.emit(op.multiply(cx.cast(source), cx.cast(alpha)))
    return _scattered(cx, x, dim, *_whole_rows(cx, x, dim, index, scaled), "add")


def _index_copy(cx: Context, x: Expr, dim: int, index: Expr, source: Value) -> Expr:
    return _scattered(cx, x, dim, *_whole_rows(cx, x, dim, index, source), "update")


def _masked_scatter(cx: Context, x: Expr, mask: Expr, source: Expr) -> Expr:
    """The n-th place under the mask gets the n-th element of the source."""
    wide = cx.emit(op.broadcast_to(mask, shape_of(x)))
    flat = reshaped(cx, cx.cast(reshaped(cx, wide, [-1]), "int64"), [-1])
    count = cx.emit(op.subtract(op.cumsum(flat, 0), cx.cast(1, "int64")))
    order = cx.emit(op.maximum(count, cx.cast(0, "int64")))
    taken = op.take(reshaped(cx, source, [-1]), order, 0, "clip")
    return op.where(wide, op.reshape(taken, shape_of(x)), x)


CONVERTERS: Converters = {
    "index_put.default": _index_put,
    "_unsafe_index_put.default": _index_put,
    "scatter.src": _scatter("update"),
    "scatter.value": _scatter("update"),
    "scatter_add.default": _scatter("add"),
    "scatter.reduce": _scatter_by_name,
    "scatter.value_reduce": _scatter_by_name,
    "scatter_reduce.two": _scatter_reduce,
    "index_add.default": _index_add,
    "index_copy.default": _index_copy,
    "index_fill.int_Scalar": _index_copy,
    "masked_scatter.default": _masked_scatter,
    "col2im.default": _col2im,
}
