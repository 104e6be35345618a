"""Reductions and scans. Sums and products of floats are computed in double precision."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unity_collage.reference.values import Call, Operator, Value, axes_of, dtype_of, truncated_divide

Reduction = Callable[[np.ndarray, tuple[int, ...], bool], np.ndarray]


def wide(x: np.ndarray) -> np.ndarray:
    """``x`` in double precision if it has floats."""
    return x.astype(np.float64) if np.issubdtype(x.dtype, np.floating) else x


def mean(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    """The mean; that of integers is truncated towards zero, as in TIR."""
    count = np.asarray(np.prod([x.shape[axis] for axis in axes], dtype=np.int64))
    return truncated_divide(np.asarray(wide(x).sum(axis=axes, keepdims=keepdims)), count)


def variance(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    """The mean of the squared distances from the mean (divided by the count, not by one less)."""
    return mean(np.square(wide(x) - mean(x, axes, True)), axes, keepdims)


def _reduction(reduction: Reduction) -> Operator:
    def compute(call: Call, x: np.ndarray) -> np.ndarray:
        return reduction(x, axes_of(call.attrs.axis, x.ndim), bool(call.attrs.keepdims))

    return Operator(compute)


def _arg(function: Callable[..., np.ndarray]) -> Operator:
    def compute(call: Call, x: np.ndarray) -> np.ndarray:
        axis, keepdims = call.attrs.axis, bool(call.attrs.keepdims)
        return np.asarray(function(x, axis=None if axis is None else int(axis), keepdims=keepdims))

    return Operator(compute)


def _scan(function: np.ufunc, start: int) -> Operator:
    def compute(call: Call, x: np.ndarray) -> np.ndarray:
        axis = call.attrs.axis
        line = wide(x.ravel() if axis is None else np.moveaxis(x, int(axis), 0))
        line = line.astype(dtype_of(call.attrs.dtype) or line.dtype)
        if call.attrs.exclusive:
            line = np.concatenate([np.full_like(line[:1], start), line[:-1]])
        result = function.accumulate(line, axis=0)
        return result if axis is None else np.moveaxis(result, 0, int(axis))

    return Operator(compute)


def _median(call: Call, x: np.ndarray) -> Value:
    """The lower median, and with an axis its index too."""
    if not call.attrs.axis:
        value = np.sort(x, axis=None)[(x.size - 1) // 2]
        return np.reshape(value, (1,) * x.ndim if call.attrs.keepdims else ())
    axis = int(call.attrs.axis[0])
    order = np.argsort(x, axis=axis, kind="stable")
    index = np.take(order, [(x.shape[axis] - 1) // 2], axis=axis)
    value = np.take_along_axis(x, index, axis=axis)
    if call.attrs.keepdims:
        return value, index
    return value.squeeze(axis), index.squeeze(axis)


def sum_to(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """``x`` summed over the axes along which ``shape`` would be broadcast to its shape."""
    padded = (1,) * (x.ndim - len(shape)) + shape
    axes = tuple(axis for axis in range(x.ndim) if padded[axis] == 1)
    return wide(x).sum(axis=axes, keepdims=True).reshape(shape)


OPERATORS: dict[str, Operator] = {
    "relax.sum": _reduction(lambda x, axes, keep: wide(x).sum(axis=axes, keepdims=keep)),
    "relax.prod": _reduction(lambda x, axes, keep: wide(x).prod(axis=axes, keepdims=keep)),
    "relax.max": _reduction(lambda x, axes, keep: x.max(axis=axes, keepdims=keep)),
    "relax.min": _reduction(lambda x, axes, keep: x.min(axis=axes, keepdims=keep)),
    "relax.mean": _reduction(mean),
    "relax.variance": _reduction(variance),
    "relax.std": _reduction(lambda x, axes, keep: np.sqrt(variance(x, axes, keep))),
    "relax.argmax": _arg(np.argmax),
    "relax.argmin": _arg(np.argmin),
    "relax.median": Operator(_median),
    "relax.cumsum": _scan(np.add, 0),
    "relax.cumprod": _scan(np.multiply, 1),
    "relax.collapse_sum_to": Operator(lambda _call, x, shape: sum_to(x, shape)),
    "relax.collapse_sum_like": Operator(lambda _call, x, like: sum_to(x, like.shape)),
}
