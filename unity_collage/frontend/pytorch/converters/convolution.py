"""Convolutions over lines, images and volumes, and transposed ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax
from tvm.relax import op

from ..context import Context, Converters, known_size, rank_of, reshaped, shape_of, swapped
from .shape import sliced

Expr = relax.Expr

_CONVOLUTIONS = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}


def _convolution(
    cx: Context,
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Expr:
    """``x`` is (N, C, ...), ``weight`` (O, C / groups, ...), or (C, O / groups, ...) if transposed."""
    axes = rank_of(weight) - 2
    is_single = rank_of(x) == axes + 1
    if is_single:
        x = cx.emit(op.expand_dims(x, 0))
    stride, padding, dilation, output_padding = (
        _for_each(axes, given) for given in (stride, padding, dilation, output_padding)
    )
    make = _transposed if transposed else _direct
    found = make(cx, x, weight, stride, padding, dilation, output_padding, groups)
    if bias is not None:
        found = op.add(found, reshaped(cx, bias, [1, -1, *[1] * axes]))
    return op.squeeze(found, [0]) if is_single else found


def _for_each(axes: int, given: Sequence[int]) -> list[int]:
    """One number is for all axes."""
    return list(given) * axes if len(given) == 1 else list(given)


def _direct(
    cx: Context, x: Expr, weight: Expr, stride: Any, padding: Any, dilation: Any, _: Any, groups: int
) -> Any:
    make: Any = _CONVOLUTIONS[len(stride)]
    return cx.emit(make(x, weight, stride, [*padding, *padding], dilation, groups))


def _transposed(
    cx: Context,
    x: Expr,
    weight: Expr,
    stride: Any,
    padding: Any,
    dilation: Any,
    output_padding: Any,
    groups: int,
) -> Any:
    """Relax has those over lines and images without a dilation; the others are convolutions of a spread tensor."""
    make: Any = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose}.get(len(stride))
    fits = all(more < step for more, step in zip(output_padding, stride, strict=True))
    if make is None or any(gap != 1 for gap in dilation) or not fits:
        return _spread_and_convolved(cx, x, weight, stride, padding, dilation, output_padding, groups)
    return cx.emit(make(x, weight, stride, [*padding, *padding], output_padding, dilation, groups))


def _spread_and_convolved(
    cx: Context,
    x: Expr,
    weight: Expr,
    stride: Any,
    padding: Any,
    dilation: Any,
    output_padding: Any,
    groups: int,
) -> Any:
    """Zeros between the elements, then a convolution with reversed weights (Dumoulin and Visin 2016)."""
    for axis, step in enumerate(stride, 2):
        x = _spread(cx, x, axis, step)
    window = [known_size(size, "the size of a kernel") for size in shape_of(weight)[2:]]
    reach = [gap * (size - 1) for gap, size in zip(dilation, window, strict=True)]
    before = [far - width for far, width in zip(reach, padding, strict=True)]
    after = [near + more for near, more in zip(before, output_padding, strict=True)]
    for axis, widths in enumerate(zip(before, after, strict=True), 2):
        x = _widened(cx, x, axis, *widths)
    make: Any = _CONVOLUTIONS[len(stride)]
    turned = _turned(cx, weight, groups)
    return cx.emit(make(x, turned, [1] * len(stride), [0] * (2 * len(stride)), dilation, groups))


def _spread(cx: Context, x: Expr, axis: int, step: int) -> Any:
    """``step`` - 1 zeros between two elements of an axis."""
    if step == 1:
        return x
    sizes = shape_of(x)
    cell = cx.emit(op.expand_dims(x, axis + 1))
    widths = [0] * (2 * (len(sizes) + 1))
    widths[2 * (axis + 1) + 1] = step - 1
    spread = cx.emit(op.nn.pad(cell, widths))
    joined = reshaped(cx, spread, [*sizes[:axis], sizes[axis] * step, *sizes[axis + 1 :]])
    return sliced(cx, joined, axis, 0, sizes[axis] * step - (step - 1))


def _widened(cx: Context, x: Expr, axis: int, before: int, after: int) -> Any:
    """Zeros before and after an axis; a negative number cuts."""
    x = sliced(cx, x, axis, max(-before, 0), shape_of(x)[axis] - max(-after, 0))
    widths = [0] * (2 * rank_of(x))
    widths[2 * axis : 2 * axis + 2] = [max(before, 0), max(after, 0)]
    return cx.emit(op.nn.pad(x, widths)) if any(widths) else x


def _turned(cx: Context, weight: Expr, groups: int) -> Any:
    """(C, O / groups, ...) -> (O, C / groups, ...), from the last element of a window to the first."""
    for axis in range(2, rank_of(weight)):
        weight = cx.emit(op.flip(weight, axis))
    channels, width, *window = shape_of(weight)
    grouped = reshaped(cx, weight, [groups, channels // groups, width, *window])
    crossed = swapped(cx, grouped, [0, 2, 1, *range(3, 3 + len(window))])
    return reshaped(cx, crossed, [groups * width, channels // groups, *window])


CONVERTERS: Converters = {"convolution.default": _convolution}
