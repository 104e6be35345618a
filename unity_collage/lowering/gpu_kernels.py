"""TVM's kernels for a GPU: named as C allows, readable as a script, and bound to threads."""

from __future__ import annotations

import re

from tvm import ir, tirx
from tvm.ir import IRModule
from tvm.target import Target
from tvm_ffi import structural_map

from ..annotations import UNSCHEDULED
from ..errors import CollageError
from ..schedule import scheduled_module
from ..schedule.gpu import readable, why_not_built
from ..tvm_private import give_type


def bound_kernels(mod: IRModule, target: Target) -> IRModule:
    """``mod`` with kernels that are bound to threads of ``target``, and can be compiled as CUDA sources."""
    functions = {
        gvar: readable(func) if isinstance(func, tirx.PrimFunc) else func
        for gvar, func in with_c_names(mod).functions_items()
    }
    return scheduled_module(IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos), target)


def refuse_unbuilt(mod: IRModule, target: Target) -> None:
    """Raises CollageError for the first kernel without a schedule with which it can be built."""
    for gvar, func in mod.functions_items():
        if not isinstance(func, tirx.PrimFunc) or UNSCHEDULED not in (func.attrs or {}):
            continue
        if reason := why_not_built(func, target):
            raise CollageError(f"TVM kernel {gvar.name_hint} cannot be built for a GPU: {reason}")


def with_c_names(mod: IRModule) -> IRModule:
    """``mod`` with valid names of C for its kernels: TVM puts ``<lambda>`` into some."""
    taken = {gvar.name_hint for gvar in mod.functions}
    fresh: dict[ir.GlobalVar, ir.GlobalVar] = {}
    for gvar, func in mod.functions_items():
        if isinstance(func, tirx.PrimFunc) and not gvar.name_hint.isidentifier():
            fresh[gvar] = ir.GlobalVar(_new_name(gvar.name_hint, taken))
            give_type(fresh[gvar], func.ty)
    if not fresh:
        return mod
    functions = {
        fresh.get(gvar, gvar): structural_map(func, (ir.GlobalVar, lambda var: fresh.get(var, var)))
        for gvar, func in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _new_name(name: str, taken: set[str]) -> str:
    """A valid name of C for ``name``; it counts as used from now on."""
    plain = re.sub(r"\W+", "_", name)
    while plain in taken:
        plain += "_"
    taken.add(plain)
    return plain
