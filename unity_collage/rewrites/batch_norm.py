"""batch_norm: in inference, one product and one sum with a value per channel."""

from __future__ import annotations

import numpy as np
from tvm import relax

from .constants import limits_of
from .rewrite import Rewrite
from .scope import GETITEM, Call, Expr, Scope, dtype_of, op, rank_of
from .why_not import WhyNot

_NARROW = ("float16", "bfloat16")


def _batch_norm(item: relax.TupleGetItem, scope: Scope) -> Expr | WhyNot | None:
    """batch_norm(x, gamma, beta, mean, var)[0] -> x * scale + shift; [1] and [2] -> mean and var.

    ``scale = gamma / sqrt(var + epsilon)`` and ``shift = beta - mean * scale`` are left to constant folding. Those of
    16-bit types are computed in float32.
    """
    call = scope.call(item.tuple_value, "relax.nn.batch_norm")
    if call is None:
        return None
    if call.attrs.training:
        return WhyNot("batch_norm takes its statistics from the batch: it is in training mode")
    if item.index > 0:
        return call.args[item.index + 2]
    dtypes = list(dict.fromkeys(map(dtype_of, call.args)))
    if len(dtypes) != 1:
        return WhyNot(f"the operands of batch_norm are {' and '.join(dtypes)}, not of one type")
    if (why := _why_out_of_range(call, scope)) is not None:
        return WhyNot(why)
    scale, shift = _scale_and_shift(call)
    return op.add(op.multiply(call.args[0], scale), shift)


def _why_out_of_range(call: Call, scope: Scope) -> str | None:
    """Why the factor or summand of known statistics is not a number of their 16-bit type, or None."""
    arrays, dtype = [scope.array(arg) for arg in call.args[1:]], dtype_of(call.args[0])
    known = [array.astype("float64") for array in arrays if array is not None]
    if dtype not in _NARROW or len(known) < len(arrays):
        return None
    gamma, beta, mean, variance = known
    with np.errstate(all="ignore"):
        scale = (gamma if call.attrs.scale else 1.0) / np.sqrt(variance + call.attrs.epsilon)
        shift = (beta if call.attrs.center else 0.0) - mean * scale
        largest = max(np.max(np.abs(scale), initial=0.0), np.max(np.abs(shift), initial=0.0))
    return f"its factor or summand overflows in {dtype}" if largest > limits_of(dtype).max else None


def _scale_and_shift(call: Call) -> tuple[Expr, Expr]:
    """Both as tensors that broadcast against the data."""
    dtype = dtype_of(call.args[0])
    is_narrow = dtype in _NARROW
    gamma, beta, mean, variance = (op.astype(arg, "float32") if is_narrow else arg for arg in call.args[1:])
    epsilon = relax.const(call.attrs.epsilon, "float32" if is_narrow else dtype)
    scale = op.rsqrt(op.add(variance, epsilon))
    if call.attrs.scale:
        scale = op.multiply(scale, gamma)
    shift = op.negative(op.multiply(mean, scale))
    if call.attrs.center:
        shift = op.add(shift, beta)
    rank, axis = rank_of(call.args[0]), int(call.attrs.axis)
    others = [dim for dim in range(rank) if dim != axis % rank]
    scale, shift = (op.astype(made, dtype) if is_narrow else made for made in (scale, shift))
    return op.expand_dims(scale, others), op.expand_dims(shift, others)


BATCH_NORM_FORM = Rewrite("batch_norm_form", (GETITEM,), _batch_norm)
