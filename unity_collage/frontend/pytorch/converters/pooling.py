"""Largest elements and means of windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

from ..context import (
    CallRefused,
    Context,
    Converter,
    Converters,
    Value,
    dtype_of,
    known_size,
    rank_of,
    shape_of,
)
from .shape import sliced

Expr = relax.Expr

_MAX = {1: op.nn.max_pool1d, 2: op.nn.max_pool2d, 3: op.nn.max_pool3d}
_AVERAGE = {1: op.nn.avg_pool1d, 2: op.nn.avg_pool2d, 3: op.nn.avg_pool3d}


class _Windows:
    """Where the windows of a pooling are, by axis."""

    def __init__(self, axes: int, kernel: Any, stride: Any, padding: Any, dilation: Any) -> None:
        self.kernel = _for_each(axes, kernel)
        self.stride = _for_each(axes, stride) or self.kernel
        self.padding = _for_each(axes, padding)
        self.dilation = _for_each(axes, dilation)

    def after(self, sizes: Sequence[int], counts: Sequence[int]) -> list[int]:
        """How many elements are missing at the end of each axis for this number of windows."""
        return [
            (count - 1) * step + gap * (width - 1) + 1 - size - before
            for count, step, gap, width, size, before in zip(
                counts, self.stride, self.dilation, self.kernel, sizes, self.padding, strict=True
            )
        ]


def _for_each(axes: int, given: Any) -> list[int]:
    values = [given] if isinstance(given, int) else list(given)
    return values * axes if len(values) == 1 else values


def _in_batches(axes: int, pool: Callable[..., Expr]) -> Converter:
    """``pool`` of tensors with a batch; one without is a batch of one."""

    def convert(cx: Context, x: Expr, *args: Value) -> Expr:
        if rank_of(x) == axes + 2:
            return pool(cx, axes, x, *args)
        return op.squeeze(pool(cx, axes, cx.emit(op.expand_dims(x, 0)), *args), [0])

    return convert


def _sizes(cx: Context, axes: int, x: Expr) -> tuple[list[int], list[int]]:
    """The sizes of an image, and the number of windows along each axis."""
    return tuple(  # pyright: ignore[reportReturnType]
        [known_size(size, "the size of a pooled axis") for size in shape[-axes:]]
        for shape in (shape_of(x), cx.shape)
    )


def _are_free(axes: int, x: Expr) -> bool:
    """Whether a pooled axis has a size that is known only when the program runs.

    Without ``ceil_mode`` every window ends within the padding, whatever the size is.
    """
    return any(not isinstance(size, int) for size in shape_of(x)[-axes:])


def _max(
    cx: Context,
    axes: int,
    x: Expr,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    windows = _Windows(axes, kernel, stride, padding, dilation)
    if not ceil_mode and _are_free(axes, x):
        return cx.emit(_MAX[axes](x, windows.kernel, windows.stride, windows.padding * 2, windows.dilation))
    after = [max(width, 0) for width in windows.after(*_sizes(cx, axes, x))]
    make: Any = _MAX[axes]
    return cx.emit(make(x, windows.kernel, windows.stride, [*windows.padding, *after], windows.dilation))


def _max_and_places(cx: Context, x: Expr, *args: Value) -> list[Any]:
    """The maxima alone. Their places, which an unpooling reads, are not supported."""
    return [cx.emit(_in_batches(2, _max)(cx, x, *args)), None]


def _average(
    cx: Context,
    axes: int,
    x: Expr,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Any:
    """The sums of windows over the number of their elements, those of the padding included or not."""
    if "float" not in dtype_of(x):
        raise CallRefused("it averages integers")
    windows = _Windows(axes, kernel, stride, padding, 1)
    if not ceil_mode and divisor is None and _are_free(axes, x):
        included: Any = {"count_include_pad": count_include_pad}
        return cx.emit(_AVERAGE[axes](x, windows.kernel, windows.stride, windows.padding * 2, **included))
    sizes, counts = _sizes(cx, axes, x)
    after = windows.after(sizes, counts)
    make: Any = _AVERAGE[axes]
    pads = [*windows.padding, *(max(width, 0) for width in after)]
    if not any(pads) and divisor is None:
        return cx.emit(make(x, windows.kernel, windows.stride, pads))
    mean = cx.emit(make(x, windows.kernel, windows.stride, pads, count_include_pad=True))
    elements = prod(windows.kernel)
    factor = _factor(windows, sizes, counts, count_include_pad)
    factor = np.full_like(factor, elements / divisor) if divisor is not None else factor
    if (factor == 1).all():
        return mean
    if (factor == factor.flat[0]).all():
        return cx.emit(op.multiply(mean, cx.cast(float(factor.flat[0]))))
    return cx.emit(op.multiply(mean, relax.const(factor[None, None].astype(cx.dtype), cx.dtype)))


def _factor(
    windows: _Windows, sizes: Sequence[int], counts: Sequence[int], count_include_pad: bool
) -> np.ndarray:
    """How many elements a window has, over how many count, for each window."""
    total = np.ones([])
    for size, count, width, step, pad in zip(
        sizes, counts, windows.kernel, windows.stride, windows.padding, strict=True
    ):
        first = np.arange(count) * step - pad
        last = np.minimum(first + width, size + pad)
        if not count_include_pad:
            first, last = np.maximum(first, 0), np.minimum(last, size)
        total = np.multiply.outer(total, width / (last - first))
    return total


def _adaptive_average(cx: Context, axes: int, x: Expr, counts: Any) -> Any:
    """The means of a number of windows that divide the image; they overlap if they do not divide it evenly."""
    return _adaptive(cx, axes, x, op.mean, _AVERAGE[axes])


def _adaptive_max(cx: Context, x: Expr, counts: Any, axes: int = 2) -> list[Any]:
    found = _in_batches(axes, lambda cx, axes, x: _adaptive(cx, axes, x, op.max, _MAX[axes]))(cx, x)
    return [cx.emit(found), None]


def _adaptive(cx: Context, axes: int, x: Expr, reduce: Any, pool: Any) -> Any:
    sizes, counts = _sizes(cx, axes, x)
    if all(count == 1 for count in counts):
        return cx.emit(reduce(x, list(range(2, 2 + axes)), True))
    if all(size % count == 0 for size, count in zip(sizes, counts, strict=True)):
        widths = [size // count for size, count in zip(sizes, counts, strict=True)]
        return cx.emit(pool(x, widths, widths))
    for axis, (size, count) in enumerate(zip(sizes, counts, strict=True), 2):
        bounds = [(n * size // count, -(-(n + 1) * size // count)) for n in range(count)]
        x = cx.emit(op.concat([reduce(sliced(cx, x, axis, *pair), [axis], True) for pair in bounds], axis))
    return x


def _unpooling(*_: Value) -> Expr:
    raise CallRefused("it reads places of an earlier pooling")


CONVERTERS: Converters = {
    **{f"max_pool{axes}d.default": _in_batches(axes, _max) for axes in (1, 2, 3)},
    **{f"avg_pool{axes}d.default": _in_batches(axes, _average) for axes in (1, 2, 3)},
    "max_pool2d_with_indices.default": _max_and_places,
    "max_pool3d_with_indices.default": lambda cx, x, *args: [
        cx.emit(_in_batches(3, _max)(cx, x, *args)),
        None,
    ],
    "adaptive_avg_pool1d.default": _in_batches(1, _adaptive_average),
    "_adaptive_avg_pool2d.default": _in_batches(2, _adaptive_average),
    "_adaptive_avg_pool3d.default": _in_batches(3, _adaptive_average),
    "adaptive_max_pool1d.default": lambda cx, x, counts: _adaptive_max(cx, x, counts, 1),
    "adaptive_max_pool2d.default": _adaptive_max,
    "adaptive_max_pool3d.default": lambda cx, x, counts: _adaptive_max(cx, x, counts, 3),
    "max_unpool2d.default": _unpooling,
}
