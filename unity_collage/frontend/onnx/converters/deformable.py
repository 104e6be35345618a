"""DeformConv: a convolution with windows that read the image at places moved by a tensor of offsets.

Dai et al., "Deformable Convolutional Networks", 2017. Between pixels the image is interpolated linearly, and it is 0
outside.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any

from tvm import ir, relax, te, tirx

from ..equal_sizes import require_shape
from ..node import Converted, OnnxNode
from .precise import narrowed, widened
from .windows import SlidingWindow, is_inside, window_of


def _deform_conv(node: OnnxNode) -> Converted:
    kernel = [int(size) for size in node.static_shape(1)[2:]]
    window = window_of(node, kernel, node.shape()[2:])
    operands = [widened(node, node[n]) for n in (0, 1, 2)]
    operands += [widened(node, node[4])] if node.has(4) else []
    groups, offset_groups = node.attribute("group", 1), node.attribute("offset_group", 1)
    batch, places, taps = node.shape()[0], node.shape(2)[2:], offset_groups * prod(kernel)
    require_shape(node, "its offset", node.shape(2), [batch, taps * len(kernel), *places])
    if node.has(4):
        require_shape(node, "its mask", node.shape(4), [batch, taps, *places])

    def deform_conv(x: te.Tensor, w: te.Tensor, offset: te.Tensor, *mask: te.Tensor) -> te.Tensor:
        samples = _samples(x, offset, mask[0] if mask else None, window, offset_groups)
        return _summed(samples, w, groups)

    made = node.emit(node.builder.call_te(deform_conv, *operands))
    if node.has(3):
        bias = node.reshaped(widened(node, node[3]), [1, node.shape(3)[0], *[1] * len(kernel)])
        made = node.emit(relax.op.add(made, bias))
    return narrowed(node, made, node.dtype())


def _samples(
    x: te.Tensor, offset: te.Tensor, mask: te.Tensor | None, window: SlidingWindow, groups: int
) -> te.Tensor:
    """The image at the moved places, (N, C, k1, ..., o1, ...), times the mask."""
    axes = len(window.sizes)
    channels, sizes = x.shape[1], list(offset.shape[2:])
    each = tirx.floordiv(channels, groups)

    def element(n: ir.Expr, c: ir.Expr, *place: ir.Expr) -> ir.Expr:
        taps, at = place[:axes], place[axes:]
        tap = tirx.floordiv(c, each)
        for size, k in zip(window.sizes, taps, strict=True):
            tap = tap * size + k
        where = []
        for axis in range(axes):
            first = (
                at[axis] * window.strides[axis] + taps[axis] * window.dilations[axis] - window.before[axis]
            )
            where.append(tirx.Cast(x.dtype, first) + offset(n, tap * axes + axis, *at))
        value = _interpolated(x, n, c, where)
        return value if mask is None else value * mask(n, tap, *at)

    return te.compute([*x.shape[:2], *window.sizes, *sizes], element, name="samples")


def _interpolated(x: te.Tensor, n: ir.Expr, c: ir.Expr, where: Sequence[ir.Expr]) -> ir.Expr:
    """The image at a place between pixels."""
    floors = [tirx.floor(at) for at in where]
    parts = []
    for corner in itertools.product((0, 1), repeat=len(where)):
        pixel = [tirx.Cast("int64", low) + step for low, step in zip(floors, corner, strict=True)]
        near = [
            at - low if step else tirx.const(1, x.dtype) - (at - low)
            for at, low, step in zip(where, floors, corner, strict=True)
        ]
        weight = reduce(lambda a, b: a * b, near)
        inside = is_inside(pixel, x.shape[2:])
        parts.append(tirx.if_then_else(inside, x(n, c, *pixel) * weight, tirx.const(0, x.dtype)))
    return reduce(lambda a, b: a + b, parts)


def _summed(samples: te.Tensor, w: te.Tensor, groups: int) -> te.Tensor:
    axes = len(w.shape) - 2
    inner = te.reduce_axis((0, w.shape[1]), name="c")
    taps: list[Any] = [te.reduce_axis((0, size), name=f"k{n}") for n, size in enumerate(w.shape[2:])]
    each = tirx.floordiv(w.shape[0], groups)

    def element(n: ir.Expr, o: ir.Expr, *place: ir.Expr) -> ir.Expr:
        channel = tirx.floordiv(o, each) * w.shape[1] + inner
        return te.sum(samples(n, channel, *taps, *place) * w(o, inner, *taps), axis=[inner, *taps])

    sizes = samples.shape[2 + axes :]
    return te.compute([samples.shape[0], w.shape[0], *sizes], element, name="deform_conv")


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {"DeformConv": _deform_conv}
