"""TVM's kernels for operators that it legalizes by the target: sorts, cumulative sums, the k largest."""

from __future__ import annotations

from functools import reduce

from tvm import ir, relax, s_tir, tirx
from tvm.ir import IRModule

from ..graph.devices import legalized_on_devices
from ..legalization import legalize_sorts
from ..legalization.wide_indexes import is_buffer
from ..schedule import build
from ..schedule.stage import Func, substitute
from ..target import current_target, is_cuda


def dispatched(mod: IRModule) -> IRModule:
    """``mod`` with kernels for the operators ``LEGALIZED_BY_TARGET``, for the target in scope, and calls of them.

    On CPUs sorts become sorts of integers first, and scans of float16 become scans of float32. Then
    ``relax.backend.DispatchSortScan`` runs, and the kernels get plain buffers so that their script parses back. In
    TVM's kernels the operand of a cumulative sum has an offset that no caller passes, and its result has a layout.
    Those for CPUs write a first element even where there is none, so they do nothing for a tensor without elements.
    """
    on_gpu = is_cuda(current_target())
    if not on_gpu:
        mod = legalized_on_devices(mod, legalize_sorts())
    found = relax.backend.DispatchSortScan()(mod)
    functions: dict[ir.GlobalVar, ir.BaseFunc] = {}
    for gvar, func in found.functions_items():
        if isinstance(func, tirx.PrimFunc) and gvar not in mod.functions:
            func = _in_rows(func) if on_gpu else _unless_empty(_in_rows(func))
        functions[gvar] = func
    return IRModule(functions, attrs=found.attrs, global_infos=found.global_infos)


def _in_rows(func: Func) -> Func:
    """``func`` with buffers that are plain memory in row-major order."""
    buffers = [param for param in func.params if is_buffer(param)]
    fresh = {param: build.buffer(list(param.shape), param, param.name) for param in buffers}
    body = substitute(func.body, fresh)
    return tirx.PrimFunc([fresh.get(param, param) for param in func.params], body, func.ret_type, func.attrs)


def _unless_empty(func: Func) -> Func:
    """``func``, whose root block does nothing unless each extent of its tensors is above 0."""
    extents = [extent for param in func.params if is_buffer(param) for extent in param.shape]
    unsure = [extent for extent in extents if not isinstance(extent, tirx.IntImm) or not extent.value]
    if not unsure or not isinstance(func.body, s_tir.SBlockRealize):
        return func
    root = func.body.block
    conditions = [extent > tirx.const(0, "int64") for extent in unsure]
    inner = tirx.IfThenElse(reduce(tirx.And, conditions), root.body, None)
    block = s_tir.SBlock([], root.reads, root.writes, root.name_hint, inner, alloc_buffers=root.alloc_buffers)
    return func.with_body(s_tir.SBlockRealize([], True, block))
