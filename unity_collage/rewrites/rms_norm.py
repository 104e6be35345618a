"""rms_norm: put together from square, mean and root, with the factor that follows.

Normal form: ``nn.rms_norm(x, gamma, axes, epsilon)`` over trailing axes, ``gamma`` of their shape (Zhang and Sennrich
2019, "Root Mean Square Layer Normalization").
"""

from __future__ import annotations

import numpy as np

from .constants import constant, stretched_to
from .reductions import reduced_axes, why_not_last, why_not_trailing
from .rewrite import Rewrite
from .scope import Call, Expr, Scope, dtype_of, op, op_name, rank_of, static_sizes
from .why_not import WhyNot, first_of, shape_text

_NAME = "relax.nn.rms_norm"


def _rms_norm(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """x / sqrt(mean(x ** 2) + e), or x times rsqrt of it -> rms_norm(x, 1)."""
    divided = op_name(call) == "relax.divide"
    pairs = (call.args,) if divided else (call.args, call.args[::-1])
    name = "relax.sqrt" if divided else "relax.rsqrt"
    return first_of(_of_root(x, root, name, scope) for x, root in pairs)


def _of_root(x: Expr, root: Expr, name: str, scope: Scope) -> Expr | WhyNot | None:
    """``x`` over ``root`` as a norm, if there is a mean of squares under the root."""
    inner = scope.call(root, name)
    summed = None if inner is None else scope.call(inner.args[0], "relax.add")
    reduced = None if summed is None else scope.call(summed.args[0], "relax.mean", "relax.sum")
    squared = None if reduced is None else scope.call(reduced.args[0], "relax.square")
    if inner is None or summed is None or reduced is None or squared is None:
        return None
    epsilon, axes = scope.scalar(summed.args[1]), reduced_axes(reduced)
    why = _why_not_mean(x, reduced, squared, scope)
    if epsilon is None or rank_of(summed.args[1]) > rank_of(summed.args[0]):
        why = f"{scope.title(summed.args[1])} is added to the mean of squares, not one number"
    way = (root, inner.args[0], summed.args[0], reduced.args[0])
    why = why or next(filter(None, map(scope.why_not_own, way)), None) or why_not_last(x, axes)
    if why is not None or epsilon is None:
        return WhyNot(why or "", 5)
    gamma = constant(np.ones(static_sizes(x, axes) or [], "float32"))
    return op.nn.rms_norm(x, gamma, [axis - rank_of(x) for axis in axes], epsilon)


def _why_not_mean(x: Expr, reduced: Call, squared: Call, scope: Scope) -> str | None:
    """Why a reduction of squares is not the mean square of ``x`` as ``nn.rms_norm`` takes it."""
    if op_name(reduced) != "relax.mean":
        return f"{scope.title(squared.args[0])} is normed by the sum of its squares, not by their mean"
    if not squared.args[0].same_as(x):
        return f"the mean square is of {scope.title(squared.args[0])}, not of {scope.title(x)}"
    if not reduced.attrs.keepdims:
        return "the mean of squares does not keep the axes that it reduces"
    return None if dtype_of(x) == "float32" else f"rms_norm takes float32, not {dtype_of(x)}"


def _scale(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """rms_norm(x, gamma) * s -> rms_norm(x, gamma * s), if s is a constant of the shape of gamma."""
    return first_of(_scaled(source, factor, scope) for source, factor in (call.args, call.args[::-1]))


def _scaled(source: Expr, factor: Expr, scope: Scope) -> Expr | WhyNot | None:
    inner, array = scope.call(source, _NAME), scope.array(factor)
    if inner is None or array is None:
        return None
    gamma = scope.array(inner.args[1])
    fitted = None if gamma is None else stretched_to(array, gamma.shape)
    why = scope.why_not_own(source) or why_not_trailing(inner) or _why_not_fitting(array, gamma)
    if rank_of(factor) > rank_of(source):
        why = f"the factor behind rms_norm has {rank_of(factor)} axes, more than the norm"
    if gamma is None or fitted is None or why is not None:
        return WhyNot(why or "", 2)
    scaled = constant(gamma * fitted)
    axes = [int(axis) for axis in inner.attrs.axes]
    return op.nn.rms_norm(inner.args[0], scaled, axes, inner.attrs.epsilon)


def _why_not_fitting(array: np.ndarray, gamma: np.ndarray | None) -> str | None:
    """Why a constant factor is not one of ``gamma``: it may vary along no other axes."""
    if gamma is None:
        return "the factor that rms_norm has is not constant"
    if array.dtype != gamma.dtype:
        return f"the factor behind rms_norm is {array.dtype}, and its own {gamma.dtype}"
    if stretched_to(array, gamma.shape) is None:
        return f"the factor behind rms_norm has the shape {shape_text(array.shape)}, not {shape_text(gamma.shape)}"
    return None


RMS_NORM_FORM = Rewrite("rms_norm_form", ("relax.divide", "relax.multiply"), _rms_norm)
SCALE_INTO_RMS_NORM = Rewrite("scale_into_rms_norm", ("relax.multiply",), _scale)
