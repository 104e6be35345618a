"""The kernels of Resize and Upsample: weighted sums by tables, or Relax's resize2d where it computes the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from ..node import Converted, OnnxNode
from ..values import Dim
from .resize_axes import ResizedAxis
from .resize_image import as_image
from .resize_tables import TE, Interpolation, Table, computed_table, known_table, taps
from .runtime_shapes import as_int64, computed, empty, intrinsics, is_empty, results, run_time_sizes

_MOST_TAPS = 8
"""The most elements that one kernel reads for each of the result; beyond, each axis has a kernel of its own."""


def resized(node: OnnxNode, method: Interpolation, changed: Sequence[ResizedAxis]) -> Converted:
    sizes = node.shape()
    for part in changed:
        sizes[part.axis] = part.made
    if not changed:
        return node.value(0)
    if is_empty(sizes):
        return empty(node, sizes, node.dtype())
    tables = [_table(node, method, part) for part in changed]
    image = as_image(node, method, changed, tables)
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
    cuts = method.mode == "linear" and not method.antialias
    return data if wide == node.dtype() else _narrowed(node, data, node.dtype(), cuts)


def _wide(dtype: str) -> str:
    """The element type in which values of ``dtype`` are added up."""
    return "float64" if dtype in ("float64", "int32", "uint32", "int64", "uint64") else "float32"


def _narrowed(node: OnnxNode, data: relax.Expr, dtype: str, cuts: bool) -> relax.Expr:
    """The nearest values of ``dtype``, ties to even, limited to its range; with ``cuts`` rounded towards zero.

    The standard does not say how. ONNX Runtime cuts what it interpolates linearly, and rounds what it filters.
    """
    if "int" not in dtype:
        return relax.op.astype(data, dtype)

    def narrowed(x: te.Tensor) -> te.Tensor:
        low, high = (float(bound) for bound in (np.iinfo(dtype).min, np.iinfo(dtype).max))

        def element(*place: Any) -> Any:
            value = _outwards(x(*place)) if cuts else intrinsics.nearbyint(x(*place))
            inside = TE.clip(value, tirx.const(low, x.dtype), tirx.const(high, x.dtype)).astype(dtype)
            return tirx.Select(value >= tirx.const(high, x.dtype), tirx.max_value(dtype), inside)

        return te.compute(x.shape, element, name="narrowed")

    return node.builder.call_te(narrowed, data)


def _outwards(value: Any) -> Any:
    """``value`` a little further from 0, so that an integer that was rounded towards 0 is not cut to the next one."""
    dtype = str(value.expr_ty().dtype)
    slack = tirx.const(2.0**-20 if dtype == "float64" else 2.0**-12, dtype)
    return tirx.Select(value < 0.0, value - slack, value + slack)


def _table(node: OnnxNode, method: Interpolation, part: ResizedAxis) -> Table:
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
    """The weighted sum along an axis with a number of taps that is known only when the program runs."""
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
