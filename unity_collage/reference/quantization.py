"""Affine quantization, with a scale and a zero point for the tensor or for each index of an axis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from unity_collage.reference.elementwise import clip
from unity_collage.reference.values import Call, Operator, dtype_of


def _along(parameter: np.ndarray, axis: int, ndim: int) -> np.ndarray:
    shape = [1] * ndim
    if parameter.size > 1:
        shape[axis] = parameter.size
    return np.asarray(parameter).reshape(shape)


@contextmanager
def ties_moved(direction: float) -> Iterator[None]:
    """Quotients are moved up (1) or down (-1) by as much as the rounding of earlier operators may move them.

    What quantising makes of them then differs by a step where a quotient is nearly half a step from two integers.
    """
    token = _DIRECTION.set(direction)
    try:
        yield
    finally:
        _DIRECTION.reset(token)


_DIRECTION: ContextVar[float] = ContextVar("direction", default=0.0)
_STEPS_OFF, _PART_OFF = 1e-3, 1e-5
"""How far a quotient may be off: in steps, and as a part of the largest quotient; at most one step in all."""


def _off(quotients: np.ndarray) -> float:
    direction = _DIRECTION.get()
    if not direction:
        return 0.0
    largest = float(np.max(np.abs(quotients), initial=0.0, where=np.isfinite(quotients)))
    return direction * min(1.0, _STEPS_OFF + _PART_OFF * largest)


def _quantize(call: Call, x: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """``round(x / scale) + zero``, clipped to the range of the dtype; NaN gives the lowest number, as in kernels."""
    axis, wanted = call.attrs.axis, dtype_of(call.ty)
    scaled = x / _along(scale, axis, x.ndim)
    scaled = scaled + _off(scaled)
    if wanted is None or not np.issubdtype(wanted, np.integer):
        return scaled + _along(zero, axis, x.ndim)
    shifted = np.round(scaled).astype(np.float64) + _along(zero, axis, x.ndim)
    limits = np.iinfo(wanted)
    return clip(np.where(np.isnan(shifted), limits.min, shifted), limits.min, limits.max)


def _dequantize(call: Call, x: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """``(x - zero) * scale``."""
    axis = call.attrs.axis
    exact = x.astype(np.float64) - _along(zero, axis, x.ndim)
    return exact * _along(scale, axis, x.ndim)


OPERATORS: dict[str, Operator] = {
    "relax.quantize": Operator(_quantize),
    "relax.dequantize": Operator(_dequantize),
}
