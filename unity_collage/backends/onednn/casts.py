"""Casts between float32 and bfloat16: absorbed by a neighbouring primitive, or copied by a reorder."""

from __future__ import annotations

from dataclasses import replace

from tvm import relax

from ..native import casts
from ..native.absorb import CAST
from ..native.casts import FLOATS, NARROW, WIDE
from ..native.program import NativeStep
from ..native.values import dtype_of, static_shape, view_of
from ..native.views import merged, row_major
from .limits import TYPES, why_not_operand
from .whole_numbers import SUMS


def step(call: relax.Call) -> NativeStep | str:
    """astype -> reorder of flat memory."""
    return copy(call, call)


def copy(value: relax.Expr, cast: relax.Call) -> NativeStep | str:
    """``value``, the result of ``cast``, as a reorder."""
    data = cast.args[0]
    if reason := why_not_operand("reorder", "operand", data):
        return reason
    if dtype_of(value) not in FLOATS:
        return f"the result is {dtype_of(value)}"
    shape = static_shape(data)
    dims, _ = merged(shape, row_major(shape))
    return NativeStep("reorder", (("src", view_of(data, dims)), ("dst", view_of(value, dims))))


def read_widened(step: NativeStep, value: relax.Expr, cast: relax.Call) -> NativeStep | str:
    """The step that reads the narrow operand of ``cast`` instead of its result ``value``, or the reason why not."""
    if NARROW not in TYPES[step.primitive]:
        return f"{step.primitive} takes {' or '.join(sorted(TYPES[step.primitive]))}"
    return casts.read_widened(step, value, cast)


def write_cast(step: NativeStep, call: relax.Call) -> NativeStep | str:
    """The step that rounds its float32 result, or its sums of integers, as ``call`` does, or the reason why not."""
    if (step.result.dtype, dtype_of(call)) == (SUMS, WIDE):
        return step.with_result(replace(step.result, buffer=call, dtype=WIDE))
    if NARROW not in TYPES[step.primitive]:
        return f"{step.primitive} writes {' or '.join(sorted(TYPES[step.primitive]))}"
    return casts.write_narrowed(step, call)


ENTRIES = {CAST: step}
