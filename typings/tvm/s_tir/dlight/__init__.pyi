"""Schedules without tuning, one rule for each kind of kernel."""

from tvm.s_tir import Schedule
from tvm.target import Target
from tvm.tirx import PrimFunc

from . import gpu as gpu

class ScheduleRule:
    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Schedule | list[Schedule] | None: ...
