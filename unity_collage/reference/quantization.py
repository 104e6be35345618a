"""Affine quantization, with a scale and a zero point for the tensor or for each index of an axis."""

from __future__ import annotations

import numpy as np

from unity_collage.reference.elementwise import clip
from unity_collage.reference.values import Call, Operator, dtype_of


def _along(parameter: np.ndarray, axis: int, ndim: int) -> np.ndarray:
    shape = [1] * ndim
    if parameter.size > 1:
        shape[axis] = parameter.size
    return np.asarray(parameter).reshape(shape)


def _quantize(call: Call, x: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """``round(x / scale) + zero``, clipped to the range of the dtype."""
    axis, wanted = call.attrs.axis, dtype_of(call.ty)
    scaled = x / _along(scale, axis, x.ndim)
    if wanted is None or not np.issubdtype(wanted, np.integer):
        return scaled + _along(zero, axis, x.ndim)
    shifted = np.round(scaled).astype(np.float64) + _along(zero, axis, x.ndim)
    return clip(shifted, np.iinfo(wanted).min, np.iinfo(wanted).max)


def _dequantize(call: Call, x: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """``(x - zero) * scale``."""
    axis = call.attrs.axis
    exact = x.astype(np.float64) - _along(zero, axis, x.ndim)
    return exact * _along(scale, axis, x.ndim)


OPERATORS: dict[str, Operator] = {
    "relax.quantize": Operator(_quantize),
    "relax.dequantize": Operator(_dequantize),
}
