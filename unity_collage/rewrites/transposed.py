"""transposed: a transposed convolution is a product or convolutions, and their pixels are then put in place.

A pixel of the result belongs to a phase: its place modulo the strides. The pixels of one phase are a convolution of
the image by some taps of the window in reverse. The source is Shi et al., "Is the deconvolution layer the same as a
convolutional layer?", 2016. If windows do not overlap there is one tap, and the convolution is a product. Otherwise
either each phase is a convolution, or all phases are one convolution with as many times the channels.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, prod

import numpy as np

from ..graph.shapes import extents_of
from .constants import constant
from .placing import PatchAxis, placed
from .rewrite import Rewrite
from .scope import Call, Expr, Scope, dtype_of, is_float, op, op_name, rank_of, static_shape
from .why_not import WhyNot
from .windows import spatial_axes, window

_TRANSPOSED = ("relax.nn.conv1d_transpose", "relax.nn.conv2d_transpose", "relax.nn.conv3d_transpose")
_LAYOUTS = ("NCW", "NCHW", "NCDHW")
_CHANNELS_LAST = (("NWC", "WIO"), ("NHWC", "HWIO"), ("NDHWC", "DHWIO"))

_LANES = 16
"""Output channels are computed in groups of this size."""
_KERNEL = 250_000
"""How many multiplications take about as long as one more kernel: 1 us."""


@dataclass(frozen=True, slots=True)
class _Window:
    """The taps that make one phase along an axis, and the padding of the image for them, which may be negative."""

    taps: slice
    count: int
    before: int
    behind: int


@dataclass(frozen=True, slots=True)
class _Axis:
    """A spatial axis of a transposed convolution."""

    size: int
    """Pixels of the image."""
    taps: int
    """Of the window."""
    stride: int
    before: int
    """Pixels that are cut off in front of the result."""
    extent: int
    """Pixels of the result."""

    @property
    def overlap(self) -> int:
        """How many windows add to a pixel of the result, at most."""
        return ceil(self.taps / self.stride)

    @property
    def reach(self) -> int:
        """How many pixels of each phase windows add to."""
        return self.size + self.overlap - 1

    @property
    def rows(self) -> int:
        """How many pixels of a phase the result has, at most."""
        return ceil(self.extent / self.stride)

    def window(self, phase: int) -> _Window:
        """The taps for the pixels ``phase``, ``phase + stride``, ... of the result."""
        shift, first = divmod(phase + self.before, self.stride)
        count = len(range(first, self.taps, self.stride))
        before = count - 1 - shift
        return _Window(
            slice(first, None, self.stride), count, before, self.rows + count - 1 - self.size - before
        )


@dataclass(frozen=True, slots=True)
class _Transposed:
    """A transposed convolution of the image ``pixels`` (N, H, W, C) by ``taps`` (kh, kw, C, O)."""

    pixels: Expr
    images: int
    taps: np.ndarray
    axes: tuple[_Axis, ...]

    @classmethod
    def of(cls, call: Call, weights: np.ndarray) -> _Transposed:
        kernel, spatial = str(call.attrs.kernel_layout), rank_of(call) - 2
        order = [*(spatial_axes(kernel) or []), kernel.index("I"), kernel.index("O")]
        pixels = op.permute_dims(call.args[0], [0, *range(2, spatial + 2), 1])
        return cls(pixels, extents_of(call)[0], weights.transpose(order), _axes(call))

    def expanded(self) -> Expr:
        """(N, O, H', W'), by the way that takes the fewest multiplications."""
        if all(axis.overlap == 1 for axis in self.axes):
            return self._product()
        apart = self._apart_cost()
        return self._apart() if apart is not None and apart < self._stacked_cost() else self._stacked()

    def _product(self) -> Expr:
        """x (1, 1, N, H, W, C) times w (kh, kw, 1, 1, C, O): (kh, kw, N, H, W, O)."""
        spatial, taps = len(self.axes), self._whole()
        units, sizes = [1] * spatial, [axis.size for axis in self.axes]
        rows = op.reshape(self.pixels, [*units, self.images, *sizes, taps.shape[-2]])
        weights = taps.reshape([*taps.shape[:spatial], *units, *taps.shape[spatial:]])
        # Batches in front: the kernel of a product writes its rows where they belong.
        order = [
            spatial,
            *(i for axis in range(spatial) for i in (spatial + 1 + axis, axis)),
            2 * spatial + 1,
        ]
        return placed(
            op.matmul(rows, constant(weights)), order, self.images, taps.shape[-1], self._places("size")
        )

    def _stacked(self) -> Expr:
        """One convolution that makes all phases of a pixel side by side: (N, H, W, kh kw O)."""
        spatial, taps = len(self.axes), self._whole()
        split = [extent for axis in self.axes for extent in (axis.overlap, axis.stride)]
        order = [*range(0, 2 * spatial, 2), 2 * spatial, *range(1, 2 * spatial, 2), 2 * spatial + 1]
        overlap = [axis.overlap for axis in self.axes]
        weights = taps.reshape([*split, *taps.shape[-2:]]).transpose(order)
        padding = [windows - 1 for windows in overlap]
        image = _convolution(self.pixels, weights.reshape([*overlap, taps.shape[-2], -1]), padding, padding)
        return self._side_by_side(image, self._places("reach"))

    def _apart(self) -> Expr:
        """A convolution (N, H, W, O) for each phase."""
        parts = []
        for windows in self._phases():
            taps = self.taps[tuple(axis.taps for axis in windows)]
            before, behind = [axis.before for axis in windows], [axis.behind for axis in windows]
            parts.append(_convolution(self.pixels, taps, before, behind))
        if len(parts) == 1:
            return op.permute_dims(parts[0], [0, len(self.axes) + 1, *range(1, len(self.axes) + 1)])
        image = op.concat(parts, axis=len(self.axes) + 1)
        return self._side_by_side(image, [PatchAxis(a.rows, a.stride, 0, a.extent) for a in self.axes])

    def _side_by_side(self, image: Expr, places: Sequence[PatchAxis]) -> Expr:
        """The pixels in (N, H, W, kh kw O) moved into the image."""
        spatial, units = len(places), self.taps.shape[-1]
        counts, strides = [place.count for place in places], [place.stride for place in places]
        patches = op.reshape(image, [self.images, *counts, *strides, units])
        order = [0, *(i for axis in range(1, spatial + 1) for i in (axis, axis + spatial)), 2 * spatial + 1]
        return placed(patches, order, self.images, units, places)

    def _places(self, count: str) -> list[PatchAxis]:
        return [PatchAxis(getattr(axis, count), axis.stride, axis.before, axis.extent) for axis in self.axes]

    def _whole(self) -> np.ndarray:
        """The taps with zeros up to a multiple of the strides."""
        missing = [(0, axis.overlap * axis.stride - axis.taps) for axis in self.axes]
        return np.pad(self.taps, [*missing, (0, 0), (0, 0)])

    def _phases(self) -> Iterator[list[_Window]]:
        for phase in itertools.product(*(range(axis.stride) for axis in self.axes)):
            yield [axis.window(number) for axis, number in zip(self.axes, phase, strict=True)]

    def _stacked_cost(self) -> int:
        """The number of multiplications, with the superfluous ones at the edges and by zeros."""
        channels, units = self.taps.shape[-2:]
        phases = prod(axis.stride for axis in self.axes)
        return prod(axis.reach * axis.overlap for axis in self.axes) * channels * _filled(phases * units)

    def _apart_cost(self) -> int | None:
        """The number of multiplications, plus the overhead of kernels.

        None if a phase has no tap or reads only a part of the image.
        """
        channels, units = self.taps.shape[-2:]
        phases = list(self._phases())
        if any(min(axis.count - 1, axis.before, axis.behind) < 0 for windows in phases for axis in windows):
            return None
        taps = sum(prod(axis.count for axis in windows) for windows in phases)
        rows = prod(axis.rows for axis in self.axes)
        return rows * taps * channels * _filled(units) + (len(phases) - 1) * _KERNEL


def _expanded(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """conv2d_transpose(x, w) -> a product or convolutions, and their pixels put in place."""
    weights = scope.array(call.args[1])
    why = "its weights are not constant" if weights is None else why_not_expanded(call)
    if weights is None or why is not None:
        return WhyNot(f"{op_name(call).removeprefix('relax.nn.')} stays: {why}")
    return _Transposed.of(call, weights).expanded()


def why_not_expanded(call: Call) -> str | None:
    """Why a transposed convolution stays as it is, or None."""
    attrs = call.attrs
    if static_shape(call.args[0]) is None or static_shape(call) is None:
        return "its shape is not known"
    if not is_float(call) or dtype_of(call) != dtype_of(call.args[0]):
        return f"it makes {dtype_of(call)} of {dtype_of(call.args[0])}"
    data, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
    if data not in _LAYOUTS or str(attrs.out_layout or data) != data or not kernel.isalpha():
        return f"its layouts are {data}, {kernel} and {attrs.out_layout}"
    if int(attrs.groups) != 1:
        return f"it has {attrs.groups} groups"
    if any(step != 1 for step in window(call, "dilation")):
        return "it is dilated"
    if any(axis.before + axis.extent > axis.stride * axis.reach for axis in _axes(call)):
        return "its result is larger than what its windows reach"
    return None


def _axes(call: Call) -> tuple[_Axis, ...]:
    """The spatial axes. Windows of an image of one pixel do not overlap, whatever the stride."""
    sizes, extents = (static_shape(tensor) or () for tensor in (call.args[0], call))
    kernel = str(call.attrs.kernel_layout)
    taps = [extents_of(call.args[1])[axis] for axis in spatial_axes(kernel) or []]
    found = zip(sizes[2:], taps, window(call, "strides"), window(call, "padding"), extents[2:], strict=False)
    return tuple(
        _Axis(size, count, max(count, before + extent) if size == 1 else stride, before, extent)
        for size, count, stride, before, extent in found
    )


def _convolution(pixels: Expr, taps: np.ndarray, before: Sequence[int], behind: Sequence[int]) -> Expr:
    """The convolution of an image (N, H, W, C) with this padding by ``taps`` (kh, kw, C, O) in reverse."""
    spatial = taps.ndim - 2
    data, kernel = _CHANNELS_LAST[spatial - 1]
    make = (op.nn.conv1d, op.nn.conv2d, op.nn.conv3d)[spatial - 1]
    weights = constant(np.ascontiguousarray(np.flip(taps, tuple(range(spatial)))))
    return make(pixels, weights, padding=[*before, *behind], data_layout=data, kernel_layout=kernel)


def _filled(units: int) -> int:
    return -(-units // _LANES) * _LANES


EXPAND_TRANSPOSED = Rewrite("expand_transposed", _TRANSPOSED, _expanded)
