"""FuseRemaining: TVM legalizes, fuses and schedules what no library takes.

Reads    private functions with ``Primitive`` (each becomes exactly one kernel) and loose operators; ``collage.threads``
         of the former; ``collage.schedules``, if EstimateCosts had kernels tuned.
Writes   scheduled PrimFuncs and calls of them; views (reshape) stay views. A remark in ``collage.plan`` for each kernel
         that keeps its naive loops.
Keeps    calls into libraries, ``external_mods``, and every group that an earlier pass made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import tvm
from tvm import ir, relax
from tvm.ir import IRModule

from ..annotations import PLAN, UNSCHEDULED
from ..lowering.fuse import fused
from ..lowering.pack_weights import call_sites
from ..target import current_target


@tvm.transform.module_pass(opt_level=0, name="collage.FuseRemaining")
@dataclass(frozen=True)
class FuseRemaining:
    """Fuse loose operators as TVM does, then schedule every kernel for CPUs; tuned schedules come first."""

    schedule: bool = True
    """Whether to schedule the kernels. Otherwise they keep TVM's naive loops, for another scheduler or tuner."""

    pack: bool = True
    """Whether to store constant weights in the order in which the scheduled kernels read them."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        lowered = fused(mod, current_target(), schedule=self.schedule, pack=self.pack)
        functions = {gvar: _remarked(func, lowered) for gvar, func in lowered.functions_items()}
        return IRModule(functions, attrs=lowered.attrs, global_infos=lowered.global_infos)


def _remarked(func: ir.BaseFunc, mod: IRModule) -> ir.BaseFunc:
    """``func`` with a remark in its plan, if it has one, for each of its kernels without a schedule."""
    if not isinstance(func, relax.Function) or not PLAN.on(func):
        return func
    plan = PLAN.read(func)
    remarks = dict.fromkeys(_unscheduled(func, mod))
    added = [remark for remark in remarks if remark not in plan.remarks]
    return PLAN.write(func, replace(plan, remarks=(*plan.remarks, *added))) if added else func


def _unscheduled(func: relax.Function, mod: IRModule) -> Iterator[str]:
    """A remark for each call of a kernel without a schedule."""
    for call in call_sites(func):
        kernel = call.args[0]
        assert isinstance(kernel, ir.GlobalVar)
        reason = (mod[kernel].attrs or {}).get(UNSCHEDULED)
        if reason is not None:
            yield f"TVM kernel {kernel.name_hint} keeps naive loops: {reason}"
