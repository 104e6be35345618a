"""layer_norm: put together from mean, difference, variance and root, with the factor and summand that follow.

Normal form: ``nn.layer_norm(x, gamma, beta, axes, epsilon)`` over trailing axes, ``gamma`` and ``beta`` of their shape.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from .constants import constant, stretched_to
from .reductions import reduced_axes, why_not_last, why_not_trailing
from .rewrite import Rewrite
from .scope import Call, Expr, Scope, dtype_of, op, op_name, rank_of, static_shape, static_sizes
from .why_not import WhyNot, first_of, is_no, shape_text

_NAME = "relax.nn.layer_norm"


def _layer_norm(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """(x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + e), or times rsqrt of it -> layer_norm(x, 1, 0)."""
    divided = op_name(call) == "relax.divide"
    pairs = (call.args,) if divided else (call.args, call.args[::-1])
    name = "relax.sqrt" if divided else "relax.rsqrt"
    return first_of(_of_root(centred, root, name, scope) for centred, root in pairs)


def _of_root(centred: Expr, root: Expr, name: str, scope: Scope) -> Expr | WhyNot | None:
    """``centred`` over ``root`` as a norm, if ``centred`` is a tensor less a mean."""
    inner, difference = scope.call(root, name), scope.call(centred, "relax.subtract")
    mean = None if difference is None else scope.call(difference.args[1], "relax.mean")
    if inner is None or difference is None or mean is None:
        return None
    summed = scope.own(inner.args[0], "relax.add", matched=4)
    if is_no(summed):
        return summed or WhyNot(
            f"the root is of {scope.title(inner.args[0])}, not of a variance and an epsilon", 3
        )
    epsilon, axes = scope.scalar(summed.args[1]), reduced_axes(mean)
    why = scope.why_not_own(root) or _why_not_variance(centred, difference, mean, summed.args[0], scope)
    if epsilon is None or rank_of(summed.args[1]) > rank_of(summed.args[0]):
        why = f"{scope.title(summed.args[1])} is added to the variance, not one number"
    why = why or why_not_last(mean.args[0], axes)
    if why is not None or epsilon is None:
        return WhyNot(why or "", 4)
    return _plain(mean.args[0], axes, epsilon)


def _plain(x: Expr, axes: list[int], epsilon: float) -> Expr:
    """The norm of ``x`` over its last ``axes``, whose sizes are known."""
    sizes, dtype = static_sizes(x, axes) or [], dtype_of(x)
    one, zero = np.ones(sizes, "float32"), np.zeros(sizes, "float32")
    negative = [axis - rank_of(x) for axis in axes]
    return op.nn.layer_norm(x, constant(one, dtype), constant(zero, dtype), negative, epsilon)


def _why_not_variance(
    centred: Expr, difference: Call, mean: Call, variance: Expr, scope: Scope
) -> str | None:
    """Why ``variance`` is not that of the tensor that ``mean`` was taken of, and from."""
    x, spread = mean.args[0], scope.call(variance, "relax.mean", "relax.variance")
    if not x.same_as(difference.args[0]):
        return f"the mean of {scope.title(x)} is subtracted from {scope.title(difference.args[0])}"
    if spread is None:
        return f"{scope.title(variance)} is under the root, not a variance or a mean of squares"
    if reduced_axes(mean) != reduced_axes(spread):
        return f"the mean is over the axes {reduced_axes(mean)}, and the variance over {reduced_axes(spread)}"
    if not (mean.attrs.keepdims and spread.attrs.keepdims):
        return "a mean or variance does not keep the axes that it reduces"
    shared = scope.why_not_own(variance)
    if shared is not None:
        return shared
    if op_name(spread) == "relax.variance":
        same = spread.args[0].same_as(x)
        return None if same else f"the variance is of {scope.title(spread.args[0])}, not of {scope.title(x)}"
    squared = scope.own(spread.args[0], "relax.square")
    if isinstance(squared, WhyNot):
        return squared.reason
    if squared is not None and squared.args[0].same_as(centred):
        return None
    return f"the variance is the mean of {scope.title(spread.args[0])}, not of the square of {scope.title(centred)}"


def _scale(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """layer_norm(x, gamma, beta) * s -> layer_norm(x, gamma * s, beta * s), if s has the shape of gamma."""
    return first_of(_scaled(source, factor, scope) for source, factor in (call.args, call.args[::-1]))


def _scaled(source: Expr, factor: Expr, scope: Scope) -> Expr | WhyNot | None:
    inner = scope.call(source, _NAME)
    fitted = None if inner is None else _fitted(factor, source, inner, scope)
    if inner is None or is_no(fitted):
        return fitted
    _, gamma, beta = inner.args
    gamma = fitted if _is(1, gamma, scope) else op.multiply(gamma, fitted)
    beta = beta if _is(0, beta, scope) else op.multiply(beta, fitted)
    return _with(inner, gamma, beta)


def _shift(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """layer_norm(x, gamma, beta) + b -> layer_norm(x, gamma, beta + b), if b has the shape of beta."""
    return first_of(_shifted(source, summand, scope) for source, summand in (call.args, call.args[::-1]))


def _shifted(source: Expr, summand: Expr, scope: Scope) -> Expr | WhyNot | None:
    inner = scope.call(source, _NAME)
    fitted = None if inner is None else _fitted(summand, source, inner, scope)
    if inner is None or is_no(fitted):
        return fitted
    _, gamma, beta = inner.args
    return _with(inner, gamma, fitted if _is(0, beta, scope) else op.add(beta, fitted))


def _fitted(operand: Expr, source: Expr, inner: Call, scope: Scope) -> Expr | WhyNot | None:
    """``operand`` in the shape of the ``gamma`` of ``source``, the norm ``inner``, which nothing else reads.

    None if ``operand`` is another tensor rather than a parameter of the norm.
    """
    wanted, array = static_shape(inner.args[1]), scope.array(operand)
    if wanted is None or (array is None and static_shape(operand) != wanted):
        return None
    stretched = None if array is None else stretched_to(array, wanted)
    if array is not None and stretched is None:
        shape = shape_text(array.shape)
        return WhyNot(f"the constant behind layer_norm has the shape {shape}, not {shape_text(wanted)}", 2)
    why = scope.why_not_own(source) or why_not_trailing(inner)
    if rank_of(operand) > rank_of(source):
        why = f"the constant behind layer_norm has {rank_of(operand)} axes, more than the norm"
    if not inner.attrs.scale or not inner.attrs.center:
        why = "layer_norm does not use its factor or its summand"
    if why is not None:
        return WhyNot(why, 2)
    return operand if stretched is None else constant(stretched)


def _is(number: float, expr: Expr, scope: Scope) -> bool:
    """Whether ``expr`` is a constant full of ``number``."""
    array = scope.array(expr)
    return array is not None and bool(np.all(array == number))


def _with(inner: Call, gamma: Expr, beta: Expr) -> Expr:
    return relax.Call(inner.op, [inner.args[0], gamma, beta], inner.attrs)


LAYER_NORM_FORM = Rewrite("layer_norm_form", ("relax.divide", "relax.multiply"), _layer_norm)
SCALE_INTO_LAYER_NORM = Rewrite("scale_into_layer_norm", ("relax.multiply",), _scale)
SHIFT_INTO_LAYER_NORM = Rewrite("shift_into_layer_norm", ("relax.add",), _shift)
