"""layer_norm: put together from mean, difference, variance and root, with the factor and summand that follow.

Normal form: ``nn.layer_norm(x, gamma, beta, axes, epsilon)`` over trailing axes, ``gamma`` and ``beta`` of their shape.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from .constants import constant
from .reductions import reduced_axes
from .rule import Rule
from .scope import Call, Expr, Scope, dtype_of, op, static_shape

_NAME = "relax.nn.layer_norm"


def _layer_norm(call: Expr, scope: Scope) -> Expr | None:
    """(x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + e), or times rsqrt of it -> layer_norm(x, 1, 0)."""
    divided = call.op.name == "relax.divide"
    for centred, root in (call.args,) if divided else (call.args, call.args[::-1]):
        inner = scope.own_call(root, "relax.sqrt" if divided else "relax.rsqrt")
        summed = None if inner is None else scope.own_call(inner.args[0], "relax.add")
        epsilon = None if summed is None else scope.scalar(summed.args[1])
        if summed is None or epsilon is None:
            continue
        found = _normalised(centred, summed.args[0], scope)
        if found is not None:
            return _plain(*found, epsilon)
    return None


def _plain(x: Expr, axes: list[int], epsilon: float) -> Expr | None:
    shape = static_shape(x)
    if shape is None or axes != list(range(len(shape) - len(axes), len(shape))):
        return None
    sizes = tuple(shape[axis] for axis in axes)
    one, zero = np.ones(sizes, "float32"), np.zeros(sizes, "float32")
    dtype = dtype_of(x)
    negative = [axis - len(shape) for axis in axes]
    return op.nn.layer_norm(x, constant(one, dtype), constant(zero, dtype), negative, epsilon)


def _normalised(centred: Expr, variance: Expr, scope: Scope) -> tuple[Expr, list[int]] | None:
    """``x`` and axes, where ``centred`` is ``x - mean(x)`` and ``variance`` that of ``x`` over the same axes."""
    difference = scope.call(centred, "relax.subtract")
    mean = None if difference is None else scope.call(difference.args[1], "relax.mean")
    spread = scope.own_call(variance, "relax.mean", "relax.variance")
    if difference is None or mean is None or spread is None or not mean.args[0].same_as(difference.args[0]):
        return None
    if reduced_axes(mean) != reduced_axes(spread) or not (mean.attrs.keepdims and spread.attrs.keepdims):
        return None
    if spread.op.name == "relax.mean":
        squared = scope.own_call(spread.args[0], "relax.square")
        same = squared is not None and squared.args[0].same_as(centred)
    else:
        same = spread.args[0].same_as(mean.args[0])
    return (mean.args[0], reduced_axes(mean)) if same else None


def _scale(call: Expr, scope: Scope) -> Expr | None:
    """layer_norm(x, gamma, beta) * s -> layer_norm(x, gamma * s, beta * s), if s has the shape of gamma."""
    for source, factor in (call.args, call.args[::-1]):
        inner = scope.own_call(source, _NAME)
        fitted = None if inner is None else _fitted(factor, inner, scope)
        if inner is not None and fitted is not None:
            _, gamma, beta = inner.args
            gamma = fitted if _is(1, gamma, scope) else op.multiply(gamma, fitted)
            beta = beta if _is(0, beta, scope) else op.multiply(beta, fitted)
            return _with(inner, gamma, beta)
    return None


def _shift(call: Expr, scope: Scope) -> Expr | None:
    """layer_norm(x, gamma, beta) + b -> layer_norm(x, gamma, beta + b), if b has the shape of beta."""
    for source, summand in (call.args, call.args[::-1]):
        inner = scope.own_call(source, _NAME)
        fitted = None if inner is None else _fitted(summand, inner, scope)
        if inner is not None and fitted is not None:
            _, gamma, beta = inner.args
            beta = fitted if _is(0, beta, scope) else op.add(beta, fitted)
            return _with(inner, gamma, beta)
    return None


def _fitted(operand: Expr, inner: Call, scope: Scope) -> Expr | None:
    """``operand`` in the shape of ``gamma``, if it is a parameter of the norm rather than another tensor."""
    wanted, shape = static_shape(inner.args[1]), static_shape(operand)
    if wanted is None or shape is None or not inner.attrs.scale or not inner.attrs.center:
        return None
    array = scope.array(operand)
    if array is None:
        return operand if shape == wanted else None
    while array.ndim > len(wanted) and array.shape[0] == 1:
        array = array[0]
    return constant(np.broadcast_to(array, wanted)) if array.ndim <= len(wanted) else None


def _is(number: float, expr: Expr, scope: Scope) -> bool:
    """Whether ``expr`` is a constant full of ``number``."""
    array = scope.array(expr)
    return array is not None and bool(np.all(array == number))


def _with(inner: Call, gamma: Expr, beta: Expr) -> Expr:
    return relax.Call(inner.op, [inner.args[0], gamma, beta], inner.attrs)


LAYER_NORM_FORM = Rule("layer_norm_form", ("relax.divide", "relax.multiply"), _layer_norm)
SCALE_INTO_LAYER_NORM = Rule("scale_into_layer_norm", ("relax.multiply",), _scale)
SHIFT_INTO_LAYER_NORM = Rule("shift_into_layer_norm", ("relax.add",), _shift)
