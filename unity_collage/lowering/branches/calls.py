"""The bindings of a final program: which of them call kernels, and which bindings each one reads."""

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
"""Operators that are not kernels, write nothing, and may be moved."""


@dataclass(frozen=True, slots=True)
class Calls:
    """The bindings of a function of one dataflow block."""

    func: relax.Function
    bindings: tuple[Any, ...]
    sources: tuple[frozenset[int], ...]
    """For each binding, the numbers of the bindings that it reads."""
    kernels: tuple[int, ...]
    """The numbers of the bindings that call kernels."""
    movable: frozenset[int]
    """The kernels that another kernel can call: TVM's, over plain tensors, with one result."""

    @classmethod
    def of(cls, mod: IRModule, name: str = "main") -> Calls | str:
        """The bindings of ``mod[name]``, or the reason why they cannot be reordered."""
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
        """The names of the kernels that are called, in order."""
        callees = [self.bindings[number].value.args[0] for number in self.kernels]
        return [
            str(callee.name_hint if isinstance(callee, ir.GlobalVar) else callee.global_symbol)
            for callee in callees
        ]

    def readers_within(self, stage: Stage) -> dict[int, frozenset[int]]:
        """The readers of each step's result, for the steps that only later steps of ``stage`` read."""
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
        """The numbers of the movable kernels that are independent of some other movable kernel."""
        movable = index_set(self.movable)
        before: list[IndexSet] = []
        found = EMPTY
        for number, sources in enumerate(self.sources):
            before.append(reduce(or_, (before[source] | 1 << source for source in sources), EMPTY))
            independent = movable & ((1 << number) - 1) & ~before[number]
            if number in self.movable and independent:
                found |= independent | 1 << number
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
    """Whether ``ty`` is a tensor of constant shape."""
    if not isinstance(ty, relax.TensorType) or ty.shape is None:
        return False
    return all(isinstance(extent, tirx.IntImm) for extent in ty.shape)
