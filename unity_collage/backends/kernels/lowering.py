"""The side of our own kernels of the tables: each function names its algorithm by its ``Composite`` label."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from tvm import relax

from ..native.absorb import read_through, write_through
from ..native.lowering import NotLowerable, Tables, lower_function
from ..native.program import Blob, Step, programs_json
from .convolution import checked, fused
from .grouped import grouped
from .winograd import TILES, winograd

Entry = Callable[[relax.Call], Step | str]


ALGORITHMS: Mapping[str, Entry] = {
    **{f"kernels.winograd{tile}": partial(winograd, tile=tile) for tile in TILES},
    "kernels.grouped": grouped,
}
"""By label: what makes one operator a step. What may stand behind and before it is the same for all."""


def absorbed_input(step: Step, value: relax.Expr, producer: relax.Expr) -> Step | str:
    """The step that reads ``value`` where its producer, a layout change, reads it, or why not."""
    return checked(read_through(step, value, producer))


def absorbed_output(step: Step, call: relax.Call) -> Step | str:
    """The step that writes its result as ``call``, a permutation or reshape, would leave it, or why not."""
    return checked(write_through(step, call))


def grown(step: Step, call: relax.Call, operand: int) -> Step | str:
    """The step with ``call``, whose ``args[operand]`` is its result, as bias or post-operation, or why not."""
    return checked(fused(step, call, operand))


def lower(functions: Sequence[relax.Function], names: Sequence[str]) -> tuple[str, bytes]:
    """Functions to the JSON of their programs and the blob of their constants.

    Raises NotLowerable, naming the function, for what no algorithm takes.
    """
    blob = Blob()
    programs = [
        lower_function(f, name, _tables(f, name), blob) for f, name in zip(functions, names, strict=True)
    ]
    return programs_json(programs), bytes(blob.content)


def _tables(func: relax.Function, name: str) -> Tables:
    labels = [label for label in _labels(func) if label in ALGORITHMS]
    if len(labels) != 1:
        raise NotLowerable(
            f"{name}: it has {len(labels)} composite functions with a label of {', '.join(ALGORITHMS)}"
        )
    return Tables(ALGORITHMS[labels[0]], grown, absorbed_input, absorbed_output, _no_copy)


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
