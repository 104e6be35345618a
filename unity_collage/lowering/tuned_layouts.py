"""Constants in the layouts that tuned schedules want.

MetaSchedule may choose the layout of parameters that it is told of. Its schedule then has a block that copies the
parameter, which belongs before the program runs and not into each call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache, cached_property
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax, s_tir, tirx
from tvm.ir import IRModule
from tvm.target import Target

from ..graph.prim_funcs import callee_of, prim_func_of
from ..graph.shapes import ints, shape_of
from ..rewrites.constants import constant as as_constant
from ..rewrites.tir_store import operands_of
from ..schedule.stage import nodes
from ..schedule.tuned import LAYOUT_FREE
from ..tvm_private import give_type
from .pack_weights import call_sites, other_uses, why_not_changed

_COPY = "meta_schedule.layout_rewrite_preproc"
"""What MetaSchedule writes on the block of a schedule that copies a parameter."""


def with_free_layouts(mod: IRModule, known: Collection[relax.Var] = ()) -> IRModule:
    """``mod`` with ``layout_free_buffers`` on its unscheduled kernels: a parameter that every call gives a constant.

    Only one tensor of a kernel is free, that with the most elements, and only if it has two axes of more than one
    element. ``known``: variables that stand for constants. A kernel that is used in other ways has none.
    """
    calls = [call for func in mod.functions.values() for call in call_sites(func)]
    elsewhere = {gvar for func in mod.functions.values() for gvar in other_uses(func)}

    def elements(arg: relax.Expr) -> int:
        is_constant = isinstance(arg, ir.GenericConst) or any(arg.same_as(var) for var in known)
        shape = shape_of(arg) or ()
        is_free = is_constant and sum(extent != 1 for extent in shape) >= 2
        return int(np.prod(shape)) if is_free else 0

    def told(gvar: ir.GlobalVar, kernel: tirx.PrimFunc) -> tirx.PrimFunc:
        if gvar in elsewhere or why_not_changed(kernel) is not None:
            return kernel
        sites = [operands_of(call) for call in calls if call.args[0].same_as(gvar)]
        sizes = [min(map(elements, args)) for args in zip(*sites, strict=True)]
        largest = max(sizes, default=0)
        return kernel.with_attr(LAYOUT_FREE, [sizes.index(largest)]) if largest else kernel

    return _each_kernel(mod, told)


def with_stored_layouts(mod: IRModule) -> IRModule:
    """``mod`` with constants in the layouts that scheduled kernels copy them to, and kernels without these copies.

    A kernel that gets a variable keeps its copy.
    """
    sites: dict[ir.GlobalVar, list[relax.Call]] = {}
    for func in mod.functions.values():
        for call in call_sites(func):
            if (callee := callee_of(call)) is not None:
                sites.setdefault(callee, []).append(call)
    made = {
        gvar: found
        for gvar, calls in sites.items()
        if isinstance(kernel := mod.functions.get(gvar), tirx.PrimFunc)
        and (found := _without_copy(kernel, calls)) is not None
    }
    if not made:
        return mod
    fresh = {gvar: ir.GlobalVar(gvar.name_hint) for gvar in made}
    for gvar, name in fresh.items():
        give_type(name, made[gvar].kernel.ty)

    def site(call: relax.Call) -> relax.Call:
        callee = callee_of(call)
        if callee is None or (found := made.get(callee)) is None:
            return call
        args = operands_of(call)
        args[found.param] = found.stored(args[found.param])
        operands = [fresh[callee], relax.Tuple(args)]
        return relax.Call(call.op, operands, call.attrs, call.ty_args, ret_ty=call.ty)

    functions = {
        fresh.get(gvar, gvar): made[gvar].kernel
        if gvar in made
        else tvm_ffi.structural_map(func, (relax.Call, site))
        if isinstance(func, relax.Function)
        else func
        for gvar, func in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


class _Stored:
    """A kernel that reads one parameter in another layout, and its constants in that layout, each made once."""

    def __init__(self, kernel: tirx.PrimFunc, param: int, copy: tirx.PrimFunc):
        self.kernel = kernel
        self.param = param
        self._copy = copy
        self.stored = cache(self._stored)

    def _stored(self, constant: ir.GenericConst) -> relax.Expr:
        out = self._copy.params[-1]
        result = tvm.runtime.empty(ints(out.shape) or (), str(out.dtype))
        self._built(constant.value, result)
        return as_constant(result.numpy())

    @cached_property
    def _built(self) -> Any:
        symbol = "copied"
        copy = self._copy.with_attr("global_symbol", symbol)
        return tvm.compile(IRModule({symbol: copy}), target=Target("llvm")).mod[symbol]


def _without_copy(kernel: tirx.PrimFunc, calls: list[relax.Call]) -> _Stored | None:
    """The kernel without the copy of its one constant; None where it copies nothing, or what some call gives as a
    variable."""
    if not any(_COPY in block.annotations for block in nodes(kernel.body, s_tir.SBlock)):
        return None
    split = _split(kernel, len(operands_of(calls[0])))
    if split is None:
        return None
    param, without, copy = split
    constants = [operands_of(call)[param] for call in calls]
    return (
        _Stored(without, param, copy)
        if all(isinstance(each, ir.GenericConst) for each in constants)
        else None
    )


def _split(kernel: tirx.PrimFunc, count: int) -> tuple[int, tirx.PrimFunc, tirx.PrimFunc] | None:
    """The number of the parameter that ``kernel`` copies, the kernel without the copy, and the copy; None for several.

    ``count``: how many of its parameters are operands. TVM's pass splits them, in a module that has nothing else.
    """
    builder = relax.BlockBuilder()
    name = builder.add_func(kernel, "kernel")
    types: list[Any] = [
        relax.TensorType(ints(buffer.shape) or (), str(buffer.dtype)) for buffer in kernel.params
    ]
    operands = [relax.Var(f"x{number}", ty) for number, ty in enumerate(types[:count])]
    results = types[count:] if len(types) > count + 1 else types[count]
    with builder.function("main", operands):
        called = relax.call_tir(name, relax.Tuple(operands), out_ty=results)
        builder.emit_func_output(builder.emit(called))
    split = relax.transform.SplitLayoutRewritePreproc()(builder.get())
    calls = call_sites(split["main"])
    if len(calls) != 2:
        return None
    copy, without = (prim_func_of(call, split) for call in calls)
    (source,) = operands_of(calls[0])
    assert isinstance(copy, tirx.PrimFunc) and isinstance(without, tirx.PrimFunc)
    (number,) = (at for at, param in enumerate(split["main"].params) if param.same_as(source))
    return number, without.without_attr(LAYOUT_FREE), copy


def _each_kernel(mod: IRModule, change: Callable[[ir.GlobalVar, tirx.PrimFunc], tirx.PrimFunc]) -> IRModule:
    functions = {
        gvar: change(gvar, func) if isinstance(func, tirx.PrimFunc) else func
        for gvar, func in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
