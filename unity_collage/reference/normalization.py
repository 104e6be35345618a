"""Normalizations. Statistics are computed and applied in double precision."""

from __future__ import annotations

import numpy as np

from unity_collage.reference.values import Call, Operator, axes_of


def _along(parameter: np.ndarray, axes: tuple[int, ...], ndim: int) -> np.ndarray:
    """A parameter with the sizes of ``axes``, reshaped to broadcast over a tensor of ``ndim`` axes."""
    shape = [1] * ndim
    for axis, size in zip(axes, parameter.shape, strict=True):
        shape[axis] = size
    return parameter.reshape(shape)


def _normalized(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> np.ndarray:
    """``(x - mean) / sqrt(variance + epsilon)`` over ``axes``."""
    centred = x.astype(np.float64)
    centred = centred - centred.mean(axis=axes, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(axis=axes, keepdims=True) + epsilon)


def _scaled(call: Call, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, axes: tuple) -> np.ndarray:
    if call.attrs.scale:
        x = x * _along(gamma, axes, x.ndim)
    return x + _along(beta, axes, x.ndim) if call.attrs.center else x


def _batch_norm(
    call: Call, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, mean: np.ndarray, variance: np.ndarray
) -> tuple[np.ndarray, ...]:
    """The normalized tensor and the moving statistics, which change only in training."""
    channel = axes_of(call.attrs.axis, x.ndim)
    exact = x.astype(np.float64)
    statistics = (mean, variance)
    if call.attrs.training:
        rest = tuple(axis for axis in range(x.ndim) if axis not in channel)
        mean, variance = exact.mean(axis=rest), exact.var(axis=rest)
        share = call.attrs.momentum
        statistics = tuple(
            (1 - share) * old + share * new for old, new in zip(statistics, (mean, variance), strict=True)
        )
    spread = np.sqrt(variance.astype(np.float64) + call.attrs.epsilon)
    normalized = (exact - _along(mean, channel, x.ndim)) / _along(spread, channel, x.ndim)
    return (_scaled(call, normalized, gamma, beta, channel), *statistics)


def _layer_norm(call: Call, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    axes = axes_of(call.attrs.axes, x.ndim)
    return _scaled(call, _normalized(x, axes, call.attrs.epsilon), gamma, beta, axes)


def _instance_norm(call: Call, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    channel = axes_of(call.attrs.channel_axis, x.ndim)
    normalized = _normalized(x, axes_of(call.attrs.axes, x.ndim), call.attrs.epsilon)
    return _scaled(call, normalized, gamma, beta, channel)


def _group_norm(call: Call, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Each group of channels is normalized separately, over its channels and ``axes``."""
    (channel,) = axes_of(call.attrs.channel_axis, x.ndim)
    groups = int(call.attrs.num_groups)
    grouped = x.reshape(*x.shape[:channel], groups, -1, *x.shape[channel + 1 :])
    moved = [axis + (axis > channel) for axis in axes_of(call.attrs.axes, x.ndim)]
    over = tuple(sorted({*moved, channel + 1}))
    normalized = _normalized(grouped, over, call.attrs.epsilon).reshape(x.shape)
    return _scaled(call, normalized, gamma, beta, (channel,))


def _rms_norm(call: Call, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    axes = axes_of(call.attrs.axes, x.ndim)
    exact = x.astype(np.float64)
    size = np.sqrt(np.square(exact).mean(axis=axes, keepdims=True) + call.attrs.epsilon)
    return exact / size * _along(weight, axes, x.ndim)


OPERATORS: dict[str, Operator] = {
    "relax.nn.batch_norm": Operator(_batch_norm),
    "relax.nn.layer_norm": Operator(_layer_norm),
    "relax.nn.instance_norm": Operator(_instance_norm),
    "relax.nn.group_norm": Operator(_group_norm),
    "relax.nn.rms_norm": Operator(_rms_norm),
}
