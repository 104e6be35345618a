"""resize2d as resampling, if it reads exactly the pixels that oneDNN reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tvm import relax

from ..native.program import NativeStep, View
from ..native.values import attrs_of, dtype_of, shape_of, static_shape
from .limits import why_not_operand
from .windows import by_letters

Coordinate = Callable[[int, int, int], float]
"""Maps the index in the result, the source extent and the result extent to a coordinate in the source."""


def half_pixel(index: int, have: int, made: int) -> float:
    return (index + 0.5) * have / made - 0.5


def asymmetric(index: int, have: int, made: int) -> float:
    return index * have / made


def align_corners(index: int, have: int, made: int) -> float:
    return index * (have - 1) / (made - 1) if made > 1 else 0.0


def pytorch_half_pixel(index: int, have: int, made: int) -> float:
    return half_pixel(index, have, made) if made > 1 else 0.0


_COORDINATES: Mapping[str, Coordinate] = {
    "half_pixel": half_pixel,
    "asymmetric": asymmetric,
    "align_corners": align_corners,
    "pytorch_half_pixel": pytorch_half_pixel,
}

_ROUNDINGS: Mapping[str, Callable[[float], int]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
    "round_prefer_floor": lambda x: math.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: math.floor(x + 0.5),
}


def step(call: relax.Call) -> NativeStep | str:
    """resize2d -> resampling, nearest or linear."""
    data, attrs = call.args[0], attrs_of(call)
    if reason := why_not_operand("resampling", "data", data):
        return reason
    if shape_of(call) is None or dtype_of(call) != dtype_of(data):
        return f"the result is {dtype_of(call)} or has no static shape"
    rank = len(static_shape(data))
    source, result = by_letters(data, attrs.layout, "NC", rank), by_letters(call, attrs.layout, "NC", rank)
    if isinstance(source, str) or isinstance(result, str):
        return source if isinstance(source, str) else str(result)
    if reason := _why_not_same_pixels(call, source, result):
        return reason
    algorithm = "nearest" if attrs.method == "nearest_neighbor" else "linear"
    factors = tuple(made / have for made, have in zip(result.dims[2:], source.dims[2:], strict=True))
    args = (("src", source), ("dst", result))
    return NativeStep("resampling", args, (("algorithm", algorithm), ("factors", factors)))


def _why_not_same_pixels(call: relax.Call, source: View, result: View) -> str | None:
    method, mode = str(attrs_of(call).method), str(attrs_of(call).coordinate_transformation_mode)
    if method not in ("nearest_neighbor", "linear"):
        return f"oneDNN has no {method} resampling"
    coordinate = _COORDINATES.get(mode)
    if coordinate is None:
        return f"oneDNN does not know the coordinates {mode}"
    for have, made in zip(source.dims[2:], result.dims[2:], strict=True):
        same = (
            _same_nearest(coordinate, str(attrs_of(call).rounding_method), have, made)
            if method == "nearest_neighbor"
            else all(
                _clamped(coordinate(i, have, made), have) == _clamped(half_pixel(i, have, made), have)
                for i in range(made)
            )
        )
        if not same:
            return f"{mode} reads other pixels than oneDNN from {have} to {made}"
    return None


def _same_nearest(coordinate: Coordinate, rounding: str, have: int, made: int) -> bool:
    """Whether all rounded coordinates agree with oneDNN's, which rounds halves away from zero."""
    rounded = _ROUNDINGS.get(rounding or "round")
    if rounded is None:
        return False
    for index in range(made):
        theirs = math.floor(half_pixel(index, have, made) + 0.5)
        ours = rounded(coordinate(index, have, made))
        if _clamped(ours, have) != _clamped(theirs, have):
            return False
    return True


def _clamped(place: float, have: int) -> float:
    return min(max(place, 0), have - 1)


ENTRIES = {"relax.image.resize2d": step}
