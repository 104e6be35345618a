"""Resize and Upsample in all modes, for any rank, with sizes that are known or computed when the program runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from ..node import Converted, OnnxNode
from ..symbolic import are_equal
from ..values import Dim
from .resize_tables import TE, Interpolation, Table, computed_table, known_table, taps
from .runtime_shapes import (
    as_int64,
    computed,
    empty,
    fixed,
    intrinsics,
    is_empty,
    results,
    run_time_sizes,
    simple,
)

_TRANSFORMS = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_half_pixel_for_nn", "tf_crop_and_resize",
)  # fmt: skip
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_MOST_TAPS = 8
"""The most elements that one kernel reads for each of the result; beyond, each axis has a kernel of its own."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis that is resized."""

    axis: int
    size: Dim
    made: Dim
    scale: float | relax.Expr | None
    """A number, a vector of one element, or None: made / size."""
    region: tuple[float, float] | relax.Expr = (0.0, 1.0)
    given: bool = False
    """Whether the scale is an operand, not the ratio of sizes."""

    def dtype(self, method: Interpolation) -> str:
        """The element type of coordinates.

        Nearest rounds them, and a scale such as 1.6 is not a number of float32. In float32 8 / 1.6 is 5, as meant.
        """
        return "float32" if self.given and method.mode == "nearest" else "float64"


def _resize(node: OnnxNode) -> Converted:
    method = _method(node)
    chosen = node.attribute("axes")
    axes = list(range(node.rank())) if chosen is None else [node.axis(axis) for axis in chosen]
    first = 1 if node.version < 11 else 2  # the position of scales
    by_sizes = node.version >= 11 and _is_given(node, 3)
    changed = _by_sizes(node, axes) if by_sizes else _by_scales(node, axes, first)
    if method.transform == "tf_crop_and_resize":
        changed = _with_regions(node, axes, changed)
    changed = [part for part in changed if not _stays(part)]
    return _resized(node, method, changed)


def _is_given(node: OnnxNode, position: int) -> bool:
    """Whether an operand is given and not an empty tensor, which means the same as none."""
    return node.has(position) and not is_empty(node.shape(position))


def _upsample(node: OnnxNode) -> Converted:
    mode = node.attribute("mode", "nearest")
    method = Interpolation(
        "linear" if mode == "bilinear" else mode, "asymmetric", "floor", -0.75, False, False
    )
    if method.mode not in ("nearest", "linear"):
        node.refuse(f"its mode {mode!r} is not nearest or linear")
    axes = list(range(node.rank()))
    if node.version < 9:
        scales = [float(scale) for scale in node.required("scales")]
        changed = [
            _Axis(axis, size, _scaled(node, size, scale), scale, given=True)
            for axis, size, scale in zip(axes, node.shape(), scales, strict=True)
        ]
    else:
        changed = _by_scales(node, axes, 1)
    return _resized(node, method, [part for part in changed if not _stays(part)])


def _method(node: OnnxNode) -> Interpolation:
    mode, nearest = node.attribute("mode", "nearest"), node.attribute("nearest_mode", "round_prefer_floor")
    transform = node.attribute("coordinate_transformation_mode", "half_pixel")
    if mode not in ("nearest", "linear", "cubic"):
        node.refuse(f"its mode {mode!r} is not nearest, linear or cubic")
    if transform not in _TRANSFORMS:
        node.refuse(
            f"its coordinate_transformation_mode {transform!r} is not one of {', '.join(_TRANSFORMS)}"
        )
    if nearest not in _NEAREST:
        node.refuse(f"its nearest_mode {nearest!r} is not one of {', '.join(_NEAREST)}")
    if node.version < 11:
        transform, nearest = "asymmetric", "simple"
    antialias = bool(node.attribute("antialias", 0)) and mode != "nearest"
    coefficient = float(node.attribute("cubic_coeff_a", -0.75))
    return Interpolation(
        mode, transform, nearest, coefficient, bool(node.attribute("exclude_outside", 0)), antialias
    )


# Sizes and scales


def _scaled(node: OnnxNode, size: Dim, scale: float) -> Dim:
    """floor(size * scale) in float32, in which 10 * 1.4 is 14: so ONNX Runtime and PyTorch compute it."""
    if isinstance(size, int):
        return int(np.floor(np.float32(size) * np.float32(scale)))
    if scale == math.floor(scale):
        return simple(size * int(scale))
    return run_time_sizes(
        node, lambda dim: [intrinsics.floor(dim.astype("float32") * tirx.const(scale, "float32"))], size
    )[0]


def _by_scales(node: OnnxNode, axes: Sequence[int], position: int) -> list[_Axis]:
    shape, known = node.shape(), node.numbers(position)
    if known is not None:
        scales = [float(scale) for scale in known.reshape(-1)]
        if len(scales) != len(axes) or min(scales, default=1.0) <= 0:
            node.refuse(f"its scales {scales} are not {len(axes)} numbers above 0")
        return [
            _Axis(axis, shape[axis], _scaled(node, shape[axis], scale), scale, given=True)
            for axis, scale in zip(axes, scales, strict=True)
        ]
    scales_ = node.cast(node[position], "float32")

    def made(scale: te.Tensor, sizes: list[Any]) -> list[Any]:
        return [intrinsics.floor(as_int64(size).astype("float32") * scale(n)) for n, size in enumerate(sizes)]

    found = run_time_sizes(node, made, scales_, [shape[axis] for axis in axes])
    return [
        _Axis(axis, shape[axis], found[n], computed(node, _one, scales_, n), given=True)
        for n, axis in enumerate(axes)
    ]


def _one(items: te.Tensor, at: int) -> te.Tensor:
    return te.compute((1,), lambda _: items(int(at)), name="item")


def _by_sizes(node: OnnxNode, axes: Sequence[int]) -> list[_Axis]:
    shape, sizes = node.shape(), node.sizes(3)
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    if len(sizes) != len(axes):
        node.refuse(f"it has {len(sizes)} sizes for {len(axes)} axes")
    if policy == "stretch":
        return [_Axis(axis, shape[axis], size, None) for axis, size in zip(axes, sizes, strict=True)]
    if policy not in ("not_larger", "not_smaller"):
        node.refuse(f"its keep_aspect_ratio_policy {policy!r} is not stretch, not_larger or not_smaller")
    smallest, own = policy == "not_larger", [shape[axis] for axis in axes]
    if all(isinstance(size, int) for size in (*sizes, *own)):
        ratios = [
            fixed(size) / int(dim) for size, dim in zip(sizes, own, strict=True) if isinstance(dim, int)
        ]
        scale = min(ratios) if smallest else max(ratios)
        return [_Axis(axis, shape[axis], int(scale * fixed(shape[axis]) + 0.5), scale) for axis in axes]
    factor = computed(node, _common_scale, sizes, own, smallest)

    def made(scale: te.Tensor, dims: list[Any]) -> list[Any]:
        return [intrinsics.floor(scale(0) * as_int64(dim).astype("float64") + 0.5) for dim in dims]

    found = run_time_sizes(node, made, factor, own)
    return [_Axis(axis, shape[axis], size, factor) for axis, size in zip(axes, found, strict=True)]


def _common_scale(sizes: list[Any], dims: list[Any], smallest: bool) -> te.Tensor:
    ratios = [
        as_int64(size).astype("float64") / as_int64(dim).astype("float64")
        for size, dim in zip(sizes, dims, strict=True)
    ]
    found = ratios[0]
    for ratio in ratios[1:]:
        found = tirx.min(found, ratio) if smallest else tirx.max(found, ratio)
    return te.compute((1,), lambda _: found, name="scale")


def _with_regions(node: OnnxNode, axes: Sequence[int], changed: Sequence[_Axis]) -> list[_Axis]:
    if not _is_given(node, 1):
        node.refuse("tf_crop_and_resize has no roi")
    known, count = node.numbers(1), len(axes)
    if known is not None:
        roi = [float(item) for item in known.reshape(-1)]
        regions: list[Any] = [(roi[n], roi[n + count]) for n in range(count)]
    else:
        regions = [computed(node, _region, node[1], n, count) for n in range(count)]
    return [
        _Axis(part.axis, part.size, part.made, part.scale, region, part.given)
        for part, region in zip(changed, regions, strict=True)
    ]


def _region(roi: te.Tensor, n: int, count: int) -> te.Tensor:
    return te.compute((2,), lambda k: roi(int(n) + k * int(count)), name="region")


def _stays(part: _Axis) -> bool:
    """Whether an axis is as before."""
    own = part.scale is None or part.scale == 1.0 if not isinstance(part.scale, relax.Expr) else False
    return own and part.region == (0.0, 1.0) and bool(are_equal(part.size, part.made))


# The kernels


def _resized(node: OnnxNode, method: Interpolation, changed: Sequence[_Axis]) -> Converted:
    sizes = node.shape()
    for part in changed:
        sizes[part.axis] = part.made
    if not changed:
        return node.value(0)
    if is_empty(sizes):
        return empty(node, sizes, node.dtype())
    tables = [_table(node, method, part) for part in changed]
    image = _as_image(node, method, changed, tables)
    if image is not None:
        return image
    value = float(node.attribute("extrapolation_value", 0.0))
    wide = node.dtype() if method.mode == "nearest" else _wide(node.dtype())
    tables = [_tensors(node, table) for table in tables]
    data = node.cast(node[0], wide)
    counts = [1 if table.weights is None else node.dims(table.indexes)[1] for table in tables]
    if all(isinstance(count, int) for count in counts) and math.prod(counts) <= _MOST_TAPS:
        groups = [list(zip(changed, tables, strict=True))]
    else:
        groups = [[pair] for pair in zip(changed, tables, strict=True)]
    for group in groups:
        shape = node.dims(data)
        for part, _ in group:
            shape[part.axis] = part.made
        parts = [part.axis for part, _ in group]
        given = [[table.indexes, table.weights, table.inside] for _, table in group]
        flat = [item for row in given for item in row if item is not None]
        layout = [[item is not None for item in row] for row in given]
        data = computed(node, _interpolated, data, parts, layout, shape, value, flat)
    return data if wide == node.dtype() else _narrowed(node, data, node.dtype())


def _wide(dtype: str) -> str:
    """The element type in which values of ``dtype`` are added up."""
    return "float64" if dtype in ("float64", "int32", "uint32", "int64", "uint64") else "float32"


def _narrowed(node: OnnxNode, data: relax.Expr, dtype: str) -> relax.Expr:
    """The nearest values of ``dtype``, ties to even, limited to its range."""
    if "int" not in dtype:
        return relax.op.astype(data, dtype)

    def narrowed(x: te.Tensor) -> te.Tensor:
        low, high = (float(bound) for bound in (np.iinfo(dtype).min, np.iinfo(dtype).max))

        def element(*place: Any) -> Any:
            value = intrinsics.nearbyint(x(*place))
            inside = TE.clip(value, tirx.const(low, x.dtype), tirx.const(high, x.dtype)).astype(dtype)
            return tirx.Select(value >= tirx.const(high, x.dtype), tirx.max_value(dtype), inside)

        return te.compute(x.shape, element, name="narrowed")

    return node.builder.call_te(narrowed, data)


def _table(node: OnnxNode, method: Interpolation, part: _Axis) -> Table:
    region, dtype = part.region, part.dtype(method)
    scale_known = part.scale is None or isinstance(part.scale, float)
    if (
        isinstance(part.size, int)
        and isinstance(part.made, int)
        and scale_known
        and isinstance(region, tuple)
    ):
        return known_table(method, part.size, part.made, _number(part.scale), region, dtype)
    if part.scale is None:
        scale: relax.Expr = computed(node, _ratio, part.made, part.size)
    else:
        scale = part.scale if isinstance(part.scale, relax.Expr) else node.constant([part.scale], "float64")
    bounds = node.constant(region, "float64") if isinstance(region, tuple) else region
    count: Dim = 2 * method.half_width if method.half_width else 1
    if method.antialias:
        (count,) = run_time_sizes(node, lambda s: [taps(TE, method, s(0).astype("float64"))], scale)

    def tables(size: Any, made: Any, count: Any, scale: te.Tensor, bounds: te.Tensor) -> list[te.Tensor]:
        return computed_table(method, size, made, count, scale, bounds, dtype)

    number = 2 if method.mode == "nearest" else 3
    made = results(node, tables, number, part.size, part.made, count, scale, bounds)
    inside = made[1] if method.transform == "tf_crop_and_resize" else None
    weights = node.cast(made[2], _wide(node.dtype())) if number == 3 else None
    return Table(made[0], weights, inside)


def _number(scale: Any) -> float | None:
    """A scale that is known."""
    return None if scale is None else float(scale)


def _tensors(node: OnnxNode, table: Table) -> Table:
    """The table with constants in place of arrays."""
    if not isinstance(table.indexes, np.ndarray):
        return table
    weights = None if table.weights is None else node.constant(table.weights, _wide(node.dtype()))
    inside = None if table.inside is None else node.constant(table.inside, "int8")
    return Table(node.constant(table.indexes, "int64"), weights, inside)


def _ratio(made: Any, size: Any) -> te.Tensor:
    ratio = as_int64(made).astype("float64") / as_int64(size).astype("float64")
    return te.compute((1,), lambda _: ratio, name="scale")


def _interpolated(
    data: te.Tensor,
    axes: list[int],
    layout: list[list[bool]],
    sizes: list[Any],
    value: float,
    flat: list[te.Tensor],
) -> te.Tensor:
    """The weighted sums along ``axes``; ``flat`` has for each axis those of its three tables that it has."""
    rest = iter(flat)
    tables = [[next(rest) if present else None for present in row] for row in layout]

    def element(*place: Any) -> Any:
        where, inside = list(place), []
        for axis, (_, _, flags) in zip(axes, tables, strict=True):
            if flags is not None:
                inside.append(flags(place[int(axis)]) != tirx.const(0, "int8"))
        found = _sum(data, [int(axis) for axis in axes], tables, place, where)
        return tirx.Select(tirx.all(*inside), found, tirx.const(value, data.dtype)) if inside else found

    symbolic = [table for table in tables if table[1] is not None and not isinstance(_count(table), int)]
    if not symbolic:
        return te.compute(sizes, element, name="resize")
    return _reduced(data, int(axes[0]), tables[0], sizes, value)


def _count(table: Sequence[Any]) -> Any:
    size = table[0].shape[1]
    return int(size) if isinstance(size, (int, tirx.IntImm)) else size


def _sum(
    data: te.Tensor, axes: Sequence[int], tables: Sequence[Any], place: Sequence[Any], where: list[Any]
) -> Any:
    if not axes:
        return data(*where)
    axis, (indexes, weights, _) = axes[0], tables[0]
    total: Any = None
    for n in range(_count(tables[0])):
        inner = list(where)
        inner[axis] = indexes(place[axis], n)
        found = _sum(data, axes[1:], tables[1:], place, inner)
        found = found if weights is None else weights(place[axis], n) * found
        total = found if total is None else total + found
    return total


def _reduced(data: te.Tensor, axis: int, table: Sequence[Any], sizes: list[Any], value: float) -> te.Tensor:
    """The weighted sum along an axis whose number of taps only the program knows."""
    indexes, weights, flags = table
    number = te.reduce_axis((0, indexes.shape[1]), "number")

    def element(*place: Any) -> Any:
        where = list(place)
        where[axis] = indexes(place[axis], number)
        return te.sum(data(*where) * weights(place[axis], number), axis=number)

    summed = te.compute(sizes, element, name="resize")
    if flags is None:
        return summed
    outside = tirx.const(value, data.dtype)
    return te.compute(
        sizes,
        lambda *place: tirx.Select(flags(place[axis]) != tirx.const(0, "int8"), summed(*place), outside),
        name="extrapolated",
    )


# Relax's own operator, which backends have kernels for


def _as_image(
    node: OnnxNode, method: Interpolation, changed: Sequence[_Axis], tables: Sequence[Table]
) -> relax.Expr | None:
    """resize2d, where it computes the same; None otherwise."""
    spatial = [part.axis for part in changed]
    known = all(isinstance(dim, int) for part in changed for dim in (part.size, part.made))
    if node.rank() != 4 or not set(spatial) <= {2, 3} or not known or node.dtype() != "float32":
        return None
    size = [next((part.made for part in changed if part.axis == axis), node.shape()[axis]) for axis in (2, 3)]
    if not all(isinstance(dim, int) for dim in size):
        return None
    if method.mode == "nearest":
        repeats = all(_repeats(part, table) for part, table in zip(changed, tables, strict=True))
        return (
            relax.op.image.resize2d(
                node[0], tuple(size), None, "NCHW", "nearest_neighbor", "asymmetric", "floor"
            )
            if repeats
            else None
        )
    simple_transforms = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
    if method.mode != "linear" or method.transform not in simple_transforms:
        return None
    if (method.antialias and any(_shrinks(part) for part in changed)) or method.excludes_outside:
        return None
    if any(size == 1 for size in size) or not all(_is_of_sizes(part) for part in changed):
        return None
    return relax.op.image.resize2d(node[0], tuple(size), None, "NCHW", "linear", method.transform)


def _repeats(part: _Axis, table: Table) -> bool:
    """Whether each element is repeated the same number of times."""
    if not isinstance(part.size, int) or not isinstance(part.made, int) or part.made % part.size:
        return False
    if not isinstance(table.indexes, np.ndarray) or table.inside is not None:
        return False
    return np.array_equal(table.indexes[:, 0], np.arange(part.made) // (part.made // part.size))


def _shrinks(part: _Axis) -> bool:
    return isinstance(part.size, int) and isinstance(part.made, int) and part.made < part.size


def _is_of_sizes(part: _Axis) -> bool:
    """Whether the scale is that of the sizes."""
    if part.scale is None:
        return True
    if not isinstance(part.scale, float) or not isinstance(part.size, int) or not isinstance(part.made, int):
        return False
    return math.isclose(part.scale * part.size, part.made, rel_tol=1e-7)


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {"Resize": _resize, "Upsample": _upsample}
