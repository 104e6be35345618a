"""FuseRemaining: what no library has taken goes through TVM: legalized, fused, scheduled.

Reads    private functions with ``Primitive`` (each becomes exactly one kernel) and loose operators; ``collage.threads``
         of the former; ``collage.schedules``, where EstimateCosts has had kernels tuned.
Writes   scheduled PrimFuncs and calls of them; views (reshape) stay views.
Keeps    calls into libraries, ``external_mods``, and every group that a pass before it has made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..annotations import THREADS, threads_of
from ..schedule import ScheduleCPU
from ..schedule.tuned import ApplySchedules
from ..target import current_target
from .pack_weights import PackWeights
from .sorts_and_scans import DispatchSortsAndScans


@tvm.transform.module_pass(opt_level=0, name="collage.FuseRemaining")
@dataclass(frozen=True)
class FuseRemaining:
    """TVM's own fusion for what is loose, then a CPU schedule for every kernel: the tuned one if that was priced."""

    schedule: bool = True
    """Whether to schedule the kernels; without, TVM's naive loops stay, for another scheduler or tuner."""

    pack: bool = True
    """Whether to store constant weights in the order in which the scheduled kernels read them."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        limits = {gvar.name_hint: threads_of(func) for gvar, func in mod.functions_items()}
        fusing = [
            DispatchSortsAndScans(),
            relax.transform.LegalizeOps(),
            relax.transform.AnnotateTIROpPattern(),
            relax.transform.FuseOps(),
            relax.transform.FuseTIR(),
            relax.transform.RewriteDataflowReshape(),
            relax.transform.DeadCodeElimination(),
        ]
        scheduling = [ApplySchedules(), *([PackWeights()] if self.pack else []), ScheduleCPU()]
        with current_target():
            mod = _limited(tvm.transform.Sequential(fusing)(mod), limits)
            return tvm.transform.Sequential(scheduling)(mod) if self.schedule else mod


def _limited(mod: IRModule, limits: Mapping[str, int | None]) -> IRModule:
    """``mod`` whose kernels have the threads of the functions that they were made of: FuseTIR forgets them."""
    functions = {
        gvar: func if (threads := limits.get(gvar.name_hint)) is None else func.with_attr(THREADS, threads)
        for gvar, func in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
