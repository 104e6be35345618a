"""Schedules that a tuner has found, by the name of their kernel."""

from __future__ import annotations

import json
from typing import Any

import tvm_ffi
from tvm import IRModule, ir, s_tir, tirx
from tvm.s_tir.schedule import Trace

from ..annotations import SCHEDULES
from ..graph.rounded_scales import rounded
from . import fast_math
from .tensor_intrinsics import register_cpu_intrinsics

LAYOUT_FREE = "layout_free_buffers"
"""On an unscheduled kernel, for MetaSchedule: the numbers of the parameters whose layout a schedule may change."""

_OPAQUE = 8

_structural_map: Any = tvm_ffi.structural_map  # type: ignore[reportUnknownMemberType]


def with_tuned_schedules(mod: IRModule) -> IRModule:
    """``mod`` without the attribute ``SCHEDULES``, after applying the schedules in it to the kernels that they name.

    These kernels get ``tirx.is_scheduled``, and ``op_pattern`` 8 (opaque). :func:`.scheduled_module` schedules all
    other kernels.
    """
    if not mod.attrs or SCHEDULES not in mod.attrs:
        return mod
    traces = {str(name): str(trace) for name, trace in mod.attrs[SCHEDULES].items()}
    functions = {gvar: _scheduled(func, traces) for gvar, func in mod.functions_items()}
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos).without_attr(SCHEDULES)


def kernel_name(kernel: tirx.PrimFunc) -> str:
    """A name for the computation of an unscheduled kernel, independent of the names in it; for one version of TVM.

    Kernels that differ only in scales have one name, as they have one cost (:mod:`unity_collage.graph.rounded_scales`).
    One whose schedule may change layouts (``layout_free_buffers``) has another name than one whose schedule may not.
    """
    body = _structural_map(kernel.body, (tirx.FloatImm, _rounded))
    bare = tirx.PrimFunc(kernel.params, body, kernel.ret_type)
    if LAYOUT_FREE in (kernel.attrs or {}):
        bare = bare.with_attr(LAYOUT_FREE, kernel.attrs[LAYOUT_FREE])
    return f"{tvm_ffi.structural_hash(bare) % (1 << 64):016x}"


def with_trace(kernel: tirx.PrimFunc, trace: str) -> tirx.PrimFunc:
    """The unscheduled ``kernel`` with the schedule of ``trace``; raises TVM's error if the trace does not fit."""
    if "Tensorize" in trace:
        register_cpu_intrinsics()
    schedule = schedule_of(kernel)
    Trace.apply_json_to_schedule(json.loads(trace), schedule)
    done = schedule.mod["main"]
    bare = tirx.PrimFunc(done.params, done.body, done.ret_type, kernel.attrs)
    return fast_math.rewritten(bare)


def schedule_of(kernel: tirx.PrimFunc) -> s_tir.Schedule:
    """A schedule of a deep copy of ``kernel``, because TVM edits the parts of a shallow copy in place."""
    own: tirx.PrimFunc = s_tir.renew_defs(kernel)
    return s_tir.Schedule(IRModule({"main": own.with_attr("global_symbol", "main")}))


def _rounded(number: tirx.FloatImm) -> tirx.FloatImm:
    return tirx.FloatImm(number.ty.dtype, rounded(number.value))


def _scheduled(func: ir.BaseFunc, traces: dict[str, str]) -> ir.BaseFunc:
    if not isinstance(func, tirx.PrimFunc) or (func.attrs or {}).get("tirx.is_scheduled", False):
        return func
    bare = func.without_attr(LAYOUT_FREE)
    trace = traces.get(kernel_name(func))
    if trace is None and LAYOUT_FREE in (func.attrs or {}):
        trace = traces.get(kernel_name(bare))
    if trace is None:
        return bare
    return with_trace(bare, trace).with_attrs({"tirx.is_scheduled": True, "op_pattern": _OPAQUE})
