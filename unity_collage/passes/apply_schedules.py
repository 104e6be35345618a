"""ApplySchedules: kernels get the schedule that a tuner has found for them.

Reads    ``collage.schedules`` of the module: by name of a kernel, the trace as JSON.
Writes   the loops of kernels that are named there; ``tirx.is_scheduled``, and ``op_pattern`` 8 (opaque) as ScheduleCPU.
         Removes ``collage.schedules``.
Keeps    all other functions: ScheduleCPU is for them.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.ir import IRModule

from ..schedule.tuned import with_tuned_schedules


@tvm.transform.module_pass(opt_level=0, name="collage.ApplySchedules")
@dataclass(frozen=True)
class ApplySchedules:
    """Give every kernel that ``collage.schedules`` names the schedule that was measured."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        return with_tuned_schedules(mod)
