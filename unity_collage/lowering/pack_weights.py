"""Stores constants in panels where a kernel reads them in panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import ir, relax, tirx
from tvm.ir import IRModule
from tvm.target import Target

from ..graph.calls import op_name
from ..rewrites.constants import constant as as_constant
from ..rewrites.tir_store import operands_of
from ..schedule import faults, weights
from ..schedule.cpu import CpuTraits
from ..schedule.panels import Panels
from ..schedule.stage import nodes
from ..target import target_for
from ..tvm_private import give_type
from .agree_panels import Reader, agreed

Plan = dict[int, Panels]
"""The panels of a kernel's arguments, by position."""


def packed(mod: IRModule, target: Target) -> IRModule:
    """``mod`` with constant operands of products and convolutions in the order in which the kernels read them.

    ``target``: the processor that kernels without a target of their own will be scheduled for. A kernel does not change
    if some call passes a variable as weights, or if it can be called from outside.
    """
    kernels = packed_kernels(mod, target)
    constants = _Constants()
    functions = {gvar: _calling(func, kernels, constants) for gvar, func in mod.functions_items()}
    for gvar, kernel in kernels.items():
        del functions[gvar]
        functions[kernel.name] = kernel.func
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


@dataclass(frozen=True, slots=True)
class PackedKernel:
    """A kernel that reads panels, a new variable of its type, and the panels of its arguments by position."""

    name: ir.GlobalVar
    func: tirx.PrimFunc
    panels: Mapping[int, Panels]


def packed_kernels(mod: IRModule, target: Target) -> dict[ir.GlobalVar, PackedKernel]:
    """The kernels to pack, by their variable in ``mod``."""
    calls = [call for func in mod.functions.values() for call in call_sites(func)]
    elsewhere = {gvar for func in mod.functions.values() for gvar in other_uses(func)}
    readers: dict[ir.GlobalVar, list[Reader]] = {}
    for gvar, func in mod.functions_items():
        sites = [operands_of(call) for call in calls if call.args[0].same_as(gvar)]
        if not isinstance(func, tirx.PrimFunc) or gvar in elsewhere or why_not_changed(func) is not None:
            continue
        cpu = CpuTraits.of(target_for(func, target)).running(func)
        readers[gvar] = _readers_or_logged(gvar.name_hint, func, sites, cpu) if sites else []
    chosen = _agreed_or_logged([reader for found in readers.values() for reader in found])
    made = {
        gvar: _kernel_or_logged(gvar.name_hint, found[0].kernel, {each.param: chosen[each] for each in found})
        for gvar, found in readers.items()
        if found
    }
    return {gvar: kernel for gvar, kernel in made.items() if kernel is not None}


def _readers_or_logged(
    name: str, func: tirx.PrimFunc, sites: Sequence[Sequence[relax.Expr]], cpu: CpuTraits
) -> list[Reader]:
    """The parameters to pack; none if packing does not pay off, or if our own code fails."""
    always = [i for i, args in enumerate(zip(*sites, strict=True)) if all(map(_is_constant, args))]
    try:
        panels = weights.choose(func, [func.params[i] for i in always], cpu) if always else {}
    except Exception as error:
        faults.logged(f"{name} keeps its weights as they are", error)
        return []
    return [
        Reader(func, i, panels[func.params[i]], frozenset(args[i] for args in sites), cpu)
        for i in always
        if func.params[i] in panels
    ]


def _agreed_or_logged(readers: Sequence[Reader]) -> dict[Reader, Panels]:
    """The panels of each reader; the reader's own if our code for common ones fails."""
    try:
        return agreed(readers)
    except Exception as error:
        faults.logged("kernels have panels of their own", error)
        return {reader: reader.panels for reader in readers}


def _kernel_or_logged(name: str, func: tirx.PrimFunc, plan: Plan) -> PackedKernel | None:
    """The kernel that reads panels; None where our own code fails."""
    try:
        kernel = weights.packed(func, {func.params[i]: panels for i, panels in plan.items()})
    except Exception as error:
        faults.logged(f"{name} keeps its weights as they are", error)
        return None
    gvar = ir.GlobalVar(name)
    give_type(gvar, kernel.ty)
    return PackedKernel(gvar, kernel, plan)


def why_not_changed(func: tirx.PrimFunc) -> str | None:
    """Why the parameters of a kernel must not change, or None when it is unscheduled and called only here."""
    attrs = func.attrs or {}
    if "global_symbol" in attrs:
        return "it can be called from outside"
    return "it is scheduled" if attrs.get("tirx.is_scheduled", False) else None


def call_sites(func: ir.BaseFunc) -> list[relax.Call]:
    """The calls of kernels in a Relax function."""
    if not isinstance(func, relax.Function):
        return []
    return [call for call in nodes(func, relax.Call) if _calls_kernel(call)]


def _calls_kernel(call: relax.Call) -> bool:
    return op_name(call) == "relax.call_tir"


def other_uses(func: ir.BaseFunc) -> list[ir.GlobalVar]:
    """Functions that ``func`` mentions in other ways than as called kernels."""
    bare = tvm_ffi.structural_map(
        func, (relax.Call, lambda call: call.args[1] if _calls_kernel(call) else call)
    )
    return nodes(bare, ir.GlobalVar)


def _is_constant(arg: relax.Expr) -> bool:
    return isinstance(arg, ir.GenericConst)


class _Constants:
    """Packed constants; each is packed once."""

    def __init__(self) -> None:
        self._packed: dict[tuple[relax.Expr, Panels], relax.Expr] = {}

    def packed(self, constant: relax.Expr, panels: Panels) -> relax.Expr:
        assert isinstance(constant, ir.GenericConst)
        key = (constant, panels)
        if key not in self._packed:
            self._packed[key] = as_constant(panels.pack(constant.value.numpy()))
        return self._packed[key]


def _calling(
    func: ir.BaseFunc, packed: Mapping[ir.GlobalVar, PackedKernel], constants: _Constants
) -> ir.BaseFunc:
    """``func`` with calls of the packed kernels, which pass packed constants."""
    if not isinstance(func, relax.Function):
        return func

    def site(call: relax.Call) -> relax.Call:
        called = call.args[0] if _calls_kernel(call) else None
        kernel = packed.get(called) if isinstance(called, ir.GlobalVar) else None
        if kernel is None:
            return call
        args = operands_of(call)
        for i, panels in kernel.panels.items():
            args[i] = constants.packed(args[i], panels)
        return relax.Call(call.op, [kernel.name, relax.Tuple(args)], call.attrs, call.ty_args, ret_ty=call.ty)

    return tvm_ffi.structural_map(func, (relax.Call, site))
