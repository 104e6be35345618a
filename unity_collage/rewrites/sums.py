"""sums: an operator of n operands, written as stack and reduction, becomes a chain of binary ones."""

from __future__ import annotations

from functools import reduce

from tvm import relax

from .rule import Rule
from .scope import Expr, Scope, dtype_of, is_float, op

_BINARY = {
    "relax.sum": op.add,
    "relax.mean": op.add,
    "relax.max": op.maximum,
    "relax.min": op.minimum,
}


def _stack_reduction(call: Expr, scope: Scope) -> Expr | None:
    """sum(stack((a, b, c), axis=k), axis=[k]) -> (a + b) + c; mean, max and min likewise."""
    stack = scope.call(call.args[0], "relax.stack")
    parts = None if stack is None else scope.value(stack.args[0])
    if stack is None or not isinstance(parts, relax.Tuple) or call.attrs.keepdims or not is_float(call):
        return None
    rank = stack.ty.ndim
    axes = [int(axis) % rank for axis in call.attrs.axis or ()]
    if axes != [int(stack.attrs.axis or 0) % rank]:
        return None
    total = reduce(_BINARY[call.op.name], parts.fields)
    if call.op.name != "relax.mean":
        return total
    return op.multiply(total, relax.const(1.0 / len(parts.fields), dtype_of(call)))


UNSTACK_REDUCTION = Rule("unstack_reduction", tuple(_BINARY), _stack_reduction)
