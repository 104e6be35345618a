"""The lowering tables of our own kernels. A function names its algorithm by its ``Composite`` label, or one for each
part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from tvm import relax

from ...graph.free_sizes import for_all_sizes
from ..native.absorb import CAST, LAYOUT_CHANGES, read_through, write_through
from ..native.casts import is_cast, read_widened
from ..native.joining import is_joined, joined
from ..native.labels import algorithm_labels
from ..native.lowering import NotLowerable, Tables, lower_function
from ..native.program import Blob, NativeStep, programs_json
from ..native.values import op_name
from . import attention, convolution, recurrent
from .grouped import grouped
from .winograd import TILES, winograd

CONCAT = "relax.concat"
_JOINED = "the result is a slice of a concat already"


@dataclass(frozen=True, slots=True)
class KernelAlgorithm:
    """The beginning of an algorithm's steps: the anchor operators, and the function that makes a step of one."""

    step: Callable[[relax.Call], NativeStep | str]
    anchors: frozenset[str] = frozenset({"relax.nn.conv2d"})
    always_absorbed: frozenset[str] = frozenset({CAST})
    """Operators before it that are never worth a separate kernel."""


ALGORITHMS: Mapping[str, KernelAlgorithm] = {
    **{
        f"kernels.winograd{tile}": KernelAlgorithm(
            partial(winograd, tile=tile), frozenset({"relax.nn.conv2d", "relax.nn.conv3d"})
        )
        for tile in TILES
    },
    "kernels.grouped": KernelAlgorithm(grouped),
    "kernels.attention": KernelAlgorithm(
        attention.attention, frozenset({"relax.matmul"}), LAYOUT_CHANGES | {CAST}
    ),
    "kernels.recurrent": KernelAlgorithm(recurrent.recurrent, recurrent.ANCHORS),
}
"""By label. The family of a step decides which operators may come before and behind it."""


@dataclass(frozen=True, slots=True)
class Family:
    """Primitives with steps that absorb operators in the same way."""

    fused: Callable[[NativeStep, relax.Call, int], NativeStep | str]
    checked: Callable[[NativeStep | str], NativeStep | str]
    why_partial: Callable[[NativeStep], str | None]
    """Why a step cannot run yet, or None: some primitives begin with one operator and need others."""
    joined: Callable[[NativeStep, relax.Call, int], NativeStep | str]
    reading_fields: Callable[[NativeStep, relax.Expr, relax.Call], NativeStep | str]
    """The step that reads the fields of a concat instead of its result."""


_CONVOLUTIONS = Family(
    convolution.fused, convolution.checked, lambda _step: None, joined, convolution.reading_fields
)
_ATTENTION = Family(
    attention.fused,
    attention.checked,
    attention.why_partial,
    lambda _step, _call, _field: "attention does not write slices",
    lambda _step, _value, _call: "attention does not read the fields of a concat",
)
_RECURRENT = Family(
    lambda _step, _call, _operand: "a recurrent layer does not absorb operators behind it",
    recurrent.checked,
    lambda _step: None,
    lambda _step, _call, _field: "a recurrent layer does not write slices",
    lambda _step, _value, _call: "a recurrent layer does not read the fields of a concat",
)
_FAMILIES = {attention.PRIMITIVE: _ATTENTION, recurrent.PRIMITIVE: _RECURRENT}


def _family(step: NativeStep) -> Family:
    return _FAMILIES.get(step.primitive, _CONVOLUTIONS)


@for_all_sizes
def absorbed_input(step: NativeStep, value: relax.Expr, producer: relax.Expr) -> NativeStep | str:
    """The step that reads the operand of ``producer``, a layout change, a cast or a concat, instead of ``value``."""
    if isinstance(producer, relax.Call) and op_name(producer) == CONCAT:
        return _checked(_family(step).reading_fields(step, value, producer))
    if is_cast(producer):
        return _checked(read_widened(step, value, producer))
    return _checked(read_through(step, value, producer))


@for_all_sizes
def absorbed_output(step: NativeStep, call: relax.Call) -> NativeStep | str:
    """The step that writes its result as ``call``, a permutation or reshape, would leave it, or the reason why not."""
    return _JOINED if is_joined(step) else _checked(write_through(step, call))


@for_all_sizes
def join(step: NativeStep, call: relax.Call, field: int) -> NativeStep | str:
    """The step that writes field ``field`` of a concat and copies its siblings, or the reason why not."""
    return _JOINED if is_joined(step) else _checked(_family(step).joined(step, call, field))


@for_all_sizes
def grown(step: NativeStep, call: relax.Call, operand: int) -> NativeStep | str:
    """The step with ``call``, which reads its result as ``args[operand]``, as its next part, or the reason why not."""
    return _JOINED if is_joined(step) else _checked(_family(step).fused(step, call, operand))


def why_partial(step: NativeStep) -> str | None:
    """Why the step cannot run yet, or None."""
    return _family(step).why_partial(step)


def lower(functions: Sequence[relax.Function], names: Sequence[str]) -> tuple[str, np.ndarray]:
    """From functions to the JSON of their programs and the blob of their constants.

    Raises NotLowerable with the name of a function that no algorithm takes.
    """
    blob = Blob()
    programs = [
        lower_function(f, name, [_tables(f, name)], blob) for f, name in zip(functions, names, strict=True)
    ]
    for program in programs:
        for step in program.steps:
            if (reason := why_partial(step)) is not None:
                raise NotLowerable(f"{program.name}: {reason}")
    return programs_json(programs), blob.taken()


def _checked(step: NativeStep | str) -> NativeStep | str:
    return step if isinstance(step, str) else _family(step).checked(step)


def _tables(func: relax.Function, name: str) -> Tables:
    labels = algorithm_labels(func, name, ALGORITHMS)
    return Tables(
        ALGORITHMS[labels[0]].step,
        grown,
        absorbed_input,
        absorbed_output,
        _no_copy,
        joined=join,
        read_in_place=LAYOUT_CHANGES | {CAST, CONCAT},
        steps={label: ALGORITHMS[label].step for label in labels},
    )


def _no_copy(_value: relax.Expr, _producer: relax.Expr) -> str:
    return "our kernels do not copy tensors"
