"""sums: an operator of n operands, written as stack and reduction, becomes a chain of binary ones."""

from __future__ import annotations

from functools import reduce

from tvm import relax

from .rewrite import Rewrite
from .scope import Call, Expr, Scope, dtype_of, is_float, op, op_name, rank_of
from .why_not import WhyNot

_BINARY = {
    "relax.sum": op.add,
    "relax.mean": op.add,
    "relax.max": op.maximum,
    "relax.min": op.minimum,
}


_PARTS = 64
"""The longest chain: the driver descends into it, and each of its operators writes a tensor."""


def _stack_reduction(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """sum(stack((a, b, c), axis=k), axis=[k]) -> (a + b) + c; mean, max and min likewise."""
    stack = scope.call(call.args[0], "relax.stack")
    parts = None if stack is None else scope.value(stack.args[0])
    if stack is None or not isinstance(parts, relax.Tuple):
        return None
    why = _why_not_stacked(call, stack) or _why_no_chain(call, len(parts.fields))
    if why is not None:
        return WhyNot(why, 2)
    total = reduce(_BINARY[op_name(call)], parts.fields)
    if op_name(call) != "relax.mean":
        return total
    return op.multiply(total, relax.const(1.0 / len(parts.fields), dtype_of(call)))


def _why_not_stacked(call: Call, stack: Call) -> str | None:
    """Why a reduction of a stack does not reduce just what was stacked."""
    name, rank = op_name(call).removeprefix("relax."), rank_of(stack)
    if call.attrs.keepdims:
        return f"{name} keeps the axis that stack made"
    if not is_float(call):
        return f"{name} is of {dtype_of(call)}, not of a floating point type"
    axes, made = [int(axis) % rank for axis in call.attrs.axis or ()], int(stack.attrs.axis or 0) % rank
    return (
        None if axes == [made] else f"{name} is over the axes {axes or 'all'}, and stack made the axis {made}"
    )


def _why_no_chain(call: Call, count: int) -> str | None:
    """Why ``count`` operands are not reduced one after the other."""
    name, dtype = op_name(call).removeprefix("relax."), dtype_of(call)
    if count > _PARTS:
        return f"{name} is of {count} parts, more than {_PARTS}"
    rounds = name == "mean" or (name == "sum" and count > 2)
    if rounds and dtype not in ("float32", "float64"):
        return f"{name} is of {dtype}, which rounds or overflows between the parts"
    return None


UNSTACK_REDUCTION = Rewrite("unstack_reduction", tuple(_BINARY), _stack_reduction)
