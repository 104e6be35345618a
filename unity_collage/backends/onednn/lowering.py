"""The lowering tables of oneDNN: one operator to one primitive, with the operators that it absorbs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from tvm import relax

from ...graph.free_sizes import for_all_sizes
from ..native.absorb import CAST, LAYOUT_CHANGES, RESHAPES, read_through, write_through
from ..native.casts import is_cast
from ..native.lowering import Tables, lower_functions
from ..native.program import NativeStep
from ..native.values import op_name
from . import (
    binary,
    casts,
    convolution,
    eltwise,
    matmul,
    normalization,
    pooling,
    post_ops,
    quantising,
    reduction,
    resize,
    shape,
)
from .limits import is_mixed, why_not_layout, why_not_types, why_not_vectors
from .lrn import lrn
from .nesting import with_nested_strides

ENTRIES: Mapping[str, Callable[[relax.Call], NativeStep | str]] = {
    **convolution.ENTRIES,
    **matmul.ENTRIES,
    **pooling.ENTRIES,
    **normalization.ENTRIES,
    **eltwise.ENTRIES,
    **binary.ENTRIES,
    **shape.ENTRIES,
    **reduction.ENTRIES,
    **resize.ENTRIES,
    **casts.ENTRIES,
}

ANCHORS = frozenset(ENTRIES) - RESHAPES
"""Operators that make a primitive. A reshape alone is free and needs none."""


@for_all_sizes
def step(call: relax.Call) -> NativeStep | str:
    """One operator as one primitive, or the reason why not."""
    entry = ENTRIES.get(op_name(call))
    if entry is None:
        return f"oneDNN has no primitive for {op_name(call)}"
    return _complete(_checked(entry(call)))


@for_all_sizes
def fused(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    """The step with ``call``, which reads its result as ``args[operand]``, as bias, post-operation or cast, or the
    reason.
    """
    if op_name(call) == quantising.QUANTIZE and operand == 0:
        return _checked(quantising.write_quantized(step, call))
    if op_name(call) == quantising.DEQUANTIZE and operand == 0:
        return _checked(quantising.widened_again(step, call))
    return _checked(casts.write_cast(step, call) if is_cast(call) else post_ops.fused(step, call, operand))


@for_all_sizes
def absorbed_input(step: NativeStep, value: relax.Expr, producer: relax.Expr) -> NativeStep | str:
    """The step that reads the operand of ``producer`` instead of ``value``, or the reason why not.

    ``producer`` is a layout change, a cast or a dequantisation.
    """
    if isinstance(producer, relax.Call) and op_name(producer) == quantising.DEQUANTIZE:
        return _checked(quantising.read_quantized(step, value, producer))
    return _checked(
        casts.read_widened(step, value, producer)
        if is_cast(producer)
        else read_through(step, value, producer)
    )


@for_all_sizes
def absorbed_output(step: NativeStep, call: relax.Call) -> NativeStep | str:
    """The step that writes its result as ``call``, a permutation or reshape, would leave it, or the reason why not."""
    moved = write_through(step, call)
    return _checked(moved)


def lower(functions: Sequence[relax.Function], names: Sequence[str]) -> tuple[str, np.ndarray]:
    """From functions to the JSON of their programs and the blob of their constants.

    Raises NotLowerable, with the names of the function and the operator, for what the tables decline.
    """
    return lower_functions(functions, names, _TABLES, _COMPLETE_TABLES)


def why_partial(step: NativeStep) -> str | None:
    """Why only a reference kernel would run the step, or None.

    A step that reads one layout and writes another must read or write through one more permutation.
    """
    return why_not_layout(step)


def _checked(made: NativeStep | str) -> NativeStep | str:
    if isinstance(made, str):
        return made
    layout = None if is_mixed(made) else why_not_layout(made)
    return (
        why_not_types(made)
        or layout
        or _why_not_before(made)
        or why_not_vectors(made)
        or post_ops.why_not_operands(made)
        or with_nested_strides(made)
    )


def _why_not_before(step: NativeStep) -> str | None:
    """Why the steps before it cannot have their layouts, or None."""
    return next((reason for before in step.before if (reason := why_not_layout(before))), None)


def _complete(made: NativeStep | str) -> NativeStep | str:
    return why_not_layout(made) or made if isinstance(made, NativeStep) else made


@for_all_sizes
def _copy(value: relax.Expr, producer: relax.Expr) -> NativeStep | str:
    return casts.copy(value, producer) if is_cast(producer) else shape.copy(value, producer)


_TABLES = Tables(
    step,
    fused,
    absorbed_input,
    absorbed_output,
    copy=_copy,
    region=lrn,
    why_partial=why_partial,
    read_in_place=LAYOUT_CHANGES | {CAST, quantising.DEQUANTIZE},
)
_COMPLETE_TABLES = replace(
    _TABLES,
    absorbed_input=lambda step, value, producer: _complete(absorbed_input(step, value, producer)),
    absorbed_output=lambda step, call: _complete(absorbed_output(step, call)),
)
"""The tables that copy a layout change if absorbing it would leave a step incomplete."""
