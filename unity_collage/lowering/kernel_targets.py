"""Which target each kernel of a module is scheduled and compiled for: that of the virtual device of its results."""

from __future__ import annotations

from collections.abc import Mapping

import tvm_ffi
from tvm import ir, relax, s_tir, tirx
from tvm.ir import IRModule
from tvm.target import Target

from ..graph.calls import op_name
from ..graph.in_place import IN_PLACE
from ..graph.prim_funcs import CALL_TIR
from ..target import TARGET, device_target, fields_of, target_for
from ..tvm_private import give_type
from .outline import NameSupply

_CALLS = frozenset({CALL_TIR, *IN_PLACE})


def with_kernel_targets(mod: IRModule, current: Target) -> IRModule:
    """``mod`` with the target of the virtual device of their results on its kernels, if that is not ``current``.

    A kernel that is called for several targets becomes one kernel for each.
    """
    wanted = _wanted(mod, current)
    if all(set(targets) <= {_text(current)} for targets in wanted.values()):
        return mod
    names = NameSupply(mod)
    made: dict[tuple[ir.GlobalVar, str], ir.GlobalVar] = {}
    functions: dict[ir.GlobalVar, ir.BaseFunc] = {}
    for gvar, func in mod.functions_items():
        targets = wanted.get(gvar, {})
        if not isinstance(func, tirx.PrimFunc) or not targets:
            functions[gvar] = func
            continue
        for number, (text, target) in enumerate(targets.items()):
            own = gvar if not number else _named(names.fresh(gvar.name_hint), gvar)
            made[gvar, text] = own
            kernel = s_tir.renew_defs(func) if number else func  # two functions share no variables
            functions[own] = kernel if text == _text(current) else kernel.with_attr(TARGET, target)
    functions = {gvar: _calling(func, mod, made, current) for gvar, func in functions.items()}
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def without_target(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` without its target, as the compiler expects it: the compiler gets the target separately."""
    return func.without_attr(TARGET) if TARGET in (func.attrs or {}) else func


def _wanted(mod: IRModule, current: Target) -> dict[ir.GlobalVar, dict[str, Target]]:
    """The targets that each kernel is called for, in order of first mention."""
    found: dict[ir.GlobalVar, dict[str, Target]] = {}

    def visit(call: relax.Call) -> relax.Call:
        if (kernel := _called(call)) is not None:
            target = _target_of_call(mod, kernel, call, current)
            found.setdefault(kernel, {}).setdefault(_text(target), target)
        return call

    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            tvm_ffi.structural_map(func, (relax.Call, visit))
    return found


def _called(call: relax.Call) -> ir.GlobalVar | None:
    """The kernel that a call names, if it is a call of one."""
    kernel = call.args[0] if op_name(call) in _CALLS else None
    return kernel if isinstance(kernel, ir.GlobalVar) else None


def _target_of_call(mod: IRModule, kernel: ir.GlobalVar, call: relax.Call, current: Target) -> Target:
    """The target of the kernel itself, else that of the virtual device of its results."""
    return target_for(mod[kernel], device_target(call.ty) or current)


def _calling(
    func: ir.BaseFunc, mod: IRModule, made: Mapping[tuple[ir.GlobalVar, str], ir.GlobalVar], current: Target
) -> ir.BaseFunc:
    """``func`` with calls of the kernels for their targets."""
    if not isinstance(func, relax.Function):
        return func

    def called(call: relax.Call) -> relax.Call:
        if (named := _called(call)) is None:
            return call
        kernel = made.get((named, _text(_target_of_call(mod, named, call, current))), named)
        if kernel.same_as(named):
            return call
        return relax.Call(call.op, [kernel, *call.args[1:]], call.attrs, call.ty_args, ret_ty=call.ty)

    return tvm_ffi.structural_map(func, (relax.Call, called))


def _named(name: str, like: ir.GlobalVar) -> ir.GlobalVar:
    gvar = ir.GlobalVar(name)
    give_type(gvar, like.ty)
    return gvar


def _text(target: Target) -> str:
    return str(fields_of(target))
