"""Casts between float32 and bfloat16 that a primitive computes while it reads and writes."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeGuard

from tvm import relax

from .absorb import CAST
from .program import NativeStep
from .values import dtype_of, op_name, shape_of

WIDE, NARROW = "float32", "bfloat16"
FLOATS = frozenset({WIDE, NARROW})


def is_cast(value: relax.Expr) -> TypeGuard[relax.Call]:
    """Whether ``value`` is a call that only changes the element type."""
    return op_name(value) == CAST


def read_widened(step: NativeStep, value: relax.Expr, cast: relax.Call) -> NativeStep | str:
    """The step that reads the narrow operand of ``cast`` instead of its result ``value``, and widens it while
    loading."""
    data = cast.args[0]
    if (dtype_of(data), dtype_of(value)) != (NARROW, WIDE):
        return f"a cast of {dtype_of(data)} to {dtype_of(value)}; only {NARROW} is widened while it is read"
    bias = step.arg("bias")
    if bias is not None and bias.buffer == value:
        return "the bias is float32"
    if all(view.buffer != value for view in step.views()):
        return "the step does not read it"
    return step.map_views(lambda v: replace(v, buffer=data, dtype=NARROW) if v.buffer == value else v)


def write_narrowed(step: NativeStep, call: relax.Call) -> NativeStep | str:
    """The step that rounds its float32 result as ``call``, a cast, does: once, after all post-operations."""
    if (dtype_of(call.args[0]), dtype_of(call)) != (WIDE, NARROW) or shape_of(call) is None:
        return f"a cast of {dtype_of(call.args[0])} to {dtype_of(call)}"
    return step.with_result(replace(step.result, buffer=call, dtype=NARROW))
