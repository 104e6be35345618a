"""Casts between float32 and bfloat16: read and written by the primitive beside them, or copies of their own."""

from __future__ import annotations

from dataclasses import replace

from tvm import relax

from ..native.absorb import CAST
from ..native.program import Step
from ..native.values import dtype_of, op_name, shape_of, static_shape, view_of
from ..native.views import merged, row_major
from .limits import FLOATS, TYPES, why_not_operand

NARROW = "bfloat16"


def is_cast(value: relax.Expr) -> bool:
    """Whether a value is a call that only changes the element type."""
    return isinstance(value, relax.Call) and op_name(value) == CAST


def step(call: relax.Call) -> Step | str:
    """astype -> reorder of flat memory."""
    return copy(call, call)


def copy(value: relax.Expr, cast: relax.Call) -> Step | str:
    """``value``, the result of ``cast``, as a reorder."""
    data = cast.args[0]
    if reason := why_not_operand("reorder", "operand", data):
        return reason
    if dtype_of(value) not in FLOATS:
        return f"the result is {dtype_of(value)}"
    shape = static_shape(data)
    dims, _ = merged(shape, row_major(shape))
    return Step("reorder", (("src", view_of(data, dims)), ("dst", view_of(value, dims))))


def read_widened(step: Step, value: relax.Expr, cast: relax.Call) -> Step | str:
    """The step that reads the narrow operand of ``cast`` where it read ``value``: primitives widen what they load."""
    data = cast.args[0]
    if (dtype_of(data), dtype_of(value)) != (NARROW, "float32"):
        return f"a cast of {dtype_of(data)} to {dtype_of(value)}; only {NARROW} is widened while it is read"
    if NARROW not in TYPES[step.primitive]:
        return f"{step.primitive} takes {' or '.join(sorted(TYPES[step.primitive]))}"
    bias = step.arg("bias")
    if bias is not None and bias.buffer == value:
        return "the bias is float32"
    if all(view.buffer != value for view in step.views()):
        return "the step does not read it"
    return step.map_views(lambda v: replace(v, buffer=data, dtype=NARROW) if v.buffer == value else v)


def write_narrowed(step: Step, call: relax.Call) -> Step | str:
    """The step that rounds its float32 result as ``call``, a cast, does: once, behind all post-operations."""
    if (dtype_of(call.args[0]), dtype_of(call)) != ("float32", NARROW) or shape_of(call) is None:
        return f"a cast of {dtype_of(call.args[0])} to {dtype_of(call)}"
    if NARROW not in TYPES[step.primitive]:
        return f"{step.primitive} writes {' or '.join(sorted(TYPES[step.primitive]))}"
    return step.with_result(replace(step.result, buffer=call, dtype=NARROW))


ENTRIES = {CAST: step}
