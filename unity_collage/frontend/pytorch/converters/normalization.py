"""Softmax and normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

from ..context import Context, Converters, Value, known_size, positive, rank_of, reshaped, shape_of
from .reduce import any_above_minus_infinity, variance_and_mean

Expr = relax.Expr


def _softmax(cx: Context, x: Expr, dim: int, *_: Value) -> Expr:
    """A single number becomes 1, unless it is not finite."""
    x = cx.cast(x)
    if rank_of(x):
        return op.nn.softmax(x, positive(dim, rank_of(x)))
    return op.add(op.multiply(x, cx.cast(0.0)), cx.cast(1.0))


def _log_softmax(cx: Context, x: Expr, dim: int, *_: Value) -> Expr:
    x = cx.cast(x)
    return op.nn.log_softmax(x, positive(dim, rank_of(x))) if rank_of(x) else op.multiply(x, cx.cast(0.0))


def _safe_softmax(cx: Context, x: Expr, dim: int, *_: Value) -> Expr:
    """Zeros where all elements are minus infinity."""
    axis = positive(dim, rank_of(x))
    counts = any_above_minus_infinity(cx, cx.cast(x), axis)
    return op.where(counts, op.nn.softmax(cx.cast(x), axis), cx.cast(0.0))


def _factors(cx: Context, shape: Sequence[int], weight: Expr | None, bias: Expr | None) -> tuple[Expr, Expr]:
    """The scale and the shift: without them 1 and 0."""
    ones = relax.const(np.ones(shape, cx.dtype), cx.dtype)
    return weight if weight is not None else ones, (
        bias if bias is not None else relax.const(np.zeros(shape, cx.dtype), cx.dtype)
    )


def _layer_norm(
    cx: Context, x: Expr, shape: Sequence[int], weight: Expr | None, bias: Expr | None, epsilon: float
) -> list[Any]:
    axes = list(range(rank_of(x) - len(shape), rank_of(x)))
    sizes = [known_size(size, "the size of a normalised axis") for size in shape]
    return [cx.emit(op.nn.layer_norm(x, *_factors(cx, sizes, weight, bias), axes, epsilon)), None, None]


def _group_norm(
    cx: Context, x: Expr, weight: Expr | None, bias: Expr | None, _n: Value, channels: int, _rest: Value,
    groups: int, epsilon: float,
) -> list[Any]:  # fmt: skip
    return [_in_groups(cx, x, weight, bias, groups, epsilon), None, None]


def _in_groups(
    cx: Context, x: Expr, weight: Expr | None, bias: Expr | None, groups: int, epsilon: float
) -> Any:
    channels = known_size(shape_of(x)[1], "the number of channels")
    factors = _factors(cx, [channels], weight, bias)
    axes = list(range(2, rank_of(x)))
    if not axes:  # Relax wants an axis of pixels
        wide = cx.emit(op.expand_dims(x, 2))
        return cx.emit(op.squeeze(op.nn.group_norm(wide, *factors, groups, 1, [2], epsilon), [2]))
    return cx.emit(op.nn.group_norm(x, *factors, groups, 1, axes, epsilon))


def _instance_norm(
    cx: Context, x: Expr, weight: Expr | None, bias: Expr | None, mean: Expr | None, variance: Expr | None,
    use_input_stats: bool, _momentum: float, epsilon: float, *_: Value,
) -> Expr:  # fmt: skip
    """Each channel of each image by itself; with running statistics it is a batch normalisation."""
    if not use_input_stats and mean is not None and variance is not None:
        return _by_statistics(cx, x, weight, bias, mean, variance, epsilon)
    return _in_groups(cx, x, weight, bias, known_size(shape_of(x)[1], "the number of channels"), epsilon)


def _batch_norm(
    cx: Context, x: Expr, weight: Expr | None, bias: Expr | None, mean: Expr, variance: Expr, _momentum: float,
    epsilon: float,
) -> list[Any]:  # fmt: skip
    return [_by_statistics(cx, x, weight, bias, mean, variance, epsilon), None, None]


def _by_statistics(
    cx: Context, x: Expr, weight: Expr | None, bias: Expr | None, mean: Expr, variance: Expr, epsilon: float
) -> Any:
    channels = known_size(shape_of(x)[1], "the number of channels")
    factors = _factors(cx, [channels], weight, bias)
    every = cx.emit(op.nn.batch_norm(x, *factors, mean, variance, axis=1, epsilon=epsilon, training=False))
    return cx.emit(every[0])


def _norm_of_batch(cx: Context, x: Expr, weight: Expr | None, bias: Expr | None, epsilon: float) -> list[Any]:
    """By the mean and variance of the batch itself: (x - mean) / sqrt(variance + epsilon)."""
    axes = [axis for axis in range(rank_of(x)) if axis != 1]
    variance, mean = variance_and_mean(cx, x, axes, 0, True)
    found = op.divide(op.subtract(x, mean), op.sqrt(op.add(variance, cx.cast(epsilon))))
    shape = [1, -1, *[1] * (rank_of(x) - 2)]
    if weight is not None:
        found = op.multiply(found, reshaped(cx, weight, shape))
    if bias is not None:
        found = op.add(found, reshaped(cx, bias, shape))
    return [cx.emit(found), None, None, None, None]


CONVERTERS: Converters = {
    "_softmax.default": _softmax,
    "softmax.int": _softmax,
    "_safe_softmax.default": _safe_softmax,
    "_log_softmax.default": _log_softmax,
    "log_softmax.int": _log_softmax,
    "native_layer_norm.default": _layer_norm,
    "native_group_norm.default": _group_norm,
    "instance_norm.default": _instance_norm,
    "_native_batch_norm_legit_no_training.default": _batch_norm,
    "_native_batch_norm_legit.no_stats": lambda cx, x, weight, bias, training, momentum, epsilon: (
        _norm_of_batch(cx, x, weight, bias, epsilon)
    ),
    "_native_batch_norm_legit_functional.default": lambda cx, x, weight, bias, mean, var, training, momentum, epsilon: (
        _norm_of_batch(cx, x, weight, bias, epsilon)
        if training
        else _batch_norm(cx, x, weight, bias, mean, var, momentum, epsilon)
    ),
}
