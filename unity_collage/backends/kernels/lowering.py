"""The side of our own kernels of the tables: each function names its algorithm by its ``Composite`` label."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tvm import relax

from ..native.absorb import CAST, LAYOUT_CHANGES, read_through, write_through
from ..native.casts import is_cast, read_widened
from ..native.joining import is_joined, joined
from ..native.lowering import NotLowerable, Tables, lower_function
from ..native.program import Blob, Step, programs_json
from ..native.values import op_name
from . import attention, convolution, recurrent
from .grouped import grouped
from .winograd import TILES, winograd

CONCAT = "relax.concat"
_JOINED = "the result is a slice of a concat already"


@dataclass(frozen=True, slots=True)
class Algorithm:
    """How steps begin: with which operator, and what makes it one."""

    step: Callable[[relax.Call], Step | str]
    anchors: frozenset[str] = frozenset({"relax.nn.conv2d"})
    taken_in: frozenset[str] = frozenset({CAST})
    """Operators before it that are never worth a kernel of their own."""


ALGORITHMS: Mapping[str, Algorithm] = {
    **{
        f"kernels.winograd{tile}": Algorithm(
            partial(winograd, tile=tile), frozenset({"relax.nn.conv2d", "relax.nn.conv3d"})
        )
        for tile in TILES
    },
    "kernels.grouped": Algorithm(grouped),
    "kernels.attention": Algorithm(attention.attention, frozenset({"relax.matmul"}), LAYOUT_CHANGES | {CAST}),
    "kernels.recurrent": Algorithm(recurrent.recurrent, recurrent.ANCHORS),
}
"""By label. What may stand behind and before a step follows from its family."""


@dataclass(frozen=True, slots=True)
class Family:
    """Steps that grow in one way."""

    fused: Callable[[Step, relax.Call, int], Step | str]
    checked: Callable[[Step | str], Step | str]
    why_partial: Callable[[Step], str | None]
    """Why a step cannot run yet: some primitives begin with one operator and need others."""
    joined: Callable[[Step, relax.Call, int], Step | str]
    parted: Callable[[Step, relax.Expr, relax.Call], Step | str]
    """The step that reads the fields of a concat instead of a value, the whole."""


_CONVOLUTIONS = Family(convolution.fused, convolution.checked, lambda _step: None, joined, convolution.parted)
_ATTENTION = Family(
    attention.fused,
    attention.checked,
    attention.why_partial,
    lambda _step, _call, _field: "attention writes no slices",
    lambda _step, _value, _call: "attention reads no fields of a concat",
)
_RECURRENT = Family(
    lambda _step, _call, _operand: "nothing follows a step of a sequence but the next",
    recurrent.checked,
    lambda _step: None,
    lambda _step, _call, _field: "a recurrent layer writes no slices",
    lambda _step, _value, _call: "a recurrent layer reads no fields of a concat",
)
_FAMILIES = {attention.PRIMITIVE: _ATTENTION, recurrent.PRIMITIVE: _RECURRENT}


def _family(step: Step) -> Family:
    return _FAMILIES.get(step.primitive, _CONVOLUTIONS)


def absorbed_input(step: Step, value: relax.Expr, producer: relax.Expr) -> Step | str:
    """The step that reads ``value`` where its producer, a layout change, a cast or a concat, reads it, or why not."""
    if isinstance(producer, relax.Call) and op_name(producer) == CONCAT:
        return _checked(_family(step).parted(step, value, producer))
    if is_cast(producer):
        return _checked(read_widened(step, value, producer))
    return _checked(read_through(step, value, producer))


def absorbed_output(step: Step, call: relax.Call) -> Step | str:
    """The step that writes its result as ``call``, a permutation or reshape, would leave it, or why not."""
    return _JOINED if is_joined(step) else _checked(write_through(step, call))


def join(step: Step, call: relax.Call, field: int) -> Step | str:
    """The step that writes field ``field`` of a concat into its place and copies the other fields, or why not."""
    return _JOINED if is_joined(step) else _checked(_family(step).joined(step, call, field))


def grown(step: Step, call: relax.Call, operand: int) -> Step | str:
    """The step with ``call``, whose ``args[operand]`` is its result, as the next part of it, or why not."""
    return _JOINED if is_joined(step) else _checked(_family(step).fused(step, call, operand))


def why_partial(step: Step) -> str | None:
    """Why the step cannot run yet, or None."""
    return _family(step).why_partial(step)


def lower(functions: Sequence[relax.Function], names: Sequence[str]) -> tuple[str, bytearray]:
    """Functions to the JSON of their programs and the blob of their constants.

    Raises NotLowerable, naming the function, for what no algorithm takes.
    """
    blob = Blob()
    programs = [
        lower_function(f, name, [_tables(f, name)], blob) for f, name in zip(functions, names, strict=True)
    ]
    for program in programs:
        for step in program.steps:
            if (reason := why_partial(step)) is not None:
                raise NotLowerable(f"{program.name}: {reason}")
    return programs_json(programs), blob.content


def _checked(step: Step | str) -> Step | str:
    return step if isinstance(step, str) else _family(step).checked(step)


def _tables(func: relax.Function, name: str) -> Tables:
    labels = [label for label in _labels(func) if label in ALGORITHMS]
    if len(labels) != 1:
        raise NotLowerable(
            f"{name}: it has {len(labels)} composite functions with a label of {', '.join(ALGORITHMS)}"
        )
    return Tables(
        ALGORITHMS[labels[0]].step,
        grown,
        absorbed_input,
        absorbed_output,
        _no_copy,
        joined=join,
        read_in_place=LAYOUT_CHANGES | {CAST, CONCAT},
    )


def _labels(func: relax.Function) -> Iterator[str]:
    """The ``Composite`` attributes of a function and of those that it holds."""
    if "Composite" in (func.attrs or {}):
        yield str(func.attrs["Composite"])
    for block in func.body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Function):
                yield from _labels(binding.value)


def _no_copy(_value: relax.Expr, _producer: relax.Expr) -> str:
    return "our kernels copy no tensors"
