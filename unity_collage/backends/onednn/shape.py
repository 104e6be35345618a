"""Operators that only move data: concatenation, and layout changes as copies."""

from __future__ import annotations

import math

from tvm import relax

from ..native.absorb import LAYOUT_CHANGES, copied
from ..native.program import NativeStep
from ..native.values import attrs_of, shape_of, static_shape, tensors, view_of
from .limits import why_not_operand


def concat(call: relax.Call) -> NativeStep | str:
    """concat, stack -> concat of matrices along their second dim."""
    fields = tensors(call)
    if isinstance(call.args[0], relax.Var) or not fields:
        return "the operands are a variable, not a tuple that is written in the call"
    for index, value in enumerate(fields):
        if reason := why_not_operand("concat", f"operand {index}", value):
            return reason
    shape = shape_of(call)
    if shape is None:
        return "the result has no static shape"
    axis = 0 if attrs_of(call).axis is None else int(attrs_of(call).axis) % len(shape)
    outer = math.prod(shape[:axis])
    parts = [view_of(value, (outer, math.prod(static_shape(value)) // outer)) for value in fields]
    result = view_of(call, (outer, math.prod(shape[axis:])))
    args = (*((f"src{i}", part) for i, part in enumerate(parts)), ("dst", result))
    return NativeStep("concat", args, (("axis", 1),))


def copy(value: relax.Expr, producer: relax.Expr) -> NativeStep | str:
    """``value``, the result of a layout change, as a reorder."""
    views = copied(value, producer)
    if isinstance(views, str):
        return views
    source, result = views
    if reason := why_not_operand("reorder", "operand", value):
        return reason
    return NativeStep("reorder", (("src", source), ("dst", result)))


def reorder(call: relax.Call) -> NativeStep | str:
    """permute_dims, strided_slice and reshapes as copies."""
    reason = why_not_operand("reorder", "operand", call.args[0])
    return copy(call, call) if reason is None else reason


ENTRIES = {
    "relax.concat": concat,
    "relax.stack": concat,
    **dict.fromkeys(sorted(LAYOUT_CHANGES), reorder),
}
