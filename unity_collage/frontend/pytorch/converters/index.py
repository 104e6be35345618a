"""Operators that read at computed places: gathers and lookups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from tvm import ir, relax
from tvm.relax import op

from ..context import (
    CallRefused,
    Context,
    Converters,
    Size,
    Value,
    dtype_of,
    positive,
    rank_of,
    reshaped,
    shape_of,
    swapped,
)

Expr = relax.Expr

_MASKS = ("bool", "uint8")
"""The dtypes of indices that are masks."""


def _embedding(cx: Context, table: Expr, index: Expr, *_: Value) -> Expr:
    return op.take(table, index, 0)


def _index_select(cx: Context, x: Expr, dim: int, index: Expr) -> Expr:
    rows = reshaped(cx, index, [-1])
    return op.take(x, rows, positive(dim, rank_of(x))) if rank_of(x) else x


def _gather(cx: Context, x: Expr, dim: int, index: Expr, *_: Value) -> Expr:
    """For each index the element at the same place, except for the index along one axis."""
    if rank_of(x) == 0:
        return op.broadcast_to(x, shape_of(index))
    return op.gather_elements(x, index, positive(dim, rank_of(x)))


@dataclass(frozen=True, slots=True)
class Places:
    """The form of ``x[i, :, j]``: the indexed axes of ``x`` as one axis, and the places in it."""

    flat: Any
    """``x`` with the indexed axes together."""
    axis: int
    """Which axis of ``flat`` is the indexed one."""
    index: Any
    """The places along it, counted from the front; their shape takes the place of the axis."""
    order: tuple[int, ...]
    """The axes of ``x`` in the order of ``flat``, before they were joined."""


def places_of(cx: Context, x: Expr, indices: Sequence[Expr | None]) -> Places:
    """The places that tensors of integers index, which broadcast together, None meaning a whole axis.

    Axes that are not neighbours move to the front, and the result has the index's axes there, as in numpy.
    """
    indices = without_known_masks(indices)
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if any(dtype_of(index) in _MASKS for index in given):
        raise CallRefused("it is indexed by a mask, so the result's shape depends on values")
    rank = rank_of(x)
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    others = [axis for axis in range(rank) if axis not in axes]
    order = (*others[:first], *axes, *others[first:])
    moved = swapped(cx, x, order)
    sizes = shape_of(moved)
    indexed = sizes[first : first + len(axes)]
    flat = moved
    if len(axes) > 1:
        flat = reshaped(cx, moved, [*sizes[:first], prod(indexed), *sizes[first + len(axes) :]])
    return Places(flat, first, _joined(cx, given, indexed), order)


def without_known_masks(indices: Sequence[Expr | None]) -> list[Expr | None]:
    """Known masks as the places where they are true, an index for each of their axes."""
    found: list[Expr | None] = []
    for index in indices:
        if isinstance(index, ir.GenericConst) and dtype_of(index) in _MASKS and rank_of(index):
            found += [relax.const(places, "int64") for places in np.nonzero(index.value.numpy())]
        else:
            found.append(index)
    return found


def _joined(cx: Context, indices: Sequence[Expr], sizes: Sequence[Size]) -> Any:
    """One index into the product of the axes."""
    total: Any = None
    for index, size in zip(indices, sizes, strict=True):
        place = _from_the_front(cx, index, size)
        if total is None:
            total = place
        elif isinstance(size, int) and all(isinstance(each, ir.GenericConst) for each in (total, place)):
            total = relax.const(total.value.numpy() * size + place.value.numpy(), "int64")
        else:
            total = cx.emit(op.add(op.multiply(total, cx.cast(size, "int64")), place))
    return total


def _from_the_front(cx: Context, index: Expr, size: Size) -> Any:
    """Indices counted from the front; negative ones count from the end."""
    if isinstance(index, ir.GenericConst):
        places = index.value.numpy().astype("int64")
        if isinstance(size, int):
            return relax.const(np.where(places < 0, places + size, places), "int64")
        if (places >= 0).all():
            return relax.const(places, "int64")
    wide = cx.cast(index, "int64")
    is_negative = op.less(wide, cx.cast(0, "int64"))
    return cx.emit(op.where(is_negative, op.add(wide, cx.cast(size, "int64")), wide))


def _index(cx: Context, x: Expr, indices: Sequence[Expr | None]) -> Expr:
    if all(index is None for index in indices):
        return x
    found = places_of(cx, x, indices)
    return op.take(found.flat, found.index, found.axis)


def _bucketize(cx: Context, x: Value, boundaries: Expr, out_int32: bool = False, right: bool = False) -> Expr:
    """How many boundaries are below each number, or not above it if ``right``; all are below NaN."""
    common = "float64" if "float64" in (dtype_of(x), dtype_of(boundaries)) else "float32"
    if "float" not in dtype_of(x) and "float" not in dtype_of(boundaries):
        common = "int64"
    numbers = op.expand_dims(cx.cast(x, common), rank_of(x))
    test = op.greater if right else op.greater_equal
    below = op.logical_not(test(cx.cast(boundaries, common), numbers))
    return op.sum(op.astype(below, cx.dtype), [rank_of(x)])


def _searchsorted(
    cx: Context, boundaries: Expr, x: Expr, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Expr | None = None,
) -> Expr:  # fmt: skip
    if sorter is not None:
        raise CallRefused("it has a sorter")
    if rank_of(boundaries) != 1:
        boundaries = cx.emit(op.expand_dims(boundaries, rank_of(boundaries) - 1))
    return _bucketize(cx, x, boundaries, out_int32, right or side == "right")


def _unknown_shape(*_: Value) -> Expr:
    raise CallRefused("its result's shape depends on values")


CONVERTERS: Converters = {
    "embedding.default": _embedding,
    "index_select.default": _index_select,
    "gather.default": _gather,
    "index.Tensor": _index,
    "_unsafe_index.Tensor": _index,
    "bucketize.Tensor": _bucketize,
    "searchsorted.Tensor": _searchsorted,
    **dict.fromkeys(
        (
            "nonzero.default",
            "nonzero_static.default",
            "masked_select.default",
            "_unique2.default",
            "unique_dim.default",
            "unique_consecutive.default",
        ),
        _unknown_shape,
    ),
}
