"""The windows of convolutions and poolings along each axis: which taps are applied to which positions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tvm import relax
from tvm.ir import Attrs

from ..graph.calls import op_name
from ..graph.shapes import shape_of

WINOGRAD_TILE = 8
"""The widest tile that a kernel transforms: F(6,3) loses three digits of float32 already."""


@dataclass(frozen=True, slots=True)
class Axis:
    """``count`` windows of ``taps`` taps, ``stride`` apart, over ``extent`` positions after ``padding``.

    The windows of a transposed convolution belong to the input, and the positions to the output.
    """

    count: int
    taps: int
    stride: int
    dilation: int
    padding: int
    extent: int

    @property
    def products(self) -> int:
        """How many taps of all windows lie on a position, not in the padding."""
        return len(_products(self))

    @property
    def uses_every_window(self) -> bool:
        """Whether every window contains a position."""
        return len({window for window, _, _ in _products(self)}) == self.count

    @property
    def uses_every_tap(self) -> bool:
        """Whether every tap lies on a position in some window."""
        return len({tap for _, tap, _ in _products(self)}) == self.taps

    @property
    def uses_every_position(self) -> bool:
        """Whether every position is in some window."""
        return len({position for _, _, position in _products(self)}) == self.extent

    @property
    def saving(self) -> float:
        """The largest factor by which Winograd's F(m, r) can reduce the multiplications along this axis.

        With tiles of ``m + r - 1 = 8`` it needs 8 multiplications for ``m r``. For r = 3 that is a factor of 2.25 (5.06
        in two dimensions, against 4 of F(4x4, 3x3)). The best factor is 2.5, for 4 and 5 taps or longer filters cut
        into such. A stride s divides the filter into s filters of every s-th tap, and each of those could be reduced.
        """
        taps = -(-self.taps // self.stride)
        return max(r * (WINOGRAD_TILE + 1 - r) / WINOGRAD_TILE for r in range(1, min(taps, 5) + 1))


@cache
def _products(axis: Axis) -> tuple[tuple[int, int, int], ...]:
    """(window, tap, position) of each product."""
    return tuple(
        (window, tap, position)
        for window in range(axis.count)
        for tap in range(axis.taps)
        if 0 <= (position := window * axis.stride + tap * axis.dilation - axis.padding) < axis.extent
    )


def convolution_axes(call: relax.Call) -> tuple[Axis, ...]:
    """The spatial axes of a convolution; empty where a layout is blocked or a shape unknown."""
    attrs = call.attrs
    data = _extents(call.args[0], str(attrs.data_layout))
    kernel = _extents(call.args[1], str(attrs.kernel_layout))
    out = _extents(call, str(attrs.out_layout or attrs.data_layout))
    if data is None or kernel is None or out is None:
        return ()
    windows, positions = (data, out) if op_name(call).endswith("_transpose") else (out, data)
    names = [name for name in data if name in "DHW"]
    return _axes(attrs, names, windows, positions, kernel)


def pooling_axes(call: relax.Call) -> tuple[Axis, ...]:
    """The spatial axes of a pooling; empty where a layout is blocked or a shape unknown."""
    attrs = call.attrs
    data = _extents(call.args[0], str(attrs.layout))
    out = _extents(call, str(attrs.out_layout or attrs.layout))
    if data is None or out is None:
        return ()
    names = [name for name in data if name in "DHW"]
    return _axes(attrs, names, out, data, dict(zip(names, map(int, attrs.pool_size), strict=True)))


def _extents(value: relax.Expr, layout: str) -> dict[str, int] | None:
    """The extents by the letters of ``layout``; None where it is blocked or an extent unknown."""
    shape = shape_of(value)
    if shape is None or not layout.isalpha():
        return None
    return dict(zip(layout, shape, strict=True))


def _axes(
    attrs: Attrs,
    names: list[str],
    windows: dict[str, int],
    positions: dict[str, int],
    taps: dict[str, int],
) -> tuple[Axis, ...]:
    return tuple(
        Axis(
            windows[name],
            taps[name],
            int(attrs.strides[number]),
            int(attrs.dilation[number]),
            int(attrs.padding[number]),
            positions[name],
        )
        for number, name in enumerate(names)
    )
