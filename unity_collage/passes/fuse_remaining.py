"""FuseRemaining: what no library has taken goes through TVM: legalized, fused, scheduled.

Reads    private functions with ``Primitive`` (each becomes exactly one kernel) and loose operators; ``collage.threads``
         of the former; ``collage.schedules``, where EstimateCosts has had kernels tuned.
Writes   scheduled PrimFuncs and calls of them; views (reshape) stay views.
Keeps    calls into libraries, ``external_mods``, and every group that a pass before it has made.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.ir import IRModule

from ..lowering.fuse import fused
from ..target import current_target


@tvm.transform.module_pass(opt_level=0, name="collage.FuseRemaining")
@dataclass(frozen=True)
class FuseRemaining:
    """TVM's own fusion for what is loose, then a CPU schedule for every kernel: the tuned one if that was measured."""

    schedule: bool = True
    """Whether to schedule the kernels; without, TVM's naive loops stay, for another scheduler or tuner."""

    pack: bool = True
    """Whether to store constant weights in the order in which the scheduled kernels read them."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        return fused(mod, current_target(), schedule=self.schedule, pack=self.pack)
