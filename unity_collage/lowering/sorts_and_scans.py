"""TVM's kernels for what it legalizes by the target: sorts, sums along an axis, the k largest."""

from __future__ import annotations

from tvm import relax, tirx
from tvm.ir import IRModule

from ..schedule import build
from ..schedule.stage import Func, substitute


def dispatched(mod: IRModule) -> IRModule:
    """``mod`` with kernels for ``LEGALIZED_BY_TARGET``, for the target in scope, and calls of them.

    That is ``relax.backend.DispatchSortScan`` with kernels whose script parses back: TVM gives the operand of a sum
    along an axis an offset that no caller knows, and its result a layout; ours have neither, as everywhere.
    """
    found = relax.backend.DispatchSortScan()(mod)
    functions = {
        gvar: _in_rows(func) if isinstance(func, tirx.PrimFunc) and gvar not in mod.functions else func
        for gvar, func in found.functions_items()
    }
    return IRModule(functions, attrs=found.attrs, global_infos=found.global_infos)


def _in_rows(func: Func) -> Func:
    """``func`` of buffers that are plain memory in row-major order."""
    fresh = {param: build.buffer(list(param.shape), param, param.name) for param in func.params}
    body = substitute(func.body, fresh)
    return tirx.PrimFunc([fresh[param] for param in func.params], body, func.ret_type, func.attrs)
