"""Which elements of an axis Resize reads for each element of its result, and with which weights.

Resizing is separable: each axis has a table of indexes and one of weights, (size of the result, number of taps). The
formulas are those of the standard. They are written once for both numpy, if the sizes are known, and TE, if they are
known only when the program runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from .runtime_shapes import as_int64, intrinsics


@dataclass(frozen=True, slots=True)
class Maths:
    """The functions that numpy and TE call differently."""

    floor: Callable[[Any], Any]
    ceil: Callable[[Any], Any]
    absolute: Callable[[Any], Any]
    choose: Callable[[Any, Any, Any], Any]
    """By a condition the first or the second of two values."""
    clip: Callable[[Any, Any, Any], Any]


NUMPY = Maths(np.floor, np.ceil, np.abs, np.where, np.clip)
TE = Maths(
    intrinsics.floor,
    intrinsics.ceil,
    intrinsics.abs,
    tirx.Select,
    lambda x, low, high: tirx.min(tirx.max(x, low), high),
)


@dataclass(frozen=True, slots=True)
class Interpolation:
    """The attributes of a Resize."""

    mode: str
    """nearest, linear or cubic."""
    transform: str
    """The coordinate transformation mode."""
    nearest: str
    """How nearest rounds."""
    coefficient: float
    """The coefficient a of the cubic."""
    excludes_outside: bool
    antialias: bool

    @property
    def half_width(self) -> int:
        """How many elements on each side of a coordinate are read, without antialiasing."""
        return {"nearest": 0, "linear": 1, "cubic": 2}[self.mode]


@dataclass(frozen=True, slots=True)
class Extent:
    """The sizes of an axis, as floating-point numbers of numpy or expressions of TE."""

    size: Any
    """The size of the operand."""
    made: Any
    """The size of the result."""
    scale: Any
    """Result to operand; not always made / size, because sizes are whole."""
    begin: Any = 0.0
    end: Any = 1.0
    """The region of interest, relative to the operand."""


def coordinate(maths: Maths, method: Interpolation, place: Any, extent: Extent) -> Any:
    """The coordinate in the operand for a ``place`` in the result."""
    half = (place + 0.5) / extent.scale - 0.5
    last = extent.size - 1.0
    is_one = extent.made == 1.0
    gap = maths.choose(is_one, extent.made, extent.made - 1.0)  # never 0
    if method.transform == "half_pixel":
        return half
    if method.transform == "asymmetric":
        return place / extent.scale
    if method.transform == "pytorch_half_pixel":
        return maths.choose(is_one, half * 0.0, half)
    if method.transform == "tf_half_pixel_for_nn":
        return (place + 0.5) / extent.scale
    if method.transform == "align_corners":
        return maths.choose(is_one, place * 0.0, place * last / gap)
    if method.transform == "half_pixel_symmetric":
        width = extent.scale * extent.size  # the size of the result before it was cut to a whole number
        return extent.size / 2.0 * (1.0 - extent.made / width) + half
    region = extent.end - extent.begin  # tf_crop_and_resize
    inside = maths.choose(is_one, place * 0.0 + region * last / 2.0, place * region * last / gap)
    return inside + extent.begin * last


def rounded(maths: Maths, method: Interpolation, x: Any, scale: Any) -> Any:
    """The nearest whole coordinate; "simple" is what version 10 does."""
    if method.nearest == "simple":
        return maths.choose(scale < 1.0, maths.ceil(x), maths.floor(x))
    if method.nearest == "floor":
        return maths.floor(x)
    if method.nearest == "ceil":
        return maths.ceil(x)
    return maths.ceil(x - 0.5) if method.nearest == "round_prefer_floor" else maths.floor(x + 0.5)


def taps(maths: Maths, method: Interpolation, scale: Any) -> Any:
    """How many elements are read for each of the result; antialiasing reads more where the result is smaller."""
    if method.mode == "nearest":
        return 1
    return 2 * (maths.ceil(method.half_width / _shrinking(maths, method, scale)))


def _shrinking(maths: Maths, method: Interpolation, scale: Any) -> Any:
    """The scale by which the filter is stretched, at most 1."""
    if not method.antialias:
        return 1.0
    return maths.choose(scale < 1.0, scale, scale * 0.0 + 1.0)


def tap(maths: Maths, method: Interpolation, x: Any, number: Any, scale: Any) -> tuple[Any, Any]:
    """The coordinate and the weight, not yet normalised, of the ``number``-th element that is read for ``x``."""
    if method.mode == "nearest":
        return rounded(maths, method, x, scale), 1.0
    shrinking = _shrinking(maths, method, scale)
    low = maths.floor(x)
    place = low + (1.0 - maths.ceil(method.half_width / shrinking)) + number
    return place, _weight(maths, method, maths.absolute(place - x) * shrinking)


def _weight(maths: Maths, method: Interpolation, distance: Any) -> Any:
    if method.mode == "linear":
        return maths.choose(distance < 1.0, 1.0 - distance, distance * 0.0)
    a = method.coefficient  # Keys, "Cubic convolution interpolation for digital image processing", 1981
    near = ((a + 2.0) * distance - (a + 3.0)) * distance * distance + 1.0
    far = ((a * distance - 5.0 * a) * distance + 8.0 * a) * distance - 4.0 * a
    return maths.choose(distance <= 1.0, near, maths.choose(distance < 2.0, far, distance * 0.0))


@dataclass(frozen=True, slots=True)
class Table:
    """The tables of one axis: arrays, or tensors of TE."""

    indexes: Any
    """(size of the result, taps), int64, inside of the operand."""
    weights: Any
    """The same shape, or None: there is one tap."""
    inside: Any
    """(size of the result), int8: 0 where the extrapolation value is the result; None where there is none."""


def known_table(
    method: Interpolation, size: int, made: int, scale: float | None, region: tuple[float, float], dtype: str
) -> Table:
    """The table of an axis of known sizes; without a scale it is that of the sizes. Coordinates are ``dtype``."""
    number = np.dtype(dtype).type
    scale_ = number(made) / number(size) if scale is None else number(scale)
    extent = Extent(number(size), number(made), scale_, number(region[0]), number(region[1]))
    x = np.asarray(coordinate(NUMPY, method, np.arange(made, dtype=dtype), extent))
    numbers = np.arange(int(taps(NUMPY, method, scale_)), dtype=dtype)
    place, weights = tap(NUMPY, method, x[:, None], numbers[None, :], scale_)
    place = place * np.ones((1, len(numbers)))
    inside = None
    if method.transform == "tf_crop_and_resize":
        inside = ((x >= 0) & (x <= size - 1)).astype("int8")
    indexes = np.clip(place, 0, size - 1).astype("int64")
    if method.mode == "nearest":
        return Table(indexes, None, inside)
    if method.excludes_outside:
        weights = np.where((place < 0) | (place > size - 1), 0.0, weights)
    if method.excludes_outside or method.antialias:
        total = weights.sum(axis=1, keepdims=True)
        weights = weights / np.where(total == 0, 1.0, total)
    return Table(indexes, weights, inside)


def computed_table(
    method: Interpolation, size: Any, made: Any, count: Any, scale: te.Tensor, region: te.Tensor, dtype: str
) -> list[te.Tensor]:
    """The tables of an axis with sizes that are integer expressions; ``scale`` has one element, and ``region`` two."""
    factor = scale(0).astype(dtype)
    wide, high = as_int64(size).astype(dtype), as_int64(made).astype(dtype)
    extent = Extent(wide, high, factor, region(0).astype(dtype), region(1).astype(dtype))

    def x(place: Any) -> Any:
        return coordinate(TE, method, place.astype(dtype), extent)

    def read(place: Any, number: Any) -> tuple[Any, Any]:
        return tap(TE, method, x(place), number.astype(dtype), factor)

    def index(place: Any, number: Any) -> Any:
        found = TE.clip(read(place, number)[0], tirx.const(0, dtype), wide - 1.0)
        return tirx.min(
            tirx.max(found.astype("int64"), as_int64(0)), tirx.max(as_int64(size) - 1, as_int64(0))
        )

    def weight(place: Any, number: Any) -> Any:
        at, found = read(place, number)
        outside = tirx.any(at < 0.0, at > wide - 1.0)
        return TE.choose(outside, tirx.const(0, dtype), found) if method.excludes_outside else found

    indexes = te.compute((made, count), index, name="indexes")
    inside = te.compute(
        (made,), lambda n: tirx.all(x(n) >= 0.0, x(n) <= wide - 1.0).astype("int8"), name="inside"
    )
    if method.mode == "nearest":
        return [indexes, inside]
    plain = te.compute((made, count), weight, name="plain_weights")
    if not (method.excludes_outside or method.antialias):
        return [indexes, inside, plain]
    number = te.reduce_axis((0, count), "number")
    total = te.compute((made,), lambda n: te.sum(plain(n, number), axis=number), name="total")
    normal = te.compute(
        (made, count),
        lambda n, k: plain(n, k) / tirx.Select(total(n) == 0.0, tirx.const(1, dtype), total(n)),
        name="weights",
    )
    return [indexes, inside, normal]
