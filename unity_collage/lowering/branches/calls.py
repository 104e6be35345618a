"""What a final program consists of: bindings in order, which of them call kernels, what each one waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from tvm import ir, relax, tirx
from tvm.ir import IRModule

from ...index_set import EMPTY, IndexSet, index_set, members
from ...schedule.stage import nodes
from .stages import Stage

_KERNELS = ("relax.call_tir", "relax.call_dps_packed")
_VIEWS = ("relax.reshape", "relax.memory.view")
"""Operators that are no kernels, write nothing and may come earlier or later."""


@dataclass(frozen=True, slots=True)
class Calls:
    """The bindings of a function of one dataflow block."""

    func: relax.Function
    bindings: tuple[Any, ...]
    sources: tuple[frozenset[int], ...]
    """For each binding, the numbers of those that it uses."""
    kernels: tuple[int, ...]
    """The bindings that call kernels, by number."""
    movable: frozenset[int]
    """Kernels that another kernel can call: TVM's, of plain tensors, with one result."""

    @classmethod
    def of(cls, mod: IRModule, name: str = "main") -> Calls | str:
        """Those of ``mod[name]``, or why it keeps its order."""
        func: Any = mod[name]
        if not isinstance(func.body, relax.SeqExpr) or len(func.body.blocks) != 1:
            return "it is more than one block"
        (block,) = func.body.blocks
        if not isinstance(block, relax.DataflowBlock):
            return "its kernels may have effects"
        bindings = tuple(block.bindings)
        unknown = next((binding for binding in bindings if not _is_known(binding)), None)
        if unknown is not None:
            return f"{unknown.var.name} is neither a kernel nor a view"
        numbers = {binding.var: number for number, binding in enumerate(bindings)}
        return cls(
            func,
            bindings,
            tuple(
                frozenset(numbers[var] for var in nodes(b.value, relax.Var) if var in numbers)
                for b in bindings
            ),
            tuple(number for number, binding in enumerate(bindings) if _is_call(binding.value, _KERNELS)),
            frozenset(number for number, binding in enumerate(bindings) if _is_movable(mod, binding)),
        )

    def kernel_names(self) -> list[str]:
        """What the kernels are called, in order."""
        callees = [self.bindings[number].value.args[0] for number in self.kernels]
        return [
            str(callee.name_hint if isinstance(callee, ir.GlobalVar) else callee.global_symbol)
            for callee in callees
        ]

    def readers_within(self, stage: Stage) -> dict[int, frozenset[int]]:
        """Who reads the result of a step of ``stage``, for those that only later steps of the stage read."""
        inside = {number for lane in stage for number in lane}
        readers: dict[int, set[int]] = {number: set() for number in inside}
        for number, sources in enumerate(self.sources):
            for source in sources & inside:
                readers[source].add(number)
        results = {number for number in inside if isinstance(self.bindings[number].var, relax.DataflowVar)}
        return {
            number: frozenset(found)
            for number, found in readers.items()
            if number in results and found and found <= inside
        }

    def branching(self) -> frozenset[int]:
        """The movable kernels that do not wait for some other one, nor it for them, by number."""
        movable = index_set(self.movable)
        before: list[IndexSet] = []
        found = EMPTY
        for number, sources in enumerate(self.sources):
            before.append(reduce(or_, (before[source] | 1 << source for source in sources), EMPTY))
            beside = movable & ((1 << number) - 1) & ~before[number]
            if number in self.movable and beside:
                found |= beside | 1 << number
        return frozenset(members(found))


def _is_known(binding: Any) -> bool:
    value = binding.value
    if isinstance(value, (relax.Tuple, relax.TupleGetItem, relax.Var, ir.GenericConst)):
        return isinstance(binding, relax.VarBinding)
    return isinstance(binding, relax.VarBinding) and _is_call(value, (*_KERNELS, *_VIEWS))


def _is_call(value: Any, operators: Sequence[str]) -> bool:
    return isinstance(value, relax.Call) and isinstance(value.op, ir.Op) and value.op.name in operators


def _is_movable(mod: IRModule, binding: Any) -> bool:
    call = binding.value
    if (
        not _is_call(call, ("relax.call_tir",))
        or len(call.args) > 2
        or not isinstance(call.args[1], relax.Tuple)
    ):
        return False
    values = [*call.args[1].fields, binding.var]
    return isinstance(mod[call.args[0]], tirx.PrimFunc) and all(_is_plain(value.ty) for value in values)


def _is_plain(ty: Any) -> bool:
    """Whether it is a tensor of constant shape."""
    if not isinstance(ty, relax.TensorType) or ty.shape is None:
        return False
    return all(isinstance(extent, tirx.IntImm) for extent in ty.shape)
