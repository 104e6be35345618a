"""Conv, ConvTranspose, and the convolutions of com.microsoft."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax

from ..node import Converted, OnnxNode
from ..values import Dim
from .precise import is_narrow
from .windows import SlidingWindow, at_least, padded, window_of

_CONVOLUTIONS = (relax.op.nn.conv1d, relax.op.nn.conv2d, relax.op.nn.conv3d)
_TRANSPOSED = (relax.op.nn.conv1d_transpose, relax.op.nn.conv2d_transpose, relax.op.nn.conv3d_transpose)
_SPATIAL = ("W", "HW", "DHW")


def _conv(node: OnnxNode) -> Converted:
    return convolution(node)


def convolution(node: OnnxNode, border: int = 0) -> relax.Expr:
    """conv(x, w) + b, with the bias in the shape (1, C, 1, ...) that backends fuse; ``border`` is around the image."""
    axes = _axes(node)
    window = window_of(node, _kernel(node, axes), node.shape(0)[2:])
    image = node[0]
    if not window.is_static or border:
        image, window = padded(node, image, window.before, window.after, border), window.unpadded()
    groups = node.attribute("group", 1)
    options = _options(node, axes, "OI")
    made = _CONVOLUTIONS[axes - 1](
        image, node[1], window.strides, window.padding, window.dilations, groups, **options
    )
    return _finished(node, made, axes)


def _axes(node: OnnxNode) -> int:
    """The number of spatial axes."""
    axes = node.rank(0) - 2
    if not 1 <= axes <= 3:
        node.refuse(f"an image of {axes} spatial axes is not supported, only of 1, 2 or 3")
    if node.rank(1) != axes + 2:
        node.refuse(f"its image has rank {axes + 2}, and its weights rank {node.rank(1)}")
    return axes


def _kernel(node: OnnxNode, axes: int) -> list[int]:
    sizes = node.shape(1)[2:]
    known = [size for size in sizes if isinstance(size, int)]
    if known != sizes:
        node.refuse("the sizes of its window are not known; fix the shape of its weights")
    given = node.attribute("kernel_shape")
    if given is not None and list(given) != sizes:
        node.refuse(f"its kernel_shape is {list(given)}, and the window of its weights is {sizes}")
    return known


def _options(node: OnnxNode, axes: int, kernel: str) -> dict[str, Any]:
    spatial = _SPATIAL[axes - 1]
    options: dict[str, Any] = {"data_layout": f"NC{spatial}", "kernel_layout": f"{kernel}{spatial}"}
    sums = _sum_type(node)
    return options | ({} if sums == node.dtype() else {"out_dtype": sums})


def _sum_type(node: OnnxNode) -> str:
    """The type in which products of the image's elements are summed."""
    if node.dtype() in ("int8", "uint8"):
        return "int32"
    return "float32" if is_narrow(node.dtype()) else node.dtype()


def _finished(node: OnnxNode, made: relax.Expr, axes: int) -> relax.Expr:
    """The convolution plus the bias, in the element type of the image."""
    if node.has(2):
        bias, shape = node.numbers(2), [1, node.shape(2)[0], *[1] * axes]
        dtype = _sum_type(node)
        wide = (
            node.constant(bias.reshape(shape), dtype)  # type: ignore[arg-type]
            if bias is not None
            else node.cast(node.reshaped(node[2], shape), dtype)
        )
        made = relax.op.add(node.emit(made), wide)
    return relax.op.astype(node.emit(made), node.dtype()) if is_narrow(node.dtype()) else made


def _conv_transpose(node: OnnxNode) -> Converted:
    axes = _axes(node)
    image, sizes = node.shape(0)[2:], _kernel(node, axes)
    strides = list(node.attribute("strides", [1] * axes))
    dilations = list(node.attribute("dilations", [1] * axes))
    more = list(node.attribute("output_padding", [0] * axes))
    window = SlidingWindow(tuple(sizes), tuple(strides), tuple(dilations), (), ())
    reach = [
        (size - 1) * step + extent for size, step, extent in zip(image, strides, window.extents, strict=True)
    ]
    before, after = _cut(node, image, reach, strides, more)
    # Elements that no window reaches are zero, so they are added as padding and then cut: Relax limits its
    # output_padding.
    kept, kept_after = (_within(widths, window.extents) for widths in (before, after))
    groups = node.attribute("group", 1)
    weights, dilations = _dilated(node, dilations)
    made = _TRANSPOSED[axes - 1](
        node[0],
        weights,
        strides,
        [*kept, *kept_after],
        [0] * axes,
        dilations,
        groups,
        **_options(node, axes, "IO"),
    )
    rest = [k - b for k, b in zip(kept, before, strict=True)]
    rest_after = [k - a for k, a in zip(kept_after, after, strict=True)]
    made = padded(node, node.emit(made), rest, rest_after)
    return _finished(node, made, axes)


def _within(widths: Sequence[Dim], extents: Sequence[int]) -> list[int]:
    """The part of each padding that Relax takes: less than the window, and not negative."""
    return [
        min(width, extent - 1) if isinstance(width, int) and width > 0 else 0
        for width, extent in zip(widths, extents, strict=True)
    ]


def _cut(
    node: OnnxNode, image: Sequence[Dim], reach: Sequence[Dim], strides: Sequence[int], more: Sequence[int]
) -> tuple[list[Dim], list[Dim]]:
    """How much is cut off before and after the elements that windows reach; negative where zeros are added.

    ``more`` is output_padding, which adds elements behind.
    """
    axes, mode = len(image), node.attribute("auto_pad", "NOTSET")
    shape = node.attribute("output_shape")
    if shape is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        shape = [size * step for size, step in zip(image, strides, strict=True)]
    if shape is not None:
        # The old formula of the standard has the surplus in front for every mode but SAME_UPPER.
        total = [r + m - s for r, m, s in zip(reach, more, list(shape)[-axes:], strict=True)]
        less = [at_least(width, 0) // 2 for width in total]
        rest = [at_least(width, 0) - half for width, half in zip(total, less, strict=True)]
        before = less if mode == "SAME_UPPER" else rest
        after = [width - b for width, b in zip(total, before, strict=True)]
    elif mode == "VALID":
        before, after = [0] * axes, [0] * axes
    else:
        pads = list(node.attribute("pads", [0] * 2 * axes))
        before, after = pads[:axes], pads[axes:]
    return list(before), [a - m for a, m in zip(after, more, strict=True)]


def _dilated(node: OnnxNode, dilations: list[int]) -> tuple[relax.Expr, list[int]]:
    """The weights and dilations; known weights get zeros between their elements in place of a dilation."""
    weights = node.numbers(1)
    if weights is None or all(step == 1 for step in dilations):
        return node[1], dilations
    sizes = [(size - 1) * step + 1 for size, step in zip(weights.shape[2:], dilations, strict=True)]
    wide = np.zeros([*weights.shape[:2], *sizes], weights.dtype)
    wide[(slice(None), slice(None), *(slice(None, None, step) for step in dilations))] = weights
    return node.constant(wide, node.dtype(1)), [1] * len(dilations)


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {"Conv": _conv, "ConvTranspose": _conv_transpose}
