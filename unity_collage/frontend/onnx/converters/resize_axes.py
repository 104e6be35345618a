"""The axes that Resize and Upsample change: sizes, scales and regions, known or computed when the program runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from ..node import OnnxNode
from ..symbolic import are_equal
from ..values import Dim
from .resize_tables import Interpolation
from .runtime_shapes import as_int64, computed, fixed, intrinsics, is_empty, run_time_sizes, simple


@dataclass(frozen=True, slots=True)
class ResizedAxis:
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


def is_given(node: OnnxNode, position: int) -> bool:
    """Whether an operand is given and not an empty tensor, which means the same as none."""
    return node.has(position) and not is_empty(node.shape(position))


def scaled(node: OnnxNode, size: Dim, scale: float) -> Dim:
    """floor(size * scale) in float32, in which 10 * 1.4 is 14: so ONNX Runtime and PyTorch compute it."""
    if isinstance(size, int):
        return int(np.floor(np.float32(size) * np.float32(scale)))
    if scale == math.floor(scale):
        return simple(size * int(scale))
    return run_time_sizes(
        node, lambda dim: [intrinsics.floor(dim.astype("float32") * tirx.const(scale, "float32"))], size
    )[0]


def by_scales(node: OnnxNode, axes: Sequence[int], position: int) -> list[ResizedAxis]:
    shape, known = node.shape(), node.numbers(position)
    if known is not None:
        scales = [float(scale) for scale in known.reshape(-1)]
        if len(scales) != len(axes) or min(scales, default=1.0) <= 0:
            node.refuse(f"its scales {scales} are not {len(axes)} numbers above 0")
        return [
            ResizedAxis(axis, shape[axis], scaled(node, shape[axis], scale), scale, given=True)
            for axis, scale in zip(axes, scales, strict=True)
        ]
    scales_ = node.cast(node[position], "float32")

    def made(scale: te.Tensor, sizes: list[Any]) -> list[Any]:
        return [intrinsics.floor(as_int64(size).astype("float32") * scale(n)) for n, size in enumerate(sizes)]

    found = run_time_sizes(node, made, scales_, [shape[axis] for axis in axes])
    return [
        ResizedAxis(axis, shape[axis], found[n], computed(node, _one, scales_, n), given=True)
        for n, axis in enumerate(axes)
    ]


def _one(items: te.Tensor, at: int) -> te.Tensor:
    return te.compute((1,), lambda _: items(int(at)), name="item")


def by_sizes(node: OnnxNode, axes: Sequence[int]) -> list[ResizedAxis]:
    shape, sizes = node.shape(), node.sizes(3)
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    if len(sizes) != len(axes):
        node.refuse(f"it has {len(sizes)} sizes for {len(axes)} axes")
    if policy == "stretch":
        return [ResizedAxis(axis, shape[axis], size, None) for axis, size in zip(axes, sizes, strict=True)]
    if policy not in ("not_larger", "not_smaller"):
        node.refuse(f"its keep_aspect_ratio_policy {policy!r} is not stretch, not_larger or not_smaller")
    smallest, own = policy == "not_larger", [shape[axis] for axis in axes]
    if all(isinstance(size, int) for size in (*sizes, *own)):
        ratios = [
            fixed(size) / int(dim) for size, dim in zip(sizes, own, strict=True) if isinstance(dim, int)
        ]
        scale = min(ratios) if smallest else max(ratios)
        return [ResizedAxis(axis, shape[axis], int(scale * fixed(shape[axis]) + 0.5), scale) for axis in axes]
    factor = computed(node, _common_scale, sizes, own, smallest)

    def made(scale: te.Tensor, dims: list[Any]) -> list[Any]:
        return [intrinsics.floor(scale(0) * as_int64(dim).astype("float64") + 0.5) for dim in dims]

    found = run_time_sizes(node, made, factor, own)
    return [ResizedAxis(axis, shape[axis], size, factor) for axis, size in zip(axes, found, strict=True)]


def _common_scale(sizes: list[Any], dims: list[Any], smallest: bool) -> te.Tensor:
    ratios = [
        as_int64(size).astype("float64") / as_int64(dim).astype("float64")
        for size, dim in zip(sizes, dims, strict=True)
    ]
    found = ratios[0]
    for ratio in ratios[1:]:
        found = tirx.min(found, ratio) if smallest else tirx.max(found, ratio)
    return te.compute((1,), lambda _: found, name="scale")


def with_regions(node: OnnxNode, axes: Sequence[int], changed: Sequence[ResizedAxis]) -> list[ResizedAxis]:
    if not is_given(node, 1):
        node.refuse("tf_crop_and_resize has no roi")
    known, count = node.numbers(1), len(axes)
    if known is not None:
        roi = [float(item) for item in known.reshape(-1)]
        regions: list[Any] = [(roi[n], roi[n + count]) for n in range(count)]
    else:
        regions = [computed(node, _region, node[1], n, count) for n in range(count)]
    return [
        ResizedAxis(part.axis, part.size, part.made, part.scale, region, part.given)
        for part, region in zip(changed, regions, strict=True)
    ]


def _region(roi: te.Tensor, n: int, count: int) -> te.Tensor:
    return te.compute((2,), lambda k: roi(int(n) + k * int(count)), name="region")


def stays(part: ResizedAxis) -> bool:
    """Whether an axis is as before."""
    own = part.scale is None or part.scale == 1.0 if not isinstance(part.scale, relax.Expr) else False
    return own and part.region == (0.0, 1.0) and bool(are_equal(part.size, part.made))
