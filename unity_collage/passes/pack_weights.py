"""PackWeights: constants that a kernel reads in panels are stored in panels.

Reads    kernels that are not scheduled yet, and the calls of them.
Writes   kernels over packed weights, and the packed constants in their calls.
Keeps    every kernel that somebody calls with a variable in place of the weights, or calls from outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, tirx
from tvm.ir import IRModule
from tvm.relax.expr import _update_type

from ..schedule import weights
from ..schedule.machine import Machine
from ..schedule.panels import Panels
from ..schedule.stage import nodes
from ..target import current_target

Node = Any
Plan = dict[int, Panels]
"""The panels of a kernel's arguments by their position."""


@tvm.transform.module_pass(opt_level=0, name="collage.PackWeights")
@dataclass(frozen=True)
class PackWeights:
    """Store the constant operands of products and convolutions in the order in which they will be read."""

    target: tvm.target.Target | None = None
    """The processor that the kernels will be scheduled for; the target in scope when not given."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        packed = packed_kernels(mod, Machine.of(self.target or current_target()))
        constants = _Constants()
        functions = {gvar: _calling(func, packed, constants) for gvar, func in mod.functions_items()}
        for gvar, kernel in packed.items():
            del functions[gvar]
            functions[kernel.name] = kernel.func
        return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


@dataclass(frozen=True, slots=True)
class PackedKernel:
    """A kernel over panels, under a name of its own type, and the panels of its arguments by position."""

    name: ir.GlobalVar
    func: tirx.PrimFunc
    panels: Mapping[int, Panels]


def packed_kernels(mod: IRModule, machine: Machine) -> dict[ir.GlobalVar, PackedKernel]:
    """The kernels to pack, by their name in ``mod``."""
    packed: dict[ir.GlobalVar, PackedKernel] = {}
    for gvar, plan in plans_of(mod, machine).items():
        func: Node = mod[gvar]
        kernel = weights.packed(func, {func.params[i]: panels for i, panels in plan.items()})
        name = ir.GlobalVar(gvar.name_hint)
        _update_type(name, kernel.ty)
        packed[gvar] = PackedKernel(name, kernel, plan)
    return packed


def plans_of(mod: IRModule, machine: Machine) -> dict[ir.GlobalVar, Plan]:
    """What to pack of which kernel."""
    calls = [call for func in mod.functions.values() for call in call_sites(func)]
    elsewhere = {gvar for func in mod.functions.values() for gvar in _other_uses(func)}
    plans: dict[ir.GlobalVar, Plan] = {}
    for gvar, func in mod.functions_items():
        sites = [list(call.args[1]) for call in calls if call.args[0].same_as(gvar)]
        if sites and gvar not in elsewhere and why_not_changed(func) is None:
            plan = _plan(func, sites, machine.running(func))
            if plan:
                plans[gvar] = plan
    return plans


def why_not_changed(func: ir.BaseFunc) -> str | None:
    """Why a function keeps its parameters, or None when it is a kernel of ours alone, to be scheduled yet."""
    if not isinstance(func, tirx.PrimFunc):
        return "it is no kernel"
    attrs = func.attrs or {}
    if "global_symbol" in attrs:
        return "it can be called from outside"
    return "it is scheduled" if attrs.get("tirx.is_scheduled", False) else None


def call_sites(func: ir.BaseFunc) -> list[Node]:
    """The calls of kernels in a Relax function."""
    if not isinstance(func, relax.Function):
        return []
    return [call for call in nodes(func, relax.Call) if _calls_kernel(call)]


def _calls_kernel(call: Node) -> bool:
    return isinstance(call.op, ir.Op) and call.op.name == "relax.call_tir"


def _other_uses(func: ir.BaseFunc) -> list[ir.GlobalVar]:
    """Functions that ``func`` mentions other than to call them as kernels."""
    bare = tvm_ffi.structural_map(
        func, (relax.Call, lambda call: call.args[1] if _calls_kernel(call) else call)
    )
    return nodes(bare, ir.GlobalVar)


def _plan(func: tirx.PrimFunc, sites: Sequence[Sequence[Node]], machine: Machine) -> Plan:
    always = [i for i, args in enumerate(zip(*sites, strict=True)) if all(map(_is_constant, args))]
    chosen = weights.choose(func, [func.params[i] for i in always], machine) if always else {}
    return {i: chosen[func.params[i]] for i in always if func.params[i] in chosen}


def _is_constant(arg: Node) -> bool:
    return isinstance(arg, ir.GenericConst)


class _Constants:
    """Packed constants, each made once."""

    def __init__(self) -> None:
        self._packed: dict[tuple[Node, Panels], Node] = {}

    def packed(self, constant: Node, panels: Panels) -> Node:
        key = (constant, panels)
        if key not in self._packed:
            self._packed[key] = relax.const(panels.pack(constant.value.numpy()))
        return self._packed[key]


def _calling(
    func: ir.BaseFunc, packed: Mapping[ir.GlobalVar, PackedKernel], constants: _Constants
) -> ir.BaseFunc:
    """``func`` with its calls of packed kernels over packed constants."""
    if not isinstance(func, relax.Function):
        return func

    def site(call: Node) -> Node:
        kernel = packed.get(call.args[0]) if _calls_kernel(call) else None
        if kernel is None:
            return call
        args = list(call.args[1])
        for i, panels in kernel.panels.items():
            args[i] = constants.packed(args[i], panels)
        return relax.Call(call.op, [kernel.name, relax.Tuple(args)], call.attrs, call.ty_args, ret_ty=call.ty)

    return tvm_ffi.structural_map(func, (relax.Call, site))
