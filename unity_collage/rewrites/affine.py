"""affine: factors and summands per output channel go into the constants of the convolution before them.

Normal form: ``add(conv(x, weights), bias)`` with a bias of shape (1, C, 1, 1) for NCHW, and
``add(matmul(x, weights), bias)`` with a bias of shape (N,).
"""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm_ffi import structural_equal

from .constants import constant, multiplied
from .linear import LINEAR_OPS, Linear, is_of_two_tensors, linear_of, per_channel, why_not_linear
from .rewrite import Rewrite
from .scope import Call, Expr, Scope, dtype_of, is_float, op, op_name
from .views import permutation
from .why_not import WhyNot, is_no, shape_text


def _scale(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """conv(x, w) * s -> conv(x, w * s), and (conv(x, w) + b) * s -> conv(x, w * s) + b * s."""
    array = scope.array(call.args[1])
    if array is None:
        return None
    found = _linear_and_shift(call.args[0], scope)
    if is_no(found):
        return found
    linear, shift = found
    why = _why_no_factor(call, array)
    if why is not None:
        return WhyNot(why, 2)
    wide = array.astype(np.promote_types(array.dtype, np.float32))
    with np.errstate(over="ignore"):
        scale = per_channel(wide if op_name(call) == "relax.multiply" else 1 / wide, linear)
    if scale is None:
        return WhyNot(_varies("the factor", array), 2)
    if (why := linear.why_not_scaled(scale)) is not None:
        return WhyNot(why, 2)
    if shift is None:
        return linear.scaled(scale)
    summand = per_channel(shift, linear)
    if summand is None:
        return WhyNot(_varies("the summand before the factor", shift), 3)
    bias = multiplied(summand, scale)
    if bias is None:
        return WhyNot("the summand before the factor times the factor overflows", 3)
    return op.add(linear.scaled(scale), constant(bias.reshape(linear.bias_shape())))


def _before_permute(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """permute(y) * s -> permute(y * s), where y is conv(x, w) + b or similar, and s has one factor for each of its
    channels.
    """
    moved, factor = scope.call(call.args[0], "relax.permute_dims"), scope.array(call.args[1])
    if moved is None or factor is None:
        return None
    found = _linear_and_shift(moved.args[0], scope)
    if is_no(found):
        return found
    shared = scope.why_not_own(call.args[0])
    if shared is not None:
        return WhyNot(shared, 3)
    linear, _ = found
    axes = permutation(moved)
    if len(axes) != linear.rank:
        return WhyNot(f"the constant that is added before {scope.title(call.args[0])} adds axes", 3)
    shape = (1,) * (linear.rank - factor.ndim) + factor.shape
    if len(shape) > linear.rank:
        return WhyNot(f"the factor has {factor.ndim} axes, more than {scope.title(call.args[0])}", 3)
    moved_factor = factor.reshape(shape).transpose(np.argsort(axes))
    if per_channel(moved_factor, linear) is None:
        return WhyNot(_varies("the factor", factor), 3)
    return relax.Call(moved.op, [op.multiply(moved.args[0], constant(moved_factor))], moved.attrs)


def _linear_and_shift(source: Expr, scope: Scope) -> tuple[Linear, np.ndarray | None] | WhyNot | None:
    """``source`` as a convolution or product with constant weights, and the constant that is added to it, if any."""
    summed = scope.call(source, "relax.add")
    product = source if summed is None else summed.args[0]
    call = scope.call(product, *LINEAR_OPS)
    if call is None or is_of_two_tensors(call, scope):
        return None
    linear, shift = linear_of(call, scope), None if summed is None else scope.array(summed.args[1])
    if linear is None:
        return WhyNot(why_not_linear(call, scope) or "", 2)
    if summed is not None and shift is None:
        return WhyNot(f"{scope.title(summed.args[1])}, which add adds before the factor, is not constant", 2)
    shared = scope.why_not_own(product) or scope.why_not_own(source)
    return (linear, shift) if shared is None else WhyNot(shared, 2)


def _why_no_factor(call: Call, array: np.ndarray) -> str | None:
    """Why weights cannot be multiplied by a constant operand, or divided by it."""
    if not is_float(call):
        return f"the product is {dtype_of(call)}, not a floating point type"
    if not np.all(np.isfinite(array)):
        return "the factor is not finite"
    return "a divisor is 0" if op_name(call) == "relax.divide" and np.any(array == 0) else None


def _varies(what: str, array: np.ndarray) -> str:
    return f"{what} has the shape {shape_text(array.shape)}, not one value for each output channel"


def _bias_shape(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """A summand per channel of a convolution or product -> the same values in the shape of a bias."""
    array, product = scope.array(call.args[1]), scope.call(call.args[0], *LINEAR_OPS)
    if array is None or product is None or is_of_two_tensors(product, scope):
        return None
    linear = linear_of(product, scope)
    if linear is None:
        return WhyNot(why_not_linear(product, scope) or "", 2)
    if array.shape == linear.bias_shape():
        return None
    if not structural_equal(call.ty, call.args[0].ty):
        return WhyNot(f"the summand makes {call.ty} of {call.args[0].ty}, not the same shape", 2)
    bias = per_channel(array, linear)
    if bias is None:
        return WhyNot(_varies("the summand", array), 2)
    return op.add(call.args[0], constant(bias.reshape(linear.bias_shape())))


SCALE_BEFORE_PERMUTE = Rewrite("scale_before_permute", ("relax.multiply",), _before_permute)
SCALE_INTO_WEIGHTS = Rewrite("scale_into_weights", ("relax.multiply", "relax.divide"), _scale)
BIAS_SHAPE = Rewrite("bias_shape", ("relax.add",), _bias_shape)
