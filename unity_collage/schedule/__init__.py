"""Loops for TVM's kernels without tuning: parallel, vectorised ones on a CPU, bound to threads on a GPU."""

from __future__ import annotations

from tvm import IRModule, s_tir, tirx
from tvm.target import Target
from tvm.tirx.stmt import Stmt

from ..annotations import UNSCHEDULED
from ..target import is_cuda, target_for
from . import fast_math, faults
from .cpu import CpuTraits
from .families import emit
from .gpu import scheduled_on_gpu
from .inline import inlined_stages
from .library_calls import around_calls, has_calls
from .stage import Func

__all__ = ["SCHEDULE_VERSION", "schedule", "scheduled_module"]

SCHEDULE_VERSION = 19
"""The version of the loops that are made here. Raise it when a kernel gets other loops, since measured costs hold for
one version. ``tests/unit/test_versions.py`` fails if the loops change and the version does not.
"""

_OPAQUE = 8


def scheduled_module(mod: IRModule, target: Target) -> IRModule:
    """``mod`` with loops for its target, else for ``target``, in every kernel that is not ``tirx.is_scheduled`` yet.

    Kernels get ``tirx.is_scheduled``, and ``op_pattern`` 8 (opaque), so that they are not fused again. They compute the
    same values, except for the rounding of reordered sums and of ``fast_math``.
    """
    functions = {
        gvar: _scheduled(func, target, gvar.name_hint)
        if isinstance(func, tirx.PrimFunc) and not (func.attrs or {}).get("tirx.is_scheduled", False)
        else func
        for gvar, func in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _scheduled(func: Func, target: Target, name: str) -> Func:
    done = schedule(func, target_for(func, target), name)
    return done.with_attrs({"tirx.is_scheduled": True, "op_pattern": _OPAQUE})


def schedule(func: tirx.PrimFunc, target: Target, name: str = "a kernel") -> tirx.PrimFunc:
    """``func`` with loops for ``target``; ``name`` is for the log.

    A kernel that fits no family (a scan, a sort, handwritten loops) keeps its loops. So does a kernel on which our own
    code fails. The attribute ``UNSCHEDULED`` has the reason; in the second case it begins with ``faults.FAULT``. On a
    GPU such a kernel runs in one thread.
    """
    if is_cuda(target):
        return scheduled_on_gpu(func, target, name)
    cpu = CpuTraits.of(target).running(func)
    try:
        found = _written(func, cpu)
        if not isinstance(found, str):
            return fast_math.rewritten(found)
        return fast_math.rewritten(func).with_attr(UNSCHEDULED, found)
    except Exception as error:
        return func.with_attr(UNSCHEDULED, faults.logged(f"{name} keeps its loops", error))


def _written(func: Func, cpu: CpuTraits) -> Func | str:
    """``func`` with new loops, or the reason why it keeps its own."""
    if has_calls(func):
        return around_calls(func, lambda part: _written(part, cpu), UNSCHEDULED)
    found = inlined_stages(func)
    if isinstance(found, str):
        return found
    flat, stages = found
    return _with_body(flat, emit(stages, cpu))


def _with_body(func: Func, body: Stmt) -> Func:
    assert isinstance(func.body, s_tir.SBlockRealize)
    root = func.body.block
    block = s_tir.SBlock([], [], [], root.name_hint, body, alloc_buffers=root.alloc_buffers)
    return func.with_body(s_tir.SBlockRealize([], True, block))
