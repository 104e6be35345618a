"""FuseRemaining: what no library has taken goes through TVM: legalized, fused, scheduled.

Reads    private functions with ``Primitive`` (each becomes exactly one kernel) and loose operators;
         ``collage.schedules``, where EstimateCosts has had kernels tuned.
Writes   scheduled PrimFuncs and calls of them; views (reshape) stay views.
Keeps    calls into libraries, ``external_mods``, and every group that a pass before it has made.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.ir import IRModule

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
        passes = [
            DispatchSortsAndScans(),
            relax.transform.LegalizeOps(),
            relax.transform.AnnotateTIROpPattern(),
            relax.transform.FuseOps(),
            relax.transform.FuseTIR(),
            relax.transform.RewriteDataflowReshape(),
            relax.transform.DeadCodeElimination(),
        ]
        if self.schedule:
            passes.append(ApplySchedules())
        if self.schedule and self.pack:
            passes.append(PackWeights())
        if self.schedule:
            passes.append(ScheduleCPU())
        with current_target():
            return tvm.transform.Sequential(passes)(mod)
