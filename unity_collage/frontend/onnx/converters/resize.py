"""Resize and Upsample in all modes, for any rank, with sizes that are known or computed when the program runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..node import Converted, OnnxNode
from .resize_axes import ResizedAxis, by_scales, by_sizes, is_given, scaled, stays, with_regions
from .resize_kernels import resized
from .resize_tables import Interpolation

_TRANSFORMS = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_half_pixel_for_nn", "tf_crop_and_resize",
)  # fmt: skip
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def _resize(node: OnnxNode) -> Converted:
    method = _method(node)
    chosen = node.attribute("axes")
    axes = list(range(node.rank())) if chosen is None else [node.axis(axis) for axis in chosen]
    first = 1 if node.version < 11 else 2  # the position of scales
    has_sizes = node.version >= 11 and is_given(node, 3)
    changed = by_sizes(node, axes) if has_sizes else by_scales(node, axes, first)
    if method.transform == "tf_crop_and_resize":
        changed = with_regions(node, axes, changed)
    changed = [part for part in changed if not stays(part)]
    return resized(node, method, changed)


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
            ResizedAxis(axis, size, scaled(node, size, scale), scale, given=True)
            for axis, size, scale in zip(axes, node.shape(), scales, strict=True)
        ]
    else:
        changed = by_scales(node, axes, 1)
    return resized(node, method, [part for part in changed if not stays(part)])


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


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {"Resize": _resize, "Upsample": _upsample}
