"""Which integer parameters of a function are indexes, and how large they may be.

The bindings are walked from the last one to the first: the bound of an index that is computed inside of the function is
a bound of the integers that it is computed from. An index is at least 0. So is a number of bits to shift by, which must
be below those of the type: beyond that, kernels and numpy differ.
"""

from __future__ import annotations

from collections.abc import Iterator

import tvm_ffi
from tvm import relax

from ..backends.native.values import scalar_of
from ..graph.calls import calls, op_name
from ..graph.dataflow import used_vars
from ..graph.shapes import dtype_of, extents_of
from . import prim_inputs

_INDEX_ARGS = {
    "relax.take": (1, 0),
    "relax.gather_elements": (1, 0),
    "relax.gather_nd": (1, 0),
    "relax.scatter_elements": (1, 0),
    "relax.scatter_nd": (1, 0),
}
"""Operator -> (position of the index argument, position of the indexed one)."""

INDEXING = frozenset(_INDEX_ARGS)
"""Operators that take indexes from an operand."""

_MOVING = frozenset(
    f"relax.{name}"
    for name in (
        "astype", "broadcast_to", "clip", "expand_dims", "flatten", "flip", "gather_elements", "gather_nd", "max",
        "min", "permute_dims", "repeat", "reshape", "split", "squeeze", "strided_slice", "take", "tile",
    )
)  # fmt: skip
"""Operators that return elements of their first operand."""

_CHOOSING = frozenset(f"relax.{name}" for name in ("concat", "maximum", "minimum", "stack", "where"))
"""Operators that return elements of their operands."""

_SHIFTS = frozenset({"relax.left_shift", "relax.right_shift"})

Bounded = tuple[relax.Expr, int]
"""An integer operand, and a number that it must be below."""


def index_bounds(func: relax.Function) -> dict[relax.Var, int]:
    """For each variable of ``func`` that an index is computed from, the number that it must be below."""
    bounds: dict[relax.Var, int] = {}

    def note(operand: relax.Expr, bound: int) -> None:
        least = max(1, bound)
        for var in used_vars(operand):
            bounds[var] = min(least, bounds.get(var, least))

    for operand, bound in (*_of_operators(func), *prim_inputs.index_bounds(func)):
        note(operand, bound)
    for block in reversed(func.body.blocks):
        for binding in reversed(block.bindings):
            if binding.var in bounds:
                for operand, bound in _passed_on(binding.value, bounds[binding.var]):
                    note(operand, bound)
    return bounds


def _of_operators(func: relax.Function) -> Iterator[Bounded]:
    """The indexes of operators, each with the extent of its axis; and by how many bits integers are shifted."""
    for call in calls(func):
        if op_name(call) in _SHIFTS:
            yield call.args[1], tvm_ffi.dtype(dtype_of(call)).bits
        if op_name(call) in _INDEX_ARGS:
            position, data = _INDEX_ARGS[op_name(call)]
            axis = getattr(call.attrs, "axis", None)
            extents = extents_of(call.args[data])
            yield call.args[position], min(extents) if axis is None else extents[int(axis)]


def _passed_on(value: relax.Expr, bound: int) -> Iterator[Bounded]:
    """What the operands of ``value`` must be below, so that it is below ``bound``."""
    name = op_name(value)
    if not isinstance(value, relax.Call) or name in _CHOOSING:  # a tuple, a field, another name, or a choice
        yield value, bound
    elif name in _MOVING:
        yield value.args[0], bound
    elif name in ("relax.add", "relax.multiply"):
        yield from _of_terms(value, bound) if name == "relax.add" else _of_factors(value, bound)


def _of_terms(add: relax.Call, bound: int) -> Iterator[Bounded]:
    """Two terms get half of the bound each.

    A constant that reaches the bound alone is for negative indexes, ``where(i < 0, i + n, i)``: nothing follows.
    """
    for operand, other in ((add.args[0], add.args[1]), (add.args[1], add.args[0])):
        number = scalar_of(other)
        if number is None:
            yield operand, (bound + 1) // 2
        elif 0 <= number < bound:
            yield operand, bound - int(number)


def _of_factors(product: relax.Call, bound: int) -> Iterator[Bounded]:
    """A factor beside a number gets what is left of the bound; of two operands only 0 is certain to be inside."""
    for operand, other in ((product.args[0], product.args[1]), (product.args[1], product.args[0])):
        number = scalar_of(other)
        if number is None:
            yield operand, 1
        elif number >= 1:
            yield operand, (bound - 1) // int(number) + 1
