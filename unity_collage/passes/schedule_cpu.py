"""ScheduleCPU: parallel, vectorised loops for every TVM kernel, without tuning.

Reads    every PrimFunc without ``tirx.is_scheduled``.
Writes   its loops; ``tirx.is_scheduled``, and ``op_pattern`` 8 (opaque), so that it is not fused again;
         ``collage.unscheduled`` with the reason where it keeps its naive loops.
Keeps    what each function computes, except for the rounding of reordered sums and of fast approximations.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.ir import IRModule
from tvm.target import Target

from ..schedule import scheduled_module


@tvm.transform.module_pass(opt_level=0, name="collage.ScheduleCPU")
@dataclass(frozen=True)
class ScheduleCPU:
    """Schedule every kernel of the module that has no schedule yet."""

    target: Target | None = None
    """The processor to schedule for; None: the target in scope."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        target = self.target or Target.current()
        if target is None:
            raise ValueError("ScheduleCPU needs a target: pass one, or run it in `with target:`")
        return scheduled_module(mod, target)
