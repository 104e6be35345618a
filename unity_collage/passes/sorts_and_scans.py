"""DispatchSortsAndScans: TVM's kernels for what it legalizes by the target: sorts, sums along an axis, the k largest.

Reads    operators of :data:`OPERATORS`.
Writes   calls of PrimFuncs in their place, for the target in scope.
Keeps    everything else.
"""

from __future__ import annotations

import tvm
from tvm import relax, tirx
from tvm.ir import IRModule

from ..schedule import build
from ..schedule.stage import Func, substitute

OPERATORS = frozenset(
    f"relax.{name}" for name in ("argsort", "bucketize", "cumprod", "cumsum", "sort", "topk")
)


@tvm.transform.module_pass(opt_level=0, name="collage.DispatchSortsAndScans")
class DispatchSortsAndScans:
    """``relax.backend.DispatchSortScan`` with kernels whose script parses back.

    TVM gives the operand of a sum along an axis an offset that no caller knows, and its result a layout; ours have
    neither, as everywhere.
    """

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        dispatched = relax.backend.DispatchSortScan()(mod)
        functions = {
            gvar: _in_rows(func) if isinstance(func, tirx.PrimFunc) and gvar not in mod.functions else func
            for gvar, func in dispatched.functions_items()
        }
        return IRModule(functions, attrs=dispatched.attrs, global_infos=dispatched.global_infos)


def _in_rows(func: Func) -> Func:
    """``func`` of buffers that are plain memory in row-major order."""
    fresh = {param: build.buffer(list(param.shape), param, param.name) for param in func.params}
    body = substitute(func.body, fresh)
    return tirx.PrimFunc([fresh[param] for param in func.params], body, func.ret_type, func.attrs)
