"""Operators that reorder, pad, window or overwrite parts of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from tvm import relax
from tvm.relax import op

from ..context import (
    CallRefused,
    Context,
    Converters,
    Value,
    are_equal,
    known_size,
    positive,
    rank_of,
    reshaped,
    shape_of,
    swapped,
)
from .create import below_diagonal
from .shape import expanded, picked, sliced

Expr = relax.Expr


def _flip(cx: Context, x: Expr, dims: Sequence[int]) -> Expr:
    for dim in dims:
        if rank_of(x):
            x = cx.emit(op.flip(x, positive(dim, rank_of(x))))
    return x


def _roll(cx: Context, x: Expr, shifts: Sequence[int], dims: Sequence[int] = ()) -> Expr:
    """The last elements of an axis become the first; without axes the flattened tensor is rolled."""
    if not dims:
        return op.reshape(_rolled(cx, reshaped(cx, x, [-1]), shifts[0], 0), cx.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = cx.emit(_rolled(cx, x, shift, positive(dim, rank_of(x))))
    return x


def _rolled(cx: Context, x: Expr, shift: int, axis: int) -> Expr:
    size = known_size(shape_of(x)[axis], "the size of the axis that is rolled")
    cut = -shift % size if size else 0
    return op.concat([sliced(cx, x, axis, cut, size), sliced(cx, x, axis, 0, cut)], axis) if cut else x


def _pad(cx: Context, x: Expr, pads: Sequence[int], value: float = 0) -> Expr:
    """Pads come in pairs from the last axis on; a negative one cuts."""
    befores, afters = _by_axis(x, pads)
    for axis, (before, after) in enumerate(zip(befores, afters, strict=True)):
        if before < 0 or after < 0:
            size = shape_of(x)[axis]
            x = sliced(cx, x, axis, max(-before, 0), size - max(-after, 0))
    widths = [max(width, 0) for pair in zip(befores, afters, strict=True) for width in pair]
    return _filled(cx, x, widths, value) if any(widths) else x


def _filled(cx: Context, x: Expr, widths: Sequence[int], value: float) -> Expr:
    if cx.dtype in ("float32", "float64"):
        return op.nn.pad(x, list(widths), "constant", float(value))
    for axis in range(rank_of(x)):  # Relax's pad has a value of floats
        ends = [_constant_part(cx, x, axis, width, value) for width in widths[2 * axis : 2 * axis + 2]]
        parts = [part for part in (ends[0], x, ends[1]) if part is not None]
        x = cx.emit(op.concat(parts, axis)) if len(parts) > 1 else x
    return x


def _constant_part(cx: Context, x: Expr, axis: int, width: int, value: float) -> Expr | None:
    shape = [width if n == axis else size for n, size in enumerate(shape_of(x))]
    return cx.filled(shape, value) if width else None


def _by_axis(x: Expr, pads: Sequence[int]) -> tuple[list[int], list[int]]:
    if not all(isinstance(width, int) for width in pads):
        raise CallRefused("the widths of a pad are not known")
    left = rank_of(x) - len(pads) // 2
    pairs = [(0, 0)] * left + [(pads[n], pads[n + 1]) for n in range(len(pads) - 2, -1, -2)]
    return [before for before, _ in pairs], [after for _, after in pairs]


def _padded_by(mode: Literal["reflect", "edge"]) -> Any:
    """Pads with elements of the tensor: mirrored at the edge, or the edge itself."""

    def convert(cx: Context, x: Expr, pads: Sequence[int]) -> Expr:
        for axis, (before, after) in enumerate(zip(*_by_axis(x, pads), strict=True)):
            if before or after:
                size = known_size(shape_of(x)[axis], "the size of a padded axis")
                index = np.pad(np.arange(size), (max(before, 0), max(after, 0)), mode)
                x = picked(cx, x, axis, index[max(-before, 0) : len(index) - max(-after, 0)])
        return x

    return convert


def _lower_triangle(cx: Context, x: Expr, diagonal: int = 0) -> Expr:
    """The lower triangle of the last two axes, zero elsewhere."""
    *_, rows, columns = shape_of(x)
    return op.where(below_diagonal(cx, rows, columns, diagonal), x, cx.cast(0))


def _upper_triangle(cx: Context, x: Expr, diagonal: int = 0) -> Expr:
    """The upper triangle of the last two axes, zero elsewhere."""
    *_, rows, columns = shape_of(x)
    return op.where(below_diagonal(cx, rows, columns, diagonal - 1), cx.cast(0), x)


def _diagonal(cx: Context, x: Expr, offset: int = 0, first: int = 0, second: int = 1) -> Expr:
    """The diagonal of two axes as the last axis."""
    rank = rank_of(x)
    pair = (positive(first, rank), positive(second, rank))
    others = [axis for axis in range(rank) if axis not in pair]
    rows, columns = (known_size(shape_of(x)[axis], "the size of a diagonal's axis") for axis in pair)
    places = np.arange(rows * columns).reshape(rows, columns).diagonal(offset)
    flat = reshaped(cx, swapped(cx, x, [*others, *pair]), [*(shape_of(x)[n] for n in others), rows * columns])
    return picked(cx, flat, len(others), places)


def _diagonal_scatter(
    cx: Context, x: Expr, source: Expr, offset: int = 0, first: int = 0, second: int = 1
) -> Expr:
    """``x`` with the diagonal of two axes replaced."""
    rank = rank_of(x)
    pair = (positive(first, rank), positive(second, rank))
    order = [*(axis for axis in range(rank) if axis not in pair), *pair]
    rows, columns = (known_size(shape_of(x)[axis], "the size of a diagonal's axis") for axis in pair)
    index = np.arange(rows * columns)
    places = index.reshape(rows, columns).diagonal(offset).copy()
    index[places] = rows * columns + np.arange(len(places))
    moved = swapped(cx, x, order)
    flat = reshaped(cx, moved, [*shape_of(moved)[:-2], rows * columns])
    both = cx.emit(op.concat([flat, cx.cast(source)], rank - 2))
    written = reshaped(cx, picked(cx, both, rank - 2, index), shape_of(moved))
    return swapped(cx, written, [order.index(axis) for axis in range(rank)])


def _slice_scatter(
    cx: Context, x: Expr, source: Expr, dim: int = 0, start: Value = None, end: Value = None, step: int = 1
) -> Expr:
    """``x`` with a slice replaced."""
    axis = positive(dim, rank_of(x))
    size = known_size(shape_of(x)[axis], "the size of the axis that is written to")
    places = range(size)[slice(start, end, step)]
    if len(places) == size and step == 1:
        return source
    if step == 1:
        ends = (
            sliced(cx, x, axis, 0, places.start),
            sliced(cx, x, axis, max(places.stop, places.start), size),
        )
        parts = [
            part for part in (ends[0], cx.cast(source), ends[1]) if not are_equal([shape_of(part)[axis]], [0])
        ]
        return op.concat(parts, axis)
    index = np.arange(size)
    index[places.start : places.stop : step] = size + np.arange(len(places))
    return picked(cx, cx.emit(op.concat([x, cx.cast(source)], axis)), axis, index)


def _select_scatter(cx: Context, x: Expr, source: Expr, dim: int, index: int) -> Expr:
    axis = positive(dim, rank_of(x))
    place = index % known_size(shape_of(x)[axis], "the size of the axis that is written to")
    return _slice_scatter(cx, x, cx.emit(op.expand_dims(source, axis)), axis, place, place + 1)


def _copy(cx: Context, x: Expr, source: Expr, *_: Value) -> Expr:
    return expanded(cx, cx.cast(source))


def _as_strided(
    cx: Context, x: Expr, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Expr:
    """Elements by their places in the memory of ``x``, which is known if that is contiguous."""
    known = _contiguous(cx)
    offset = known.storage_offset() if storage_offset is None else storage_offset
    order = sorted(range(len(size)), key=lambda axis: -stride[axis])
    ordered = [size[axis] for axis in order]
    dense = torch.empty(ordered, device="meta").stride()
    if offset == 0 and dense == tuple(stride[axis] for axis in order) and np.prod(size) == known.numel():
        return swapped(cx, reshaped(cx, x, ordered), [order.index(axis) for axis in range(len(size))])
    places = torch.arange(known.numel()).as_strided(list(size), list(stride), offset).numpy()
    return picked(cx, reshaped(cx, x, [-1]), 0, places)


def _contiguous(cx: Context) -> torch.Tensor:
    """What torch knows about the first operand; raises CallRefused unless its elements are in order in memory."""
    known = cx.known(0)
    if not known.is_contiguous() or known.untyped_storage().nbytes() != known.nbytes:
        raise CallRefused("it reads the memory of a tensor that is not contiguous")
    return known


def _as_strided_scatter(
    cx: Context,
    x: Expr,
    source: Expr,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Expr:
    """``x`` with elements replaced by their places in its memory."""
    known = _contiguous(cx)
    offset = known.storage_offset() if storage_offset is None else storage_offset
    index = np.arange(known.numel())
    places = torch.arange(known.numel()).as_strided(list(size), list(stride), offset).reshape(-1).numpy()
    index[places] = known.numel() + np.arange(len(places))
    parts = [reshaped(cx, part, [-1]) for part in (x, cx.cast(source))]
    return op.reshape(picked(cx, cx.emit(op.concat(parts, 0)), 0, index), shape_of(x))


def _unfold(cx: Context, x: Expr, dim: int, size: int, step: int) -> Expr:
    """Windows of an axis; their elements are the last axis."""
    axis = positive(dim, rank_of(x))
    whole = known_size(shape_of(x)[axis], "the size of the axis that is unfolded")
    windows = np.arange((whole - size) // step + 1)[:, None] * step + np.arange(size)
    found = picked(cx, x, axis, windows)
    axes = [n for n in range(rank_of(found)) if n != axis + 1]
    return swapped(cx, found, [*axes, axis + 1])


def _im2col(
    cx: Context,
    x: Expr,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Expr:
    """(N, C, H, W) -> (N, C * kernel, windows); the batch may be missing."""
    if rank_of(x) == 3:
        x = cx.emit(op.expand_dims(x, 0))
    x = cx.emit(_pad(cx, x, [padding[1], padding[1], padding[0], padding[0]]))
    for n, axis in enumerate((2, 4)):
        whole = known_size(shape_of(x)[axis], "the size of an image")
        count = (whole - dilation[n] * (kernel[n] - 1) - 1) // stride[n] + 1
        x = picked(cx, x, axis, np.arange(kernel[n])[:, None] * dilation[n] + np.arange(count) * stride[n])
    return op.reshape(swapped(cx, x, [0, 1, 2, 4, 3, 5]), cx.shape)


def _pixel_shuffle(cx: Context, x: Expr, factor: int) -> Expr:
    """(..., C r r, H, W) -> (..., C, H r, W r)."""
    *batch, channels, height, width = shape_of(x)
    n = len(batch)
    cut = reshaped(cx, x, [*batch, channels // factor**2, factor, factor, height, width])
    return op.reshape(swapped(cx, cut, [*range(n), n, n + 3, n + 1, n + 4, n + 2]), cx.shape)


def _pixel_unshuffle(cx: Context, x: Expr, factor: int) -> Expr:
    """(..., C, H r, W r) -> (..., C r r, H, W)."""
    *batch, channels, height, width = shape_of(x)
    n = len(batch)
    cut = reshaped(cx, x, [*batch, channels, height // factor, factor, width // factor, factor])
    return op.reshape(swapped(cx, cut, [*range(n), n, n + 2, n + 4, n + 1, n + 3]), cx.shape)


CONVERTERS: Converters = {
    "flip.default": _flip,
    "roll.default": _roll,
    "constant_pad_nd.default": _pad,
    **{f"reflection_pad{n}d.default": _padded_by("reflect") for n in (1, 2, 3)},
    **{f"replication_pad{n}d.default": _padded_by("edge") for n in (1, 2, 3)},
    "tril.default": _lower_triangle,
    "triu.default": _upper_triangle,
    "diagonal.default": _diagonal,
    "diagonal_copy.default": _diagonal,
    "diagonal_scatter.default": _diagonal_scatter,
    "slice_scatter.default": _slice_scatter,
    "select_scatter.default": _select_scatter,
    "copy.default": _copy,
    "as_strided.default": _as_strided,
    "as_strided_copy.default": _as_strided,
    "as_strided_scatter.default": _as_strided_scatter,
    "unfold.default": _unfold,
    "unfold_copy.default": _unfold,
    "im2col.default": _im2col,
    "pixel_shuffle.default": _pixel_shuffle,
    "pixel_unshuffle.default": _pixel_unshuffle,
}
