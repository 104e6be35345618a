"""Operators that move elements without a computation: reshapes, slices, concatenations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from tvm import relax
from tvm.relax import op

from ..context import (
    CallRefused,
    Context,
    Converters,
    Size,
    Value,
    are_equal,
    known_size,
    positive,
    rank_of,
    reshaped,
    shape_of,
    swapped,
)

Expr = relax.Expr


def _same(cx: Context, x: Expr, *_: Value) -> Expr:
    return x


def _view(cx: Context, x: Expr, *_: Value) -> Expr:
    """Any reshape: the shape is that which torch found."""
    return x if are_equal(shape_of(x), cx.shape) else reshaped(cx, x, cx.shape)


def _permute(cx: Context, x: Expr, dims: Sequence[int]) -> Expr:
    return swapped(cx, x, [positive(dim, rank_of(x)) for dim in dims])


def _transpose(cx: Context, x: Expr, first: int, second: int) -> Expr:
    axes = list(range(rank_of(x)))
    if axes:
        axes[first], axes[second] = axes[second], axes[first]
    return swapped(cx, x, axes)


def _unsqueeze(cx: Context, x: Expr, dim: int) -> Expr:
    return op.expand_dims(x, positive(dim, rank_of(x) + 1))


def _squeeze(cx: Context, x: Expr, dims: Sequence[int] | int | None = None) -> Expr:
    """``x`` without those of the given axes that have size one."""
    sizes = shape_of(x)
    given = range(len(sizes)) if dims is None else [dims] if isinstance(dims, int) else dims
    axes = sorted({positive(dim, len(sizes)) for dim in given} & set(range(len(sizes))))
    ones = [axis for axis in axes if sizes[axis] == 1]
    return op.squeeze(x, ones) if ones else x


def expanded(cx: Context, x: Expr, *_: Value) -> Expr:
    return x if are_equal(shape_of(x), cx.shape) else op.broadcast_to(x, cx.shape)


def _repeat(cx: Context, x: Expr, repeats: Sequence[Size]) -> Expr:
    """As often as ``repeats`` says; where that is not a number, the axis is broadcast along a new one before it."""
    if all(isinstance(count, int) and count == 1 for count in repeats):
        return _view(cx, x)
    known = [count if isinstance(count, int) else 1 for count in repeats]
    if not known:
        return x
    tiled = cx.emit(op.tile(x, known))
    if all(isinstance(count, int) for count in repeats):
        return tiled
    pairs = [
        pair
        for count, extent in zip(repeats, shape_of(tiled), strict=True)
        for pair in ([(extent, extent)] if isinstance(count, int) else [(1, count), (extent, extent)])
    ]
    apart = reshaped(cx, tiled, [before for before, _ in pairs])
    return op.reshape(cx.emit(op.broadcast_to(apart, [after for _, after in pairs])), cx.shape)


def _cat(cx: Context, tensors: Sequence[Expr], dim: int = 0) -> Expr:
    """Joined in their common dtype; an empty tensor of one axis fits anything."""
    parts = [cx.cast(part) for part in tensors if not are_equal(shape_of(part), [0])]
    if not parts:
        return cx.cast(tensors[0])
    return parts[0] if len(parts) == 1 else op.concat(parts, positive(dim, rank_of(parts[0])))


def _stack(cx: Context, tensors: Sequence[Expr], dim: int = 0) -> Expr:
    axis = positive(dim, rank_of(tensors[0]) + 1)
    return op.concat([op.expand_dims(cx.cast(part), axis) for part in tensors], axis)


def sliced(cx: Context, x: Expr, axis: int, first: Size, last: Size, step: int = 1) -> Any:
    """Elements from ``first`` up to ``last`` along an axis."""
    if isinstance(first, int) and first == 0 and step == 1 and are_equal([last], [shape_of(x)[axis]]):
        return x
    return cx.emit(op.strided_slice(x, [axis], [first], [last], [step]))


def _slice(cx: Context, x: Expr, dim: int = 0, start: Value = None, end: Value = None, step: int = 1) -> Expr:
    """The bounds may be negative or beyond the tensor, as in Python."""
    axis = positive(dim, rank_of(x))
    size = shape_of(x)[axis]
    if isinstance(size, int) and all(bound is None or isinstance(bound, int) for bound in (start, end)):
        first, last, _ = slice(start, end, step).indices(size)
        return sliced(cx, x, axis, first, max(first, last), step)
    first = 0 if start is None else _from_the_front(cx, start, size)
    return sliced(cx, x, axis, first, first + cx.shape[axis] * step, step)


_PLACE = 2
"""The argument of ``slice`` and ``select`` that is a place of an axis."""


def _from_the_front(cx: Context, place: Size, size: Size) -> Size:
    """A place of an axis, counted from its end if it is negative; torch has guarded on its sign."""
    known = place if isinstance(place, int) else cx.known(_PLACE)
    if isinstance(known, torch.SymInt):
        known = (
            -1 if known.node.expr.is_negative else 0 if known.node.expr.is_nonnegative else known.node.hint
        )
    if known is None:
        raise CallRefused("whether a place counts from the end depends on a value")
    return size + place if known < 0 else place


def selected(cx: Context, x: Expr, axis: int, index: Size) -> Any:
    """The slice at ``index`` of an axis, without that axis."""
    return cx.emit(op.squeeze(sliced(cx, x, axis, index, index + 1), [axis]))


def _select(cx: Context, x: Expr, dim: int, index: Size) -> Expr:
    axis = positive(dim, rank_of(x))
    return selected(cx, x, axis, _from_the_front(cx, index, shape_of(x)[axis]))


def parts_of(cx: Context, x: Expr, sizes: Sequence[int], axis: int) -> list[Any]:
    """``x`` cut along an axis into parts of these sizes."""
    if len(sizes) == 1:
        return [x]
    return [
        sliced(cx, x, axis, last - size, last) for size, last in zip(sizes, accumulate(sizes), strict=True)
    ]


def _split_with_sizes(cx: Context, x: Expr, sizes: Sequence[int], dim: int = 0) -> list[Expr]:
    return parts_of(
        cx, x, [known_size(size, "the size of a part") for size in sizes], positive(dim, rank_of(x))
    )


def _split(cx: Context, x: Expr, size: int, dim: int = 0) -> list[Expr]:
    axis = positive(dim, rank_of(x))
    whole = known_size(shape_of(x)[axis], "the size of the axis that is split")
    return parts_of(
        cx, x, [min(size, whole - first) for first in range(0, max(whole, 1), max(size, 1))], axis
    )


def _unbind(cx: Context, x: Expr, dim: int = 0) -> list[Expr]:
    axis = positive(dim, rank_of(x))
    count = known_size(shape_of(x)[axis], "the size of the axis that is unbound")
    return [selected(cx, x, axis, index) for index in range(count)]


def picked(cx: Context, x: Expr, axis: int, index: np.ndarray) -> Any:
    """The elements at constant indices of an axis; the axes of the index take its place."""
    return cx.emit(op.take(x, relax.const(index.astype("int64"), "int64"), axis))


CONVERTERS: Converters = {
    **{
        f"{name}.default": _same
        for name in (
            "alias",
            "clone",
            "detach",
            "contiguous",
            "lift_fresh_copy",
            "lift",
            "lift_fresh",
            "dropout",
            "alias_copy",
            "detach_copy",
            "_conj",
            "resolve_conj",
            "resolve_neg",
        )
    },
    **{
        name: lambda cx, x, *_: cx.cast(x)
        for name in ("_to_copy.default", "to.dtype", "to.device", "to.dtype_layout", "type_as.default")
    },
    **dict.fromkeys(
        (
            "view.default",
            "_unsafe_view.default",
            "reshape.default",
            "flatten.using_ints",
            "view_copy.default",
            "_reshape_copy.default",
            "unflatten.int",
            "view_as.default",
        ),
        _view,
    ),
    "permute.default": _permute,
    "permute_copy.default": _permute,
    "transpose.int": _transpose,
    "t.default": lambda cx, x: _transpose(cx, x, 0, 1) if rank_of(x) == 2 else x,
    "unsqueeze.default": _unsqueeze,
    "unsqueeze_copy.default": _unsqueeze,
    "squeeze.default": _squeeze,
    "squeeze.dim": _squeeze,
    "squeeze.dims": _squeeze,
    "squeeze_copy.dims": _squeeze,
    "expand.default": expanded,
    "expand_copy.default": expanded,
    "expand_as.default": expanded,
    "repeat.default": _repeat,
    "cat.default": _cat,
    "stack.default": _stack,
    "slice.Tensor": _slice,
    "slice_copy.Tensor": _slice,
    "select.int": _select,
    "select_copy.int": _select,
    "split_with_sizes.default": _split_with_sizes,
    "split_with_sizes_copy.default": _split_with_sizes,
    "split.Tensor": _split,
    "unbind.int": _unbind,
}
