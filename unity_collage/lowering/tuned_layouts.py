"""Constants in the layouts that tuned schedules want.

MetaSchedule may choose the layout of parameters that it is told of. Its schedule then has a block that copies the
parameter, which belongs before the program runs and not into each call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import tvm
import tvm_ffi
from tvm import ir, relax, s_tir, tirx
from tvm.ir import IRModule

from ..graph.shapes import shape_of
from ..rewrites.tir_store import operands_of
from ..schedule.stage import nodes
from ..schedule.tuned import LAYOUT_FREE
from ..tvm_private import give_type
from .pack_weights import call_sites, why_not_changed

_COPY = "meta_schedule.layout_rewrite_preproc"
"""What MetaSchedule writes on the block of a schedule that copies a parameter."""
_WITHOUT_COPY = "_prepacked"
"""What TVM appends to the name of a kernel whose copies it has taken out."""


def with_free_layouts(mod: IRModule, known: Collection[relax.Var] = ()) -> IRModule:
    """``mod`` with ``layout_free_buffers`` on its unscheduled kernels: the parameters that every call gives a constant.

    Only tensors with at least two axes of more than one element count. ``known``: variables that stand for constants.
    """
    calls = [call for func in mod.functions.values() for call in call_sites(func)]

    def is_free(arg: relax.Expr) -> bool:
        is_constant = isinstance(arg, ir.GenericConst) or any(arg.same_as(var) for var in known)
        return is_constant and sum(extent != 1 for extent in shape_of(arg) or ()) >= 2

    def told(gvar: ir.GlobalVar, kernel: tirx.PrimFunc) -> tirx.PrimFunc:
        sites = [operands_of(call) for call in calls if call.args[0].same_as(gvar)]
        free = [i for i, args in enumerate(zip(*sites, strict=True)) if all(map(is_free, args))]
        return kernel.with_attr(LAYOUT_FREE, free) if free else kernel

    return _each_kernel(mod, told)


def with_stored_layouts(mod: IRModule) -> IRModule:
    """``mod`` with constants in the layouts that scheduled kernels copy them to, and kernels without these copies.

    A copy of a variable becomes a kernel of its own.
    """
    copying = [func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc) and _copies(func)]
    if not copying:
        return mod
    passes = (
        relax.transform.SplitLayoutRewritePreproc(),
        relax.transform.FoldConstant(),
        relax.transform.DeadCodeElimination(),
    )
    return _named_as_before(tvm.transform.Sequential(passes)(mod))


def _named_as_before(mod: IRModule) -> IRModule:
    """``mod`` with the names of kernels that TVM gave another: plans and reports tell kernels by them."""
    fresh: dict[ir.GlobalVar, ir.GlobalVar] = {}
    for gvar in mod.functions:
        if (name := gvar.name_hint.removesuffix(_WITHOUT_COPY)) != gvar.name_hint:
            fresh[gvar] = ir.GlobalVar(name)
            give_type(fresh[gvar], mod[gvar].ty)
    functions = {
        fresh.get(gvar, gvar): tvm_ffi.structural_map(func, (ir.GlobalVar, lambda one: fresh.get(one, one)))
        for gvar, func in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _each_kernel(mod: IRModule, change: Callable[[ir.GlobalVar, tirx.PrimFunc], tirx.PrimFunc]) -> IRModule:
    functions = {
        gvar: change(gvar, func)
        if isinstance(func, tirx.PrimFunc) and why_not_changed(func) is None
        else func
        for gvar, func in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _copies(kernel: tirx.PrimFunc) -> bool:
    return any(_COPY in block.annotations for block in nodes(kernel.body, s_tir.SBlock))
