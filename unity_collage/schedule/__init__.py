"""ScheduleCPU: parallel, vectorised loops for every TVM kernel, without tuning.

Reads    every PrimFunc that is not ``tirx.is_scheduled`` yet.
Writes   its loops; ``tirx.is_scheduled``, and ``op_pattern`` 8 (opaque): what is scheduled is not fused again.
Keeps    what each function computes, but for the float rounding of reordered sums and of ``fast_math``.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import IRModule, s_tir, tirx
from tvm.target import Target
from tvm.tirx.stmt import Stmt

from . import fast_math
from .families import emit
from .inline import inlined_stages
from .machine import Machine
from .stage import Func

__all__ = ["ScheduleCPU", "schedule"]

_OPAQUE = 8


@tvm.transform.module_pass(opt_level=0, name="collage.ScheduleCPU")
@dataclass(frozen=True)
class ScheduleCPU:
    """Schedule every kernel of the module that nobody has scheduled yet."""

    target: Target | None = None
    """The processor to schedule for; the target in scope when not given."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        target = self.target or Target.current()
        if target is None:
            raise ValueError("ScheduleCPU needs a target: pass one, or run it in `with target:`")
        functions = {gvar: self._scheduled(func, target) for gvar, func in mod.functions_items()}
        return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)

    def _scheduled(self, func: Func, target: Target) -> Func:
        if not isinstance(func, tirx.PrimFunc) or (func.attrs or {}).get("tirx.is_scheduled", False):
            return func
        done = schedule(func, target).with_attr("tirx.is_scheduled", True)
        return done.with_attr("op_pattern", _OPAQUE)


def schedule(func: tirx.PrimFunc, target: Target) -> tirx.PrimFunc:
    """``func`` with loops for ``target``.

    What no family fits (a scan, a sort, loops that somebody has written by hand) keeps its loops, and
    the attribute ``collage.unscheduled`` says why.
    """
    try:
        found = _written(func, Machine.of(target).running(func))
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    if isinstance(found, str):
        kept: Func = fast_math.rewritten(func)
        return kept.with_attr("collage.unscheduled", found)
    return fast_math.rewritten(found)


def _written(func: Func, machine: Machine) -> Func | str:
    """``func`` with its loops written anew, or the reason why they cannot be."""
    found = inlined_stages(func)
    if isinstance(found, str):
        return found
    flat, stages = found
    return _with_body(flat, emit(stages, machine))


def _with_body(func: Func, body: Stmt) -> Func:
    root = func.body.block
    block = s_tir.SBlock([], [], [], root.name_hint, body, alloc_buffers=root.alloc_buffers)
    return func.with_body(s_tir.SBlockRealize([], True, block))
