"""TVM's kernels for operators that it legalizes by the target: sorts, cumulative sums, the k largest."""

from __future__ import annotations

from tvm import relax, tirx
from tvm.ir import IRModule

from ..graph.devices import legalized_on_devices
from ..legalization import legalize_sorts
from ..schedule import build
from ..schedule.stage import Func, substitute
from ..target import current_target, is_cuda


def dispatched(mod: IRModule) -> IRModule:
    """``mod`` with kernels for the operators ``LEGALIZED_BY_TARGET``, for the target in scope, and calls of them.

    On CPUs sorts become sorts of integers first, and scans of float16 become scans of float32. Then
    ``relax.backend.DispatchSortScan`` runs, and the kernels get plain buffers so that their script parses back. In
    TVM's kernels the operand of a cumulative sum has an offset that no caller passes, and its result has a layout.
    """
    if not is_cuda(current_target()):
        mod = legalized_on_devices(mod, legalize_sorts())
    found = relax.backend.DispatchSortScan()(mod)
    functions = {
        gvar: _in_rows(func) if isinstance(func, tirx.PrimFunc) and gvar not in mod.functions else func
        for gvar, func in found.functions_items()
    }
    return IRModule(functions, attrs=found.attrs, global_infos=found.global_infos)


def _in_rows(func: Func) -> Func:
    """``func`` with buffers that are plain memory in row-major order."""
    fresh = {param: build.buffer(list(param.shape), param, param.name) for param in func.params}
    body = substitute(func.body, fresh)
    return tirx.PrimFunc([fresh[param] for param in func.params], body, func.ret_type, func.attrs)
