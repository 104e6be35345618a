"""rms_norm: put together from square, mean and root, with the factor that follows.

Normal form: ``nn.rms_norm(x, gamma, axes, epsilon)`` over trailing axes, ``gamma`` of their shape (Zhang and Sennrich
2019, "Root Mean Square Layer Normalization").
"""

from __future__ import annotations

import numpy as np

from .constants import constant
from .reductions import reduced_axes
from .rule import Rule
from .scope import Call, Expr, Scope, dtype_of, op, static_shape

_NAME = "relax.nn.rms_norm"


def _rms_norm(call: Expr, scope: Scope) -> Expr | None:
    """x / sqrt(mean(x ** 2) + e), or x times rsqrt of it -> rms_norm(x, 1)."""
    divided = call.op.name == "relax.divide"
    for x, root in (call.args,) if divided else (call.args, call.args[::-1]):
        inner = scope.own_call(root, "relax.sqrt" if divided else "relax.rsqrt")
        summed = None if inner is None else scope.own_call(inner.args[0], "relax.add")
        epsilon = None if summed is None else scope.scalar(summed.args[1])
        axes = None if summed is None else _mean_square(x, summed.args[0], scope)
        shape = static_shape(x)
        if axes is None or epsilon is None or shape is None or dtype_of(x) != "float32":
            continue
        if axes == list(range(len(shape) - len(axes), len(shape))):
            gamma = constant(np.ones([shape[axis] for axis in axes], "float32"))
            return op.nn.rms_norm(x, gamma, [axis - len(shape) for axis in axes], epsilon)
    return None


def _mean_square(x: Expr, mean: Expr, scope: Scope) -> list[int] | None:
    """The axes over which ``mean`` is that of ``x ** 2``, or None if it is something else."""
    reduced = scope.own_call(mean, "relax.mean")
    squared = None if reduced is None else scope.own_call(reduced.args[0], "relax.square")
    if reduced is None or squared is None or not squared.args[0].same_as(x) or not reduced.attrs.keepdims:
        return None
    return reduced_axes(reduced)


def _scale(call: Expr, scope: Scope) -> Expr | None:
    """rms_norm(x, gamma) * s -> rms_norm(x, gamma * s), if s is a constant of the shape of gamma."""
    for source, factor in (call.args, call.args[::-1]):
        inner = scope.own_call(source, _NAME)
        fitted = None if inner is None else _fitted(factor, inner, scope)
        if inner is not None and fitted is not None:
            gamma = constant(scope.array(inner.args[1]) * fitted)
            axes = [int(axis) for axis in inner.attrs.axes]
            return op.nn.rms_norm(inner.args[0], gamma, axes, inner.attrs.epsilon)
    return None


def _fitted(factor: Expr, inner: Call, scope: Scope) -> np.ndarray | None:
    """``factor`` as an array that varies along no other axes than ``gamma``, if both are constants."""
    gamma, array = scope.array(inner.args[1]), scope.array(factor)
    if gamma is None or array is None or array.dtype != gamma.dtype:
        return None
    while array.ndim > gamma.ndim and array.shape[0] == 1:
        array = array[0]
    return np.broadcast_to(array, gamma.shape) if array.ndim <= gamma.ndim else None


RMS_NORM_FORM = Rule("rms_norm_form", ("relax.divide", "relax.multiply"), _rms_norm)
SCALE_INTO_RMS_NORM = Rule("scale_into_rms_norm", ("relax.multiply",), _scale)
