"""ApplySchedules: kernels get the schedule that a tuner has found for them.

Reads    ``collage.schedules`` of the module: by name of a kernel (:func:`kernel_name`), the trace as JSON.
Writes   the loops of kernels that are named there; ``tirx.is_scheduled``, and ``op_pattern`` 8 (opaque) as ScheduleCPU.
         Removes ``collage.schedules``.
Keeps    all other functions: ScheduleCPU is for them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import IRModule, s_tir, tirx
from tvm.s_tir.schedule import Trace

from . import fast_math
from .stage import Func

SCHEDULES = "collage.schedules"
"""Attribute of a module, or of a function that is priced alone."""

_OPAQUE = 8


@tvm.transform.module_pass(opt_level=0, name="collage.ApplySchedules")
@dataclass(frozen=True)
class ApplySchedules:
    """Give every kernel that ``collage.schedules`` names the schedule that was priced."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        if not mod.attrs or SCHEDULES not in mod.attrs:
            return mod
        traces = {str(name): str(trace) for name, trace in mod.attrs[SCHEDULES].items()}
        functions = {gvar: _scheduled(func, traces) for gvar, func in mod.functions_items()}
        return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos).without_attr(SCHEDULES)


def kernel_name(kernel: tirx.PrimFunc) -> str:
    """Names what an unscheduled kernel computes, whatever it and its variables are called; for one version of TVM."""
    bare = tirx.PrimFunc(kernel.params, kernel.body, kernel.ret_type)
    return f"{tvm_ffi.structural_hash(bare) % (1 << 64):016x}"


def with_trace(kernel: tirx.PrimFunc, trace: str) -> tirx.PrimFunc:
    """``kernel``, not scheduled yet, with the schedule of ``trace``; raises TVM's error where that does not fit."""
    schedule = schedule_of(kernel)
    Trace.apply_json_to_schedule(json.loads(trace), schedule)
    done = schedule.mod["main"]
    bare = tirx.PrimFunc(done.params, done.body, done.ret_type, kernel.attrs)
    return fast_math.rewritten(bare)


def schedule_of(kernel: tirx.PrimFunc) -> s_tir.Schedule:
    """A schedule of a copy of ``kernel``: TVM would edit in place what a shallow copy shares with it."""
    own: tirx.PrimFunc = s_tir.renew_defs(kernel)
    return s_tir.Schedule(IRModule({"main": own.with_attr("global_symbol", "main")}))


def _scheduled(func: Func, traces: dict[str, str]) -> Func:
    if not isinstance(func, tirx.PrimFunc) or (func.attrs or {}).get("tirx.is_scheduled", False):
        return func
    trace = traces.get(kernel_name(func))
    if trace is None:
        return func
    return with_trace(func, trace).with_attrs({"tirx.is_scheduled": True, "op_pattern": _OPAQUE})
