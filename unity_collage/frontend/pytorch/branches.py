"""``torch.cond`` and ``torch.while_loop``: their graphs become private functions that the program calls.

A function of Relax has its own symbolic sizes, so the outer sizes are a parameter of it, a shape. Values that are known
while importing are constants inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from tvm import ir, relax, tirx

from ...tvm_private import give_type
from ..renaming import renamed
from .context import Value
from .symbols import LearntSizes

Branch = Callable[[Sequence[Value]], Sequence[relax.Expr]]
"""Emits a graph for its operands, and returns its results."""

_FLAG, _LEVEL = relax.TensorType([], "bool"), relax.TensorType([], "int64")
_LEVELS = 62
"""A loop has at most two to the power of this many iterations."""


def has_branches(module: fx.GraphModule) -> bool:
    """Whether a graph, or one inside of it, has a ``torch.cond`` or ``torch.while_loop``."""
    graphs = (each.graph for each in module.modules() if isinstance(each, fx.GraphModule))
    return any(is_cond(node) or is_while_loop(node) for graph in graphs for node in graph.nodes)


def is_cond(node: fx.Node) -> bool:
    return node.target is torch.ops.higher_order.cond


def is_while_loop(node: fx.Node) -> bool:
    return node.target is torch.ops.higher_order.while_loop


class _Captured:
    """What functions read from outside: tensors and symbolic sizes, which are their last parameters."""

    def __init__(self, builder: relax.BlockBuilder, operands: Sequence[Value], sizes: LearntSizes) -> None:
        self._builder, self._sizes, self._operands = builder, sizes, operands
        self._outer = sizes.variables()
        self._tensors = list(dict.fromkeys(filter(_is_tensor, operands)))

    def function(
        self, name: str, leading: Sequence[ir.Type], body: Callable[[_Inside], relax.Expr]
    ) -> relax.GlobalVar:
        """A private function whose first parameters have the types ``leading``; ``body`` emits it."""
        names = self._inner_sizes()
        own = [relax.Var(f"carried_{number}", renamed(ty, names)) for number, ty in enumerate(leading)]
        tensors = {var: relax.Var(var.name, renamed(var.ty, names)) for var in self._tensors}
        given = [*tensors.values(), *([relax.Var("sizes", self._shape(names))] if names else [])]
        with self._builder.function(name, [*own, *given], private=True):
            with self._sizes.renamed(names):
                operands = [
                    tensors[each] if _is_tensor(each) else renamed(each, names) for each in self._operands
                ]
                result = body(_Inside(own, operands, given))
            return self._builder.emit_func_output(result)

    def type(self, leading: Sequence[ir.Type], results: Sequence[ir.Type]) -> relax.FuncType:
        """The type of a function with these first parameters and these results."""
        names = self._inner_sizes()
        taken = [*leading, *(var.ty for var in self._tensors)]
        params = [*(renamed(ty, names) for ty in taken), *([self._shape(names)] if names else [])]
        return relax.FuncType(params, relax.TupleType([renamed(ty, names) for ty in results]))

    def call(self, function: relax.GlobalVar, *leading: relax.Expr) -> relax.Call:
        """A call from outside."""
        sizes = [relax.ShapeExpr(list(self._outer))] if self._outer else []
        return relax.Call(function, [*leading, *self._tensors, *sizes])

    def _inner_sizes(self) -> dict[tirx.Var, tirx.Var]:
        return {size: tirx.Var(size.name, size.ty) for size in self._outer}

    def _shape(self, names: Mapping[tirx.Var, tirx.Var]) -> relax.ShapeType:
        return relax.ShapeType(list(names.values()))


class _Inside:
    """The values inside a function."""

    def __init__(
        self, own: Sequence[relax.Var], operands: Sequence[Value], given: Sequence[relax.Var]
    ) -> None:
        self.own, self.operands = own, operands
        self._given = given

    def call(self, function: relax.GlobalVar, *leading: relax.Expr) -> relax.Call:
        """A call of another function with the same values from outside."""
        return relax.Call(function, [*leading, *self._given])


def conditional(
    builder: relax.BlockBuilder,
    condition: relax.Expr,
    branches: Mapping[str, Branch],
    operands: Sequence[Value],
    sizes: LearntSizes,
) -> list[relax.Expr]:
    """The results of the first branch where ``condition`` holds, else those of the second; both have the same types.

    ``condition`` is a boolean with one element. ``branches`` is by name.
    """
    flag = builder.emit(relax.op.reshape(condition, []))
    captured = _Captured(builder, operands, sizes)

    def call(name: str, branch: Branch) -> relax.Call:
        return captured.call(
            captured.function(name, (), lambda inside: relax.Tuple(list(branch(inside.operands))))
        )

    yes, no = (call(name, branch) for name, branch in branches.items())
    return _fields(builder, relax.If(flag, yes, no))


def repeated(
    builder: relax.BlockBuilder,
    condition: Branch,
    iteration: Branch,
    carried: Sequence[relax.Expr],
    operands: Sequence[Value],
    sizes: LearntSizes,
) -> list[relax.Expr]:
    """The ``carried`` values after as many iterations as ``condition`` holds for; their types do not change.

    Both graphs take the carried values and the ``operands``. A function that runs one iteration and calls itself for
    the others would overflow the stack. So ``turns(k)`` runs at most 2^k iterations, in halves, and its depth is k::

        turns(k, ...) = iteration(...) if k == 0 else halves(k, ...)
        halves(k, ...) = turns(k - 1, ...), then turns(k - 1) once more if the condition still holds
    """
    captured = _Captured(builder, operands, sizes)
    types = [value.ty for value in carried]

    def holds(values: Sequence[Value]) -> relax.Expr:
        (found,) = condition(values)
        return builder.emit(relax.op.reshape(found, []))

    def once(inside: _Inside) -> relax.Expr:
        results = [builder.emit(each) for each in iteration([*inside.own, *inside.operands])]
        return relax.Tuple([holds([*results, *inside.operands]), *results])

    def halves(inside: _Inside) -> relax.Expr:
        level, *values = inside.own
        below = builder.emit(relax.op.subtract(level, relax.const(1, "int64")))
        first = builder.emit(inside.call(turns, below, *values))
        flag, *values = _fields(builder, first)
        return builder.emit(relax.If(flag, inside.call(turns, below, *values), first))

    def all_turns(inside: _Inside) -> relax.Expr:
        level, *values = inside.own
        is_last = builder.emit(relax.op.equal(level, relax.const(0, "int64")))
        one, more = inside.call(single, *values), inside.call(both, level, *values)
        return builder.emit(relax.If(is_last, one, more))

    turns = relax.GlobalVar(builder.get_unique_name("loop"))
    give_type(turns, captured.type([_LEVEL, *types], [_FLAG, *types]))
    single = captured.function("loop_once", types, once)
    both = captured.function("loop_halves", [_LEVEL, *types], halves)
    made = captured.function("loop_turns", [_LEVEL, *types], all_turns)
    builder.update_func(turns, builder.get()[made])
    flag = holds([*carried, *operands])
    nothing = builder.emit(relax.Tuple([flag, *carried]))
    some = captured.call(turns, relax.const(_LEVELS, "int64"), *carried)
    return _fields(builder, relax.If(flag, some, nothing))[1:]


def _fields(builder: relax.BlockBuilder, result: relax.Expr) -> list[relax.Expr]:
    var: Any = builder.emit(result)
    return [builder.emit(relax.TupleGetItem(var, number)) for number in range(len(var.ty.fields))]


def _is_tensor(value: Value) -> bool:
    """Whether an operand is a computed tensor; variables of sizes are of the same class."""
    return isinstance(value, relax.Var) and isinstance(value.ty, relax.TensorType)
