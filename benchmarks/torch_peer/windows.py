"""Convolution, pooling and resizing of ONNX by torch functions.

torch pads both sides of an axis alike, and pools by no more than half a window: what differs goes through ``F.pad``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch  # pyright: ignore[reportMissingImports]
from torch.nn import functional as F  # pyright: ignore[reportMissingImports]

from .call import Call, Value


@dataclass(frozen=True, slots=True)
class Window:
    """How a window moves over an image; one entry for each axis of the image."""

    sizes: list[int]
    strides: list[int]
    dilations: list[int]
    begins: list[int]
    """Zeros before the image."""
    ends: list[int]
    """Zeros after it."""

    @property
    def is_even(self) -> bool:
        """Whether both sides of each axis are padded alike."""
        return self.begins == self.ends

    @property
    def extents(self) -> list[int]:
        """How much of the image a window covers."""
        return [(size - 1) * step + 1 for size, step in zip(self.sizes, self.dilations, strict=True)]


def window_of(call: Call, sizes: Sequence[int]) -> Window:
    """The window of a convolution or pool; raises ModelError for a padding that torch does not have."""
    rank = len(sizes)
    ones = [1] * rank
    pads = call.attributes.get("pads", [0] * 2 * rank)
    strides = call.attributes.get("strides", ones)
    window = Window(list(sizes), strides, call.attributes.get("dilations", ones), pads[:rank], pads[rank:])
    automatic = call.attributes.get("auto_pad", "NOTSET")
    if automatic in ("NOTSET", "VALID"):
        return window
    if not automatic.startswith("SAME"):
        raise call.lacks(f"with auto_pad={automatic}")
    image = zip(call.shape()[2:], strides, window.extents, strict=True)
    totals = [
        max((math.ceil(size / stride) - 1) * stride + extent - size, 0) for size, stride, extent in image
    ]
    short, long = [total // 2 for total in totals], [total - total // 2 for total in totals]
    begins, ends = (short, long) if automatic == "SAME_UPPER" else (long, short)
    return Window(window.sizes, strides, window.dilations, begins, ends)


def padded(x: Value, begins: Sequence[int], ends: Sequence[int], value: float = 0.0) -> Value:
    """``x`` with so much more (or less) on its last axes."""
    amounts = [n for pair in zip(reversed(begins), reversed(ends), strict=True) for n in pair]
    return F.pad(x, amounts, value=value) if any(amounts) else x


def convolution(call: Call, x: Value, weight: Value, bias: Value = None) -> Value:
    window = window_of(call, call.shape(1)[2:])
    padding = window.begins if window.is_even else 0
    if not window.is_even:
        x = padded(x, window.begins, window.ends)
    groups = call.attributes.get("group", 1)
    return _of_rank("conv{}d", window)(x, weight, bias, window.strides, padding, window.dilations, groups)


def transposed_convolution(call: Call, x: Value, weight: Value, bias: Value = None) -> Value:
    """The window's padding is what the result is cut by."""
    if call.attributes.get("auto_pad", "NOTSET") != "NOTSET" or "output_shape" in call.attributes:
        raise call.lacks("with auto_pad or output_shape")
    window = window_of(call, call.shape(1)[2:])
    more = call.attributes.get("output_padding", [0] * len(window.sizes))
    y = _of_rank("conv_transpose{}d", window)(
        x,
        weight,
        bias,
        window.strides,
        window.begins if window.is_even else 0,
        more,
        call.attributes.get("group", 1),
        window.dilations,
    )
    if window.is_even:
        return y
    return padded(y, [-begin for begin in window.begins], [-end for end in window.ends])


def max_pool(call: Call, x: Value) -> Value:
    window, ceil = window_of(call, call.attributes["kernel_shape"]), _rounds_up(call)
    pool = _of_rank("max_pool{}d", window)
    if _pools_natively(window):
        return pool(x, window.sizes, window.strides, window.begins, window.dilations, ceil_mode=ceil)
    x = padded(padded(x, window.begins, window.ends, -math.inf), *_overhang(call, window), -math.inf)
    return pool(x, window.sizes, window.strides, 0, window.dilations)


def average_pool(call: Call, x: Value) -> Value:
    """Where torch's own padding does not do: the average with zeros, over the part of each window that counts."""
    window, ceil = window_of(call, call.attributes["kernel_shape"]), _rounds_up(call)
    if any(step != 1 for step in window.dilations):
        raise call.lacks("with dilations")
    pool = _of_rank("avg_pool{}d", window)
    counts_padding = bool(call.attributes.get("count_include_pad", 0))
    if _pools_natively(window):
        return pool(x, window.sizes, window.strides, window.begins, ceil, counts_padding)

    def averages(image: Value, padding: float) -> Value:
        image = padded(image, window.begins, window.ends, padding)
        return pool(padded(image, *_overhang(call, window)), window.sizes, window.strides)

    shares = averages(torch.ones(1, 1, *call.shape()[2:]), float(counts_padding))
    return averages(x, 0.0) if bool((shares == 1).all()) else averages(x, 0.0) / shares


def _rounds_up(call: Call) -> bool:
    return bool(call.attributes.get("ceil_mode", 0))


def _pools_natively(window: Window) -> bool:
    halves = zip(window.begins, window.sizes, strict=True)
    return window.is_even and all(2 * begin <= size for begin, size in halves)


def _overhang(call: Call, window: Window) -> tuple[list[int], list[int]]:
    """What the last windows reach beyond the padding when their number is rounded up: before it, and after it.

    A window that would begin in the padding after the image is none.
    """
    after: list[int] = []
    axes = zip(call.shape()[2:], window.begins, window.ends, window.strides, window.extents, strict=True)
    for size, begin, end, stride, extent in axes:
        steps = -(-(begin + size + end - extent) // stride)
        if steps * stride >= begin + size:
            steps -= 1
        reached = steps * stride + extent - (begin + size + end)
        after.append(max(reached, 0) if _rounds_up(call) else 0)
    return [0] * len(after), after


def global_average(call: Call, x: Value) -> Value:
    return x.mean(tuple(range(2, len(call.shape()))), keepdim=True)


def global_maximum(call: Call, x: Value) -> Value:
    return x.amax(tuple(range(2, len(call.shape()))), keepdim=True)


_RESIZED = {
    ("nearest", "asymmetric", "floor"): ("nearest", "nearest", "nearest"),
    ("linear", "half_pixel", ""): ("linear", "bilinear", "trilinear"),
}
"""What ``F.interpolate`` calls it, by the number of axes of the image."""


def resize(call: Call, x: Value, *_operands: Value) -> Value:
    rank = len(call.shape()) - 2
    mode = call.attributes.get("mode", "nearest")
    coordinates = call.attributes.get("coordinate_transformation_mode", "half_pixel")
    rounding = call.attributes.get("nearest_mode", "round_prefer_floor") if mode == "nearest" else ""
    names = _RESIZED.get((mode, coordinates, rounding))
    if names is None or not 1 <= rank <= len(names):
        raise call.lacks(f"with {' '.join((mode, coordinates, rounding)).strip()} on {rank} axes")
    policy = call.attributes.get("keep_aspect_ratio_policy", "stretch")
    if call.attributes.get("antialias", 0) or "axes" in call.attributes or policy != "stretch":
        raise call.lacks("with antialias, axes or an aspect ratio to keep")
    scales, sizes = _given(call, 2), _given(call, 3)
    if scales is not None and scales[:2] == [1.0, 1.0]:
        return F.interpolate(x, scale_factor=scales[2:], mode=names[rank - 1])
    if sizes is not None and sizes[:2] == call.shape()[:2]:
        return F.interpolate(x, size=sizes[2:], mode=names[rank - 1])
    raise call.lacks("of the batch or the channels")


def _given(call: Call, index: int) -> list[int] | None:
    """An operand that is there and is not empty, which stands for one that is left out."""
    return call.ints(index) or None


def _of_rank(name: str, window: Window) -> Callable[..., Value]:
    return getattr(F, name.format(len(window.sizes)))
