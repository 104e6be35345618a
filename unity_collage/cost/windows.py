"""The windows of convolutions and poolings, axis by axis: which taps meet which positions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tvm import relax

from ..graph.shapes import shape_of

WINOGRAD_TILE = 8
"""No kernel transforms tiles wider than this: F(6,3) loses three digits of float32 already."""


@dataclass(frozen=True, slots=True)
class Axis:
    """``count`` windows of ``taps``, ``stride`` apart, over ``extent`` positions behind ``padding``.

    Of a transposed convolution the windows belong to the input and the positions to the output.
    """

    count: int
    taps: int
    stride: int
    dilation: int
    padding: int
    extent: int

    @property
    def products(self) -> int:
        """How many taps of all windows lie on a position and not in the padding."""
        return len(_meetings(self))

    @property
    def uses_every_window(self) -> bool:
        return len({window for window, _, _ in _meetings(self)}) == self.count

    @property
    def uses_every_tap(self) -> bool:
        return len({tap for _, tap, _ in _meetings(self)}) == self.taps

    @property
    def uses_every_position(self) -> bool:
        return len({position for _, _, position in _meetings(self)}) == self.extent

    @property
    def saving(self) -> float:
        """The most that Winograd's F(m, r) saves of the multiplications along this axis.

        With tiles of ``m + r - 1 = 8`` it needs 8 for ``m r``: at r = 3 that is 2.25 (5.06 in two dimensions,
        against 4 of F(4x4, 3x3)), and 2.5 at best, for 4 and 5 taps or filters cut into such. A stride s divides
        the filter into s of every s-th tap, each of which could be computed so.
        """
        taps = -(-self.taps // self.stride)
        return max(r * (WINOGRAD_TILE + 1 - r) / WINOGRAD_TILE for r in range(1, min(taps, 5) + 1))


@cache
def _meetings(axis: Axis) -> tuple[tuple[int, int, int], ...]:
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
    layouts = str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout or attrs.data_layout)
    shapes = shape_of(call.args[0]), shape_of(call.args[1]), shape_of(call)
    if None in shapes or not all(layout.isalpha() for layout in layouts):
        return ()
    data, kernel, out = (
        dict(zip(layout, shape, strict=True)) for layout, shape in zip(layouts, shapes, strict=True)
    )
    windows, positions = (data, out) if call.op.name.endswith("_transpose") else (out, data)
    names = [name for name in layouts[0] if name in "DHW"]
    return _axes(attrs, names, windows, positions, kernel)


def pooling_axes(call: relax.Call) -> tuple[Axis, ...]:
    """The spatial axes of a pooling; empty where a layout is blocked or a shape unknown."""
    attrs = call.attrs
    layouts = str(attrs.layout), str(attrs.out_layout or attrs.layout)
    shapes = shape_of(call.args[0]), shape_of(call)
    if None in shapes or not all(layout.isalpha() for layout in layouts):
        return ()
    data, out = (dict(zip(layout, shape, strict=True)) for layout, shape in zip(layouts, shapes, strict=True))
    names = [name for name in layouts[0] if name in "DHW"]
    return _axes(attrs, names, out, data, dict(zip(names, map(int, attrs.pool_size), strict=True)))


def _axes(
    attrs: relax.Expr,
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
