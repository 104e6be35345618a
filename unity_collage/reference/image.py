"""Resizing: one matrix of interpolation weights for each axis, in double precision."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unity_collage.graph.calls import op_name
from unity_collage.reference.layout import from_order, spatial, to_order
from unity_collage.reference.values import Call, Operator, whole_numbers

_EPSILON = 1e-5
"""TVM adds it before rounding down, and subtracts it before rounding up, to compensate for inexact coordinates."""

_COORDINATE: dict[str, Callable[[np.ndarray, int, int], np.ndarray]] = {
    "half_pixel": lambda at, size, out: (at + 0.5) * size / out - 0.5,
    "align_corners": lambda at, size, out: at * ((size - 1) / max(out - 1, 1)),
    "asymmetric": lambda at, size, out: at * size / out,
    "pytorch_half_pixel": lambda at, size, out: (at + 0.5) * size / out - 0.5 if out > 1 else at * 0.0,
    "tf_half_pixel_for_nn": lambda at, size, out: (at + 0.5) * size / out,
}

_ROUND: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round": np.round,
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": lambda at: np.floor(at + _EPSILON),
    "ceil": lambda at: np.ceil(at - _EPSILON),
}


def _cubic(distance: np.ndarray, alpha: float) -> np.ndarray:
    """The weights of the four neighbours of a point (Keys, 1981), which lies ``distance`` behind the second."""
    d1, d2, d3 = distance, distance**2, distance**3
    return np.stack(
        [
            alpha * (d3 - 2 * d2 + d1),
            (alpha + 2) * d3 - (alpha + 3) * d2 + 1,
            -(alpha + 2) * d3 + (2 * alpha + 3) * d2 - alpha * d1,
            alpha * (d2 - d3),
        ],
        axis=1,
    )


def _taps(call: Call, at: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The indices and the weights of the input elements of each output element, both (out, taps)."""
    attrs = call.attrs
    if attrs.method == "nearest_neighbor":
        aligned = attrs.coordinate_transformation_mode == "align_corners"
        rounding = attrs.rounding_method or ("round" if aligned else "floor")
        return _ROUND[rounding](at)[:, None], np.ones((len(at), 1))
    below = np.floor(at)
    distance = at - below
    if attrs.method == "linear":
        return below[:, None] + np.arange(2), np.stack([1 - distance, distance], axis=1)
    places, weights = below[:, None] + np.arange(-1, 3), _cubic(distance, attrs.cubic_alpha)
    if attrs.cubic_exclude:
        weights = np.where((places >= 0) & (places < size), weights, 0)
        weights = weights / weights.sum(axis=1, keepdims=True)
    return places, weights


def _resized(call: Call, x: np.ndarray, axis: int, out: int) -> np.ndarray:
    size = x.shape[axis]
    at = _COORDINATE[call.attrs.coordinate_transformation_mode](np.arange(out), size, out)
    places, weights = _taps(call, at, size)
    matrix = np.zeros((out, size))
    np.add.at(matrix, (np.arange(out)[:, None], places.clip(0, size - 1).astype(int)), weights)
    return np.moveaxis(np.tensordot(matrix, x, axes=(1, axis)), 0, axis)


def _resize(call: Call, x: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    order = "NC" + spatial(call.attrs.layout)
    result = to_order(x, call.attrs.layout, order)
    for axis, out in enumerate(whole_numbers(sizes), start=2):
        result = _resized(call, result, axis, out)
    return from_order(result, order, call.attrs.layout)


def _why_not_resize(call: Call) -> str | None:
    attrs = call.attrs
    mode = attrs.coordinate_transformation_mode
    if mode not in _COORDINATE:
        return f"{op_name(call)} with coordinates {mode} has no numpy reference"
    if attrs.method not in ("nearest_neighbor", "linear", "cubic"):
        return f"{op_name(call)} with method {attrs.method} has no numpy reference"
    if attrs.rounding_method and attrs.rounding_method not in _ROUND:
        return f"{op_name(call)} with rounding {attrs.rounding_method} has no numpy reference"
    return None


OPERATORS: dict[str, Operator] = {
    "relax.image.resize2d": Operator(_resize, _why_not_resize),
    "relax.image.resize3d": Operator(_resize, _why_not_resize),
}
