"""Operators that read or write at computed places: gathers, scatters, lookups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from tvm import ir, relax
from tvm.relax import op

from ..context import (
    Context,
    Converter,
    Converters,
    Refused,
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

Expr = relax.Expr


def _embedding(cx: Context, table: Expr, index: Expr, *_: Value) -> Expr:
    return op.take(table, index, 0)


def _index_select(cx: Context, x: Expr, dim: int, index: Expr) -> Expr:
    rows = reshaped(cx, index, [-1])
    return op.take(x, rows, positive(dim, rank_of(x))) if rank_of(x) else x


def _gather(cx: Context, x: Expr, dim: int, index: Expr, *_: Value) -> Expr:
    """For each index the element at its own place, but with the index along one axis."""
    if rank_of(x) == 0:
        return op.broadcast_to(x, shape_of(index))
    return op.gather_elements(x, index, positive(dim, rank_of(x)))


@dataclass(frozen=True, slots=True)
class Places:
    """What ``x[i, :, j]`` means: the indexed axes of ``x`` as one axis, and the places in it."""

    flat: Any
    """``x`` with the indexed axes together."""
    axis: int
    """Which axis of ``flat`` is the indexed one."""
    index: Any
    """Where along it, counted from the front; its shape takes the place of the axis."""
    order: tuple[int, ...]
    """The axes of ``x`` in the order of ``flat``, before they were joined."""


def places_of(cx: Context, x: Expr, indices: Sequence[Expr | None]) -> Places:
    """The places that tensors of integers index, which broadcast together, None meaning a whole axis.

    Axes that are not neighbours move to the front, and the result has the index's axes there, as in numpy.
    """
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if any(dtype_of(index) in ("bool", "uint8") for index in given):
        raise Refused("it is indexed by a mask, so the result's shape depends on values")
    rank = rank_of(x)
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    others = [axis for axis in range(rank) if axis not in axes]
    order = (*others[:first], *axes, *others[first:])
    moved = swapped(cx, x, order)
    sizes = shape_of(moved)
    indexed = [known_size(size, "the size of an indexed axis") for size in sizes[first : first + len(axes)]]
    flat = moved
    if len(axes) > 1:
        flat = reshaped(cx, moved, [*sizes[:first], prod(indexed), *sizes[first + len(axes) :]])
    return Places(flat, first, _joined(cx, given, indexed), order)


def _joined(cx: Context, indices: Sequence[Expr], sizes: Sequence[int]) -> Any:
    """One index into the product of the axes."""
    total: Any = None
    for index, size in zip(indices, sizes, strict=True):
        place = _from_the_front(cx, index, size)
        if total is None:
            total = place
        elif isinstance(total, ir.GenericConst) and isinstance(place, ir.GenericConst):
            total = relax.const(total.value.numpy() * size + place.value.numpy(), "int64")
        else:
            total = cx.emit(op.add(op.multiply(total, cx.cast(size, "int64")), place))
    return total


def _from_the_front(cx: Context, index: Expr, size: int) -> Any:
    """Indices from the end are negative."""
    if isinstance(index, ir.GenericConst):
        places = index.value.numpy().astype("int64")
        return relax.const(np.where(places < 0, places + size, places), "int64")
    wide = cx.cast(index, "int64")
    is_negative = op.less(wide, cx.cast(0, "int64"))
    return cx.emit(op.where(is_negative, op.add(wide, cx.cast(size, "int64")), wide))


def _index(cx: Context, x: Expr, indices: Sequence[Expr | None]) -> Expr:
    if all(index is None for index in indices):
        return x
    found = places_of(cx, x, indices)
    return op.take(found.flat, found.index, found.axis)


def _index_put(
    cx: Context, x: Expr, indices: Sequence[Expr | None], values: Expr, accumulate: bool = False, *_: Value
) -> Expr:
    """``x[indices] = values``, or ``+=``."""
    masks = [index for index in indices if index is not None and dtype_of(index) == "bool"]
    if masks:
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
        raise Refused("values that differ from place to place are written under a mask")
    wide = reshaped(cx, mask, [*shape_of(mask), *[1] * (rank_of(x) - rank_of(mask))])
    new = cx.cast(values)
    return op.where(wide, op.add(x, new) if accumulate else new, x)


def scattered(cx: Context, x: Expr, index: Expr, source: Expr, axis: int, how: str) -> Any:
    """``x`` with the elements of ``source`` written to, or reduced into, the places that ``index`` has along an axis."""
    return cx.emit(op.scatter_elements(x, index, source, axis, how))


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
        source = op.full(shape_of(index), cx.cast(source), cx.dtype)
    else:
        source = _first(cx, cx.cast(source), shape_of(index))
    return scattered(cx, x, cx.cast(index, "int64"), cx.emit(source), axis, how)


def _first(cx: Context, x: Expr, shape: Sequence[Size]) -> Expr:
    if are_equal(shape_of(x), shape):
        return x
    axes = list(range(len(shape)))
    return op.strided_slice(x, axes, [0] * len(shape), list(shape))


_NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "amax": -np.inf, "amin": np.inf}
_REDUCTIONS = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _scatter_reduce(
    cx: Context, x: Expr, dim: int, index: Expr, source: Expr, reduce: str, include_self: bool = True
) -> Expr:
    """Without ``include_self`` the old element does not count where something is written."""
    if not include_self:
        if "float" not in cx.dtype and reduce in ("amax", "amin"):
            raise Refused("an extremum of integers is scattered without the old elements")
        x = _scattered(cx, x, dim, index, _NEUTRAL[reduce], "update")
    total = _scattered(cx, x, dim, index, source, _REDUCTIONS[reduce])
    if reduce != "mean":
        return total
    if "float" not in cx.dtype:
        raise Refused("a mean of integers is scattered")
    ones = cx.emit(op.full(shape_of(x), cx.cast(1.0), cx.dtype))
    start = ones if include_self else _scattered(cx, ones, dim, index, 0.0, "update")
    return op.divide(total, _scattered(cx, start, dim, index, 1.0, "add"))


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


def _bucketize(cx: Context, x: Value, boundaries: Expr, out_int32: bool = False, right: bool = False) -> Expr:
    """How many boundaries are below each number, or not above it if ``right``."""
    common = "float64" if "float64" in (dtype_of(x), dtype_of(boundaries)) else "float32"
    if "float" not in dtype_of(x) and "float" not in dtype_of(boundaries):
        common = "int64"
    numbers = op.expand_dims(cx.cast(x, common), rank_of(x))
    test = op.less_equal if right else op.less
    return op.sum(op.astype(test(cx.cast(boundaries, common), numbers), cx.dtype), [rank_of(x)])


def _searchsorted(
    cx: Context, boundaries: Expr, x: Expr, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Expr | None = None,
) -> Expr:  # fmt: skip
    if sorter is not None:
        raise Refused("it has a sorter")
    if rank_of(boundaries) != 1:
        boundaries = cx.emit(op.expand_dims(boundaries, rank_of(boundaries) - 1))
    return _bucketize(cx, x, boundaries, out_int32, right or side == "right")


def _unknown_shape(*_: Value) -> Expr:
    raise Refused("its result's shape depends on values")


CONVERTERS: Converters = {
    "embedding.default": _embedding,
    "index_select.default": _index_select,
    "gather.default": _gather,
    "index.Tensor": _index,
    "_unsafe_index.Tensor": _index,
    "index_put.default": _index_put,
    "_unsafe_index_put.default": _index_put,
    "scatter.src": _scatter("update"),
    "scatter.value": _scatter("update"),
    "scatter_add.default": _scatter("add"),
    "scatter_reduce.two": _scatter_reduce,
    "index_add.default": _index_add,
    "index_copy.default": _index_copy,
    "index_fill.int_Scalar": _index_copy,
    "masked_scatter.default": _masked_scatter,
    "bucketize.Tensor": _bucketize,
    "searchsorted.Tensor": _searchsorted,
    **{name: _unknown_shape for name in (
        "nonzero.default", "nonzero_static.default", "masked_select.default", "_unique2.default", "unique_dim.default",
        "unique_consecutive.default")},
}
