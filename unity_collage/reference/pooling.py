"""Pooling in one, two or three dimensions and every layout; sums in double precision.

Maximum and sum are computed one axis after the other (separably), so a window costs the sum of its sides instead of
their product.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unity_collage.reference.convolution import sides
from unity_collage.reference.layout import from_order, spatial, to_order
from unity_collage.reference.reduce import wide
from unity_collage.reference.values import Call, Operator, lowest, truncated_divide, whole_numbers


class _Axis:
    """The windows along one spatial axis."""

    def __init__(self, call: Call, number: int, rank: int, size: int) -> None:
        attrs = call.attrs
        self.before, after = sides(whole_numbers(attrs.padding), rank)[number]
        self.end = size + after
        self.stride, self.dilation = int(attrs.strides[number]), int(attrs.dilation[number])
        self.taps = int(attrs.pool_size[number])
        self.size = size
        self.count = self._windows(bool(attrs.ceil_mode))

    def _windows(self, ceil: bool) -> int:
        """The number of windows; with ``ceil`` the last one may be cut off, but must begin before the padding
        behind."""
        room = self.before + self.end - (self.taps - 1) * self.dilation - 1
        count = -(-room // self.stride) + 1 if ceil else room // self.stride + 1
        return count - (ceil and (count - 1) * self.stride >= self.size + self.before)

    @property
    def reach(self) -> int:
        """The length of the padded axis up to the end of the last window."""
        return (self.count - 1) * self.stride + (self.taps - 1) * self.dilation + 1

    def tap(self, number: int) -> slice:
        """The slice of the elements that are the ``number``-th ones of their windows."""
        first = number * self.dilation
        return slice(first, first + (self.count - 1) * self.stride + 1, self.stride)

    def elements(self, with_padding: bool) -> np.ndarray:
        """For each window the number of elements by which its average divides."""
        start = np.arange(self.count)[:, None] * self.stride - self.before
        places = start + np.arange(self.taps) * self.dilation
        low, high = (-self.before, self.end) if with_padding else (0, self.size)
        return ((places >= low) & (places < high)).sum(axis=1)


def _axes(call: Call, x: np.ndarray) -> list[_Axis]:
    rank = x.ndim - 2
    return [_Axis(call, number, rank, x.shape[2 + number]) for number in range(rank)]


def _pooled(x: np.ndarray, axes: list[_Axis], combine: np.ufunc, empty: float) -> np.ndarray:
    """``combine`` over the windows of (N, C, in...), with the value ``empty`` as padding."""
    for number, axis in enumerate(axes, start=2):
        line = np.moveaxis(x, number, 0)[: axis.reach - axis.before]
        behind = max(axis.reach - axis.before - len(line), 0)
        widths = [(axis.before, behind), *[(0, 0)] * (x.ndim - 1)]
        line = np.pad(line, widths, constant_values=empty)
        result = line[axis.tap(0)]
        for tap in range(1, axis.taps):
            result = combine(result, line[axis.tap(tap)])
        x = np.moveaxis(result, 0, number)
    return x


def _maximum(call: Call, x: np.ndarray) -> np.ndarray:
    return _pooled(x, _axes(call, x), np.maximum, lowest(x.dtype))


def _average(call: Call, x: np.ndarray) -> np.ndarray:
    axes = _axes(call, x)
    counts = np.ones((), dtype=np.int64)
    for axis in axes:
        counts = counts[..., None] * axis.elements(bool(call.attrs.count_include_pad))
    return truncated_divide(_pooled(wide(x), axes, np.add, 0), np.maximum(counts, 1))


def _adaptive(call: Call, x: np.ndarray) -> np.ndarray:
    """Averages over windows that divide the input as evenly as possible."""
    wanted = call.attrs.output_size
    sizes = x.shape[2:] if wanted is None else whole_numbers(wanted)
    result = wide(x)
    for axis, (size, out) in enumerate(zip(x.shape[2:], sizes, strict=True), start=2):
        bounds = [(number * size // out, -(-(number + 1) * size // out)) for number in range(out)]
        parts = [result.take(range(*bound), axis=axis).mean(axis=axis) for bound in bounds]
        result = np.stack(parts, axis=axis)
    return result


def _in_layout(pool: Callable[[Call, np.ndarray], np.ndarray]) -> Operator:
    def compute(call: Call, x: np.ndarray) -> np.ndarray:
        order = "NC" + spatial(call.attrs.layout)
        result = pool(call, to_order(x, call.attrs.layout, order))
        return from_order(result, order, call.attrs.out_layout or call.attrs.layout)

    return Operator(compute)


OPERATORS: dict[str, Operator] = {
    f"relax.nn.{name}{rank}d": _in_layout(pool)
    for name, pool in (("max_pool", _maximum), ("avg_pool", _average), ("adaptive_avg_pool", _adaptive))
    for rank in (1, 2, 3)
}
