"""batch_norm: in inference, one product and one sum with a value per channel."""

from __future__ import annotations

from tvm import relax

from .rewrite import Rewrite
from .scope import GETITEM, Call, Expr, Scope, dtype_of, op, rank_of
from .why_not import WhyNot


def _batch_norm(item: relax.TupleGetItem, scope: Scope) -> Expr | WhyNot | None:
    """batch_norm(x, gamma, beta, mean, var)[0] -> x * scale + shift; [1] and [2] -> mean and var.

    ``scale = gamma / sqrt(var + epsilon)`` and ``shift = beta - mean * scale`` are left to constant folding.
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
    scale, shift = _scale_and_shift(call)
    return op.add(op.multiply(call.args[0], scale), shift)


def _scale_and_shift(call: Call) -> tuple[Expr, Expr]:
    """Both as tensors that broadcast against the data."""
    _, gamma, beta, mean, variance = call.args
    epsilon = relax.const(call.attrs.epsilon, dtype_of(variance))
    scale = op.rsqrt(op.add(variance, epsilon))
    if call.attrs.scale:
        scale = op.multiply(scale, gamma)
    shift = op.negative(op.multiply(mean, scale))
    if call.attrs.center:
        shift = op.add(shift, beta)
    rank, axis = rank_of(call.args[0]), int(call.attrs.axis)
    others = [dim for dim in range(rank) if dim != axis % rank]
    return op.expand_dims(scale, others), op.expand_dims(shift, others)


BATCH_NORM_FORM = Rewrite("batch_norm_form", (GETITEM,), _batch_norm)
