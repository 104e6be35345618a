"""Stride algebra: views of tensors through layout changes, broadcasts and merged dimensions, in plain numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from ...graph.free_sizes import ascending, unless_one
from .program import View


def row_major(dims: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense tensor with the last dimension innermost."""
    return tuple(math.prod(dims[axis + 1 :]) for axis in range(len(dims)))


def merged(
    dims: Sequence[int], *strides: Sequence[int]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """The fewest dimensions that address the same elements in the same order, for each vector of ``strides``.

    Dimensions of one element are dropped. Neighbouring dimensions are joined where every vector of strides allows it.
    """
    kept = [(extent, tuple(s[axis] for s in strides)) for axis, extent in enumerate(dims) if extent != 1]
    joined: list[tuple[int, tuple[int, ...]]] = []
    for extent, steps in kept:
        if joined and all(outer == extent * step for outer, step in zip(joined[-1][1], steps, strict=True)):
            joined[-1] = (joined[-1][0] * extent, steps)
        else:
            joined.append((extent, steps))
    if not joined:
        joined = [(1, (1,) * len(strides))]
    return tuple(extent for extent, _ in joined), tuple(zip(*(steps for _, steps in joined), strict=True))


def remap(
    view: View, shape: Sequence[int], strides: Sequence[int], buffer: Any, offset: int = 0
) -> View | None:
    """A view of a dense tensor of ``shape``, moved to a buffer in which the tensor's dimensions have ``strides``.

    An address in the dense tensor is a number in mixed radix, one digit for each dimension. Offset and strides of the
    view are converted digit by digit. None if that fails because a dimension of the view crosses a dimension of the
    tensor that is not contiguous in the buffer.
    """
    dims, (steps,) = merged(shape, strides)
    radix = row_major(dims)
    start = _digits(view.offset, radix)
    reach = list(start)
    moved: list[int] = []
    for extent, stride in zip(view.dims, view.strides, strict=True):
        with unless_one(extent):
            digits = _digits(stride, radix)
        if extent != 1:
            reach = [r + (extent - 1) * d for r, d in zip(reach, digits, strict=True)]
        moved.append(_dot(digits, steps))
    if any(r >= extent for r, extent in zip(reach, dims, strict=True)):
        return None
    return View(buffer, view.dims, tuple(moved), view.dtype, offset + _dot(start, steps))


def broadcast(shape: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...] | None:
    """Strides that broadcast a dense tensor of ``shape`` to ``wanted`` as numpy does; None if it cannot be
    broadcast."""
    missing = len(wanted) - len(shape)
    if missing < 0:
        return None
    padded = (1,) * missing + tuple(shape)
    if any(have not in (1, want) for have, want in zip(padded, wanted, strict=True)):
        return None
    return tuple(0 if have == 1 else step for have, step in zip(padded, row_major(padded), strict=True))


def unrepeated(view: View, like: View) -> View:
    """The view with one element along dimensions of stride 0: the form in which vendor libraries take a broadcast.

    ``like`` has the dims of the view. Libraries compare strides to distinguish layouts, even the strides of
    dimensions with one element. These are set as in a dense tensor with the axes nested as in ``like``.
    """
    dims = tuple(1 if step == 0 else extent for extent, step in zip(view.dims, view.strides, strict=True))
    strides = list(view.strides)
    inner = 1
    for axis in sorted(range(len(dims)), key=lambda k: (ascending(like.strides[k]), -k)):
        if dims[axis] == 1:
            strides[axis] = inner
        inner *= dims[axis]
    return replace(view, dims=dims, strides=tuple(strides))


def same_strides(a: View, b: View) -> bool:
    """Whether two views have equal dims and strides; the strides of dimensions with one element do not count."""
    return a.dims == b.dims and all(
        extent == 1 or s == t for extent, s, t in zip(a.dims, a.strides, b.strides, strict=True)
    )


def is_dense(view: View, order: Sequence[int] | None = None) -> bool:
    """Whether the elements fill one block of memory, with the axes nested as in ``order``, outermost first."""
    ranked = (
        sorted(range(len(view.dims)), key=lambda axis: ascending(-view.strides[axis]))
        if order is None
        else order
    )
    inner = [axis for axis in ranked if view.dims[axis] != 1]
    spans = all(view.strides[a] == view.strides[b] * view.dims[b] for a, b in pairwise(inner))
    return spans and (not inner or view.strides[inner[-1]] == 1)


def is_channels_first(view: View) -> bool:
    """Whether a view is dense with batch, channels, spatial dims from outermost to innermost."""
    return is_dense(view, range(len(view.dims)))


def is_channels_last(view: View) -> bool:
    """Whether a view is dense with batch, spatial dims, channels from outermost to innermost."""
    return is_dense(view, (0, *range(2, len(view.dims)), 1))


def pixel_stride(view: View) -> int | None:
    """Elements from one pixel to the next, if channels are innermost and all pixels are equally far apart.

    For a dense image that is the number of channels, for a slice of a wider image more. None for any other layout.
    """
    channels, *spatial = view.dims[1:]
    extents, strides = (view.dims[0], *spatial), (view.strides[0], *view.strides[2:])
    moving = [(extent, stride) for extent, stride in zip(extents, strides, strict=True) if extent != 1]
    if channels != 1 and view.strides[1] != 1:
        return None
    pixel = moving[-1][1] if moving else channels
    nested = all(outer == inner * extent for (_, outer), (extent, inner) in pairwise(moving))
    return pixel if nested and pixel >= channels else None


def _digits(address: int, radix: Sequence[int]) -> list[int]:
    digits = []
    for weight in radix:
        digits.append(address // weight)
        address %= weight
    return digits


def _dot(left: Sequence[int], right: Sequence[int]) -> int:
    return sum(a * b for a, b in zip(left, right, strict=True))
