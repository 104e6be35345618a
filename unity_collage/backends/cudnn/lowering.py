"""The lowering tables of cuDNN: an anchor, with the operators that engines compute in the same kernel.

A function names its anchor and the number of the engine by its ``Composite`` label.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from tvm import relax

from ..native.absorb import CAST, LAYOUT_CHANGES, read_through, write_through
from ..native.casts import is_cast
from ..native.labels import algorithm_label
from ..native.lowering import NotLowerable, Tables, lower_function
from ..native.program import Blob, NativeStep, programs_json
from ..native.values import op_name
from ..onednn.limits import is_mixed, why_not_layout
from ..onednn.nesting import with_nested_strides
from . import attention, convolution, normalization, pooling, post_ops

ENGINES = 3
"""How many engines are offered for a convolution, in the order of cuDNN's heuristics."""


@dataclass(frozen=True, slots=True)
class GraphKind:
    """The beginning of graphs with one label: the anchor operators, and the function that makes a step of one."""

    step: Callable[[relax.Call], NativeStep | str]
    anchors: frozenset[str]
    always_absorbed: frozenset[str] = frozenset({CAST})
    """Operators before it that are never worth a separate kernel."""


def _pooling(call: relax.Call) -> NativeStep | str:
    return pooling.ENTRIES[op_name(call)](call)


ALGORITHMS: Mapping[str, GraphKind] = {
    **{
        f"cudnn.engine{k}": GraphKind(partial(convolution.convolution, algorithm=k), convolution.ANCHORS)
        for k in range(ENGINES)
    },
    **{
        f"cudnn.attention{k}": GraphKind(
            partial(attention.attention, algorithm=k), attention.ANCHORS, LAYOUT_CHANGES | {CAST}
        )
        for k in range(2)
    },
    **{
        f"cudnn.tf32_engine{k}": GraphKind(
            partial(convolution.convolution, algorithm=k, tf32=True), convolution.ANCHORS
        )
        for k in range(ENGINES)
    },
    "cudnn.pooling": GraphKind(_pooling, frozenset(pooling.ENTRIES)),
    "cudnn.layer_norm": GraphKind(normalization.layer_norm, frozenset({"relax.nn.layer_norm"})),
}
"""By label."""


def step(label: str, call: relax.Call) -> NativeStep | str:
    """The beginning of a graph of ``label``, or the reason why it cannot begin with ``call``."""
    kind = ALGORITHMS[label]
    if op_name(call) not in kind.anchors:
        return f"{label} does not begin with {op_name(call)}"
    return _checked(kind.step(call))


def fused(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    """The step with ``call``, which reads its result as ``args[operand]``, as its next operation, or the reason why
    not.
    """
    grow = _GROWING.get(step.primitive)
    return (
        f"{step.primitive} takes no operator behind it"
        if grow is None
        else _checked(grow(step, call, operand))
    )


def absorbed_input(step: NativeStep, value: relax.Expr, producer: relax.Expr) -> NativeStep | str:
    """The step that reads the operand of ``producer``, a layout change or a cast, instead of ``value``, or why not."""
    return _checked(
        post_ops.read_widened(step, value, producer)
        if is_cast(producer)
        else read_through(step, value, producer)
    )


def absorbed_output(step: NativeStep, call: relax.Call) -> NativeStep | str:
    """The step that writes its result as ``call``, a permutation or reshape, would leave it, or the reason why not."""
    return _checked(write_through(step, call))


def why_partial(step: NativeStep) -> str | None:
    """Why the step cannot run yet, or None."""
    return attention.why_partial(step) if step.primitive == attention.PRIMITIVE else why_not_layout(step)


def lower(functions: Sequence[relax.Function], names: Sequence[str]) -> tuple[str, np.ndarray]:
    """From functions to the JSON of their programs and the blob of their constants.

    Raises NotLowerable with the name of a function that is not one graph.
    """
    blob = Blob()
    programs = [
        lower_function(f, name, [_tables(f, name)], blob) for f, name in zip(functions, names, strict=True)
    ]
    for program in programs:
        for made in program.steps:
            if (reason := why_partial(made)) is not None:
                raise NotLowerable(f"{program.name}: {reason}")
    return programs_json(programs), blob.taken()


_GROWING: Mapping[str, Callable[[NativeStep, relax.Call, int], NativeStep | str]] = {
    "convolution": post_ops.fused,
    attention.PRIMITIVE: attention.fused,
}
"""By primitive, the operators behind the first."""


def _checked(made: NativeStep | str) -> NativeStep | str:
    if isinstance(made, str) or made.primitive == attention.PRIMITIVE:
        return made
    if made.primitive == "convolution" and (reason := convolution.why_not_weights(made)):
        return reason
    return (None if is_mixed(made) else why_not_layout(made)) or with_nested_strides(made)


def _tables(func: relax.Function, name: str) -> Tables:
    label = algorithm_label(func, name, ALGORITHMS)
    return Tables(
        lambda call: convolution.packed(step(label, call)),
        fused,
        lambda made, value, producer: convolution.packed(absorbed_input(made, value, producer)),
        absorbed_output,
        _no_copy,
    )


def _no_copy(_value: relax.Expr, _producer: relax.Expr) -> str:
    return "cuDNN does not copy tensors"
