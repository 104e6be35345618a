"""Timing points in whole programs: in each function and each branch of an ``If``, the clock is read between kernels.

A program is a tree of regions: the body of ``main``, of each function that it calls, and of each branch. A run passes
some of them. A branch announces itself when it begins, so the readings of a run can be assigned to kernels.
:mod:`.instrument` does the same for a ``main`` of one region, without announcements.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm import ir, relax, tirx
from tvm.ir import IRModule

from .instrument import MARK

ENTER = "collage.profile.enter"
_FREE = ("vm.", "relax.builtin.")
"""Beginnings of the names of functions that are not timed: the VM's own, which allocate and make views."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a kernel in a region."""

    kernel: str
    result: str
    """The name of the variable that the result is bound to; empty where it has none."""
    shapes: tuple[str, ...]
    """The types of the tensors that it reads and writes, such as ``float32[1, 64]``; the results come last."""
    is_function: bool
    """Whether the kernel is a function of the module; otherwise a library or the runtime has it."""


Step = Call | int | None
"""A call of a kernel, or the number of the region of a called function; None for a branch, which announces itself."""


@dataclass(frozen=True, slots=True)
class TimedRegion:
    """Bindings that run one after the other."""

    function: str
    steps: tuple[Step, ...]
    """A step that is followed by a reading of the clock."""


@dataclass(slots=True)
class TimingPoints:
    """Puts timing points into a module that :func:`unity_collage.lowering.build.lower` made."""

    lowered: IRModule
    regions: list[TimedRegion] = field(default_factory=list[TimedRegion])
    """The first one is the body of ``main``."""
    _functions: dict[ir.GlobalVar, ir.BaseFunc] = field(default_factory=dict[ir.GlobalVar, ir.BaseFunc])

    def module(self) -> IRModule:
        """The module with timing points in ``main`` and in all functions that it calls."""
        self._functions = dict(self.lowered.functions_items())
        self.regions.clear()
        self._region_of(self.lowered.get_global_var("main"), {})
        return IRModule(self._functions, attrs=self.lowered.attrs, global_infos=self.lowered.global_infos)

    def _region_of(self, gvar: ir.GlobalVar, known: dict[str, int]) -> int:
        """The number of the region of a function, which may call itself; it is made if it is not ``known``."""
        name = str(gvar.name_hint)
        if name not in known:
            known[name] = len(self.regions)
            func: Any = self.lowered[gvar]
            body = self._region(name, func.body, known)
            self._functions[gvar] = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
        return known[name]

    def _region(
        self, function: str, body: Any, known: dict[str, int], *first: relax.Binding
    ) -> relax.SeqExpr:
        """``body`` with timing points, as a new region, which begins with the bindings ``first``."""
        number, steps, results = len(self.regions), list[Step](), _results(body)
        self.regions.append(TimedRegion(function, ()))
        blocks = [relax.BindingBlock([*first, _call(MARK), _call(MARK)])]
        for block in body.blocks:
            bindings: list[relax.Binding] = []
            for binding in block.bindings:
                binding, found = self._timed(function, binding, results, known)
                bindings += [binding, *(_call(MARK) for _ in found)]
                steps += found
            blocks.append(relax.BindingBlock(bindings))
        self.regions[number] = TimedRegion(function, tuple(steps))
        return relax.SeqExpr(blocks, body.body)

    def _timed(
        self, function: str, binding: Any, results: Mapping[Any, str], known: dict[str, int]
    ) -> tuple[Any, list[Step]]:
        """The binding, with timing points inside if it has branches, and its step if it has one."""
        value = binding.value
        if isinstance(value, relax.If):
            branches = [
                self._branch(function, branch, known) for branch in (value.true_branch, value.false_branch)
            ]
            return relax.VarBinding(binding.var, relax.If(value.cond, branches[0], branches[1])), [None]
        if isinstance(value, relax.Call) and isinstance(value.op, ir.GlobalVar):
            if isinstance(self.lowered[value.op], relax.Function):
                return binding, [self._region_of(value.op, known)]
            return binding, [_kernel(value, str(value.op.name_hint), results, True)]
        if isinstance(value, relax.Call) and isinstance(value.op, relax.ExternFunc):
            name = str(value.op.global_symbol)
            return binding, [] if name.startswith(_FREE) else [_kernel(value, name, results, False)]
        return binding, []

    def _branch(self, function: str, body: Any, known: dict[str, int]) -> relax.SeqExpr:
        return self._region(function, body, known, _call(ENTER, len(self.regions)))


def _call(name: str, *numbers: int) -> relax.Binding:
    arguments = [tirx.const(number, "int64") for number in numbers]
    call = relax.Call(relax.ExternFunc(name), arguments, ty_args=[relax.TupleType([])])
    return relax.VarBinding(relax.Var("clock", relax.TupleType([])), call)


def _kernel(call: relax.Call, name: str, results: Mapping[Any, str], is_function: bool) -> Call:
    tensors = [arg for arg in _flat(call.args) if isinstance(arg.ty, relax.TensorType)]
    named = (results[arg] for arg in reversed(tensors) if isinstance(arg, relax.Var) and arg in results)
    return Call(name, next(named, ""), tuple(type_text(arg.ty) for arg in tensors), is_function)


def _results(body: Any) -> dict[Any, str]:
    """The names that the memory of results gets once it is written: ``r1 = alloc``."""
    return {
        binding.value: str(binding.var.name)
        for block in body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Var)
    }


def _flat(arguments: Any) -> list[Any]:
    return [
        leaf for arg in arguments for leaf in (_flat(arg.fields) if isinstance(arg, relax.Tuple) else [arg])
    ]


def type_text(ty: Any) -> str:
    """``float32[1, 64]`` of the type of a tensor; a size that is not known is its expression."""
    if not isinstance(ty.shape, relax.ShapeExpr):
        return f"{ty.dtype}[?]"
    extents = (int(dim) if isinstance(dim, tirx.IntImm) else dim for dim in ty.shape.values)
    return re.sub(r"T\.int64\((-?\d+)\)", r"\1", f"{ty.dtype}[{', '.join(map(str, extents))}]")
