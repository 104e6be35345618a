"""GridSample and AffineGrid: values of an image at places that an operand gives, in any number of dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax, te, tirx

from ..equal_sizes import require_shape
from ..node import Converted, OnnxNode
from .runtime_shapes import as_int64, empty, intrinsics, is_empty

_MODES = {
    "bilinear": "linear",
    "bicubic": "cubic",
    "linear": "linear",
    "cubic": "cubic",
    "nearest": "nearest",
}
_PADDINGS = ("zeros", "border", "reflection")
_CUBIC = -0.75
"""The coefficient of the cubic, as the standard has it."""


def _grid_sample(node: OnnxNode) -> Converted:
    given, padding = node.attribute("mode", "linear"), node.attribute("padding_mode", "zeros")
    if given not in _MODES:
        node.refuse(f"its mode {given!r} is not one of {', '.join(_MODES)}")
    if padding not in _PADDINGS:
        node.refuse(f"its padding_mode {padding!r} is not one of {', '.join(_PADDINGS)}")
    mode, aligned, dtype = _MODES[given], bool(node.attribute("align_corners", 0)), node.dtype()
    if mode != "nearest" and "float" not in dtype:
        node.refuse(f"it interpolates elements of {dtype}; only floating-point numbers are supported")
    grid_shape = node.shape(1)
    require_shape(node, "its grid", grid_shape, [node.shape()[0], *grid_shape[1:-1], len(node.shape()) - 2])
    sizes = [*node.shape()[:2], *grid_shape[1:-1]]
    if is_empty(sizes):
        return empty(node, sizes, dtype)
    wide = {"float16": "float32", "bfloat16": "float32"}.get(dtype, dtype) if mode != "nearest" else dtype
    grid = node.cast(node[1], "float64" if node.dtype(1) == "float64" else "float32")

    def sampled(data: te.Tensor, grid: te.Tensor, sizes: list[Any]) -> te.Tensor:
        return _sampled(data, grid, sizes, mode, padding, aligned)

    found = node.builder.call_te(sampled, node.cast(node[0], wide), grid, sizes)
    return found if wide == dtype else relax.op.astype(node.emit(found), dtype)


def _sampled(
    data: te.Tensor, grid: te.Tensor, sizes: list[Any], mode: str, padding: str, aligned: bool
) -> te.Tensor:
    """Two stages: the elements that are read and their weights, (..., axes, taps), and their sums."""
    rank, count = len(data.shape) - 2, {"nearest": 1, "linear": 2, "cubic": 4}[mode]
    extents = [as_int64(size) for size in data.shape[2:]]
    shape = (*grid.shape[:-1], rank, count)
    dtype = grid.dtype

    def by_axis(axis: Any, items: list[Any]) -> Any:
        found = items[-1]
        for n in range(len(items) - 1):
            found = tirx.Select(axis == n, items[n], found)
        return found

    def point(*place: Any) -> Any:
        *row, axis = place
        size = by_axis(axis, extents).astype(dtype)
        # The grid has its coordinates in reverse order: the last axis comes first.
        return _coordinate(grid(*row, rank - 1 - axis), size, mode, padding, aligned)

    points = te.compute(shape[:-1], point, name="points")

    def index(*place: Any) -> Any:
        *row, axis, tap = place
        low = intrinsics.floor(points(*row, axis)).astype("int64")
        first = {1: 0, 2: 0, 4: -1}[count]
        return _read(low + first + as_int64(tap), by_axis(axis, extents), padding, aligned)

    def weight(*place: Any) -> Any:
        *row, axis, tap = place
        at = points(*row, axis)
        return _weight(mode, at - intrinsics.floor(at), tap)

    indexes = te.compute(shape, index, name="indexes")
    weights = te.compute(shape, weight, name="weights") if count > 1 else None

    def element(batch: Any, channel: Any, *row: Any) -> Any:
        def total(axis: int, where: list[Any], inside: list[Any]) -> Any:
            if axis == rank:
                found = data(batch, channel, *where)
                return (
                    tirx.if_then_else(tirx.all(*inside), found, tirx.const(0, data.dtype))
                    if inside
                    else found
                )
            parts = []
            for tap in range(count):
                at = indexes(batch, *row, axis, tap)
                known = [*inside, at >= 0] if padding == "zeros" else inside
                part = total(axis + 1, [*where, at], known)
                parts.append(
                    part if weights is None else weights(batch, *row, axis, tap).astype(data.dtype) * part
                )
            found = parts[0]
            for part in parts[1:]:
                found = found + part
            return found

        return total(0, [], [])

    return te.compute(sizes, element, name="grid_sample")


def _coordinate(given: Any, size: Any, mode: str, padding: str, aligned: bool) -> Any:
    """The coordinate among the elements of an axis for one from -1 to 1; out of range it is folded or limited."""
    x = (given + 1.0) / 2.0 * (size - 1.0) if aligned else ((given + 1.0) * size - 1.0) / 2.0
    x = intrinsics.nearbyint(x) if mode == "nearest" else x
    low, high = _bounds(size, aligned)
    outside = tirx.any(x < low, x > high)
    if padding == "border" and mode != "cubic":  # a cubic limits the place of each read
        x = tirx.Select(outside, tirx.min(tirx.max(x, size * 0.0), size - 1.0), x)
    elif padding == "reflection":
        x = tirx.Select(outside, _reflected(x, low, high), x)
    # A place this far outside reads no element of the image; NaN becomes such a place.
    far = size * 0.0 - 4.0
    return tirx.Select(tirx.isnan(x), far, tirx.min(tirx.max(x, far), size + 4.0))


def _bounds(size: Any, aligned: bool) -> tuple[Any, Any]:
    return (size * 0.0, size - 1.0) if aligned else (size * 0.0 - 0.5, size - 0.5)


def _reflected(x: Any, low: Any, high: Any) -> Any:
    """``x`` reflected at the borders until it is between them."""
    span = high - low
    pace = tirx.Select(span > 0.0, span, span * 0.0 + 1.0)
    far = intrinsics.abs(x - low)
    times = intrinsics.floor(far / pace)
    rest = far - times * pace
    folded = tirx.Select(times - 2.0 * intrinsics.floor(times / 2.0) == 0.0, low + rest, high - rest)
    return tirx.Select(span > 0.0, folded, low)


def _read(at: Any, size: Any, padding: str, aligned: bool) -> Any:
    """The index that is read for a place; -1 for a place outside that counts as zero."""
    last = tirx.max(size - 1, as_int64(0))
    if padding == "zeros":
        return tirx.Select(tirx.all(at >= 0, at < size), at, as_int64(-1))
    if padding == "reflection":
        # Whole places are reflected in whole numbers: around the edge elements, or behind them.
        span = tirx.max(last if aligned else size, as_int64(1))
        turned = at if aligned else tirx.Select(at < 0, -at - 1, at)
        far = intrinsics.abs(turned)
        times, rest = tirx.floordiv(far, span), tirx.floormod(far, span)
        back = span - rest if aligned else span - 1 - rest
        at = tirx.Select(tirx.floormod(times, as_int64(2)) == 0, rest, back)
    return tirx.min(tirx.max(at, as_int64(0)), last)


def _weight(mode: str, rest: Any, tap: Any) -> Any:
    """The weight of a tap for a coordinate that is ``rest`` after the element to the left."""
    if mode == "linear":
        return tirx.Select(tap == 0, 1.0 - rest, rest)
    a = _CUBIC
    distance = intrinsics.abs(tap.astype(str(rest.expr_ty().dtype)) - 1.0 - rest)
    near = ((a + 2.0) * distance - (a + 3.0)) * distance * distance + 1.0
    far = ((a * distance - 5.0 * a) * distance + 8.0 * a) * distance - 4.0 * a
    return tirx.Select(distance <= 1.0, near, far)


def _affine_grid(node: OnnxNode) -> Converted:
    """The places that an affine map gives for each element of an image of the size that an operand has."""
    batch, _, *spatial = node.sizes(1)
    require_shape(node, "theta", node.shape(), [batch, len(spatial), len(spatial) + 1])
    aligned, dtype = bool(node.attribute("align_corners", 0)), node.dtype()
    wide = "float64" if dtype == "float64" else "float32"
    sizes = [batch, *spatial, len(spatial)]
    if is_empty(sizes):
        return empty(node, sizes, dtype)

    def grid(theta: te.Tensor, sizes: list[Any]) -> te.Tensor:
        extents = sizes[1:-1]

        def element(n: Any, *place: Any) -> Any:
            *row, k = place
            bases = [_base(at, size, aligned, wide) for at, size in zip(row, extents, strict=True)]
            found = theta(n, k, len(extents))
            for column, base in enumerate(reversed(bases)):  # the last axis has the first coordinate
                found = found + theta(n, k, column) * base
            return found

        return te.compute(sizes, element, name="affine_grid")

    found = node.builder.call_te(grid, node.cast(node[0], wide), sizes)
    return found if wide == dtype else relax.op.astype(node.emit(found), dtype)


def _base(at: Any, size: Any, aligned: bool, dtype: str) -> Any:
    """The coordinate from -1 to 1 of an element of an axis; -1 and 1 are its ends, or its first and last element."""
    extent, place = as_int64(size).astype("float64"), at.astype("float64")
    if aligned:
        found = place * 2.0 / tirx.max(extent - 1.0, tirx.const(1, "float64")) - 1.0
    else:
        found = (place * 2.0 + 1.0) / extent - 1.0
    return found.astype(dtype)


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "AffineGrid": _affine_grid,
    "GridSample": _grid_sample,
}

MICROSOFT: Mapping[str, Callable[[OnnxNode], Converted]] = {"GridSample": _grid_sample}
