"""ScheduleBranches: run independent branches side by side where that is faster than all cores on each kernel.

Reads    ``main`` from FuseRemaining, or its variants by size: one dataflow block of calls of kernels.
Writes   a kernel for each stage of branches that run side by side, which calls their kernels; the order of the
         bindings; ``branches`` in ``collage.plan``.
Keeps    every kernel; programs that cannot be run here, and those that do not get faster.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import tvm
from tvm.ir import IRModule

from .. import runtime
from ..annotations import PLAN
from ..cost.model import Capability, CostModel
from ..errors import CollageError
from ..feedback.branches import LEAST_GAIN, Tried, tried
from ..graph.variants import alone, variants_in
from ..lowering.branches import Calls, staged
from ..measure.measured import MeasuredCost
from ..plan.plan import SideBySide
from ..profile.digest import planned_backends, program_digest
from ..profile.inputs import why_not_runnable
from ..target import current_target, is_cuda

_LOST_TO_SPLITTING = 1.2e-6
"""About how many seconds a kernel loses on all cores: NASNet's 572 kernels of less than 20 us take 0.69 ms more on two
cores than half of their time on one core."""


@tvm.transform.module_pass(opt_level=0, name="collage.ScheduleBranches")
@dataclass(frozen=True)
class ScheduleBranches:
    """Put each independent branch on a core of its own where the running program gets faster.

    The program runs kernel by kernel in a process of its own, on one thread and on all. Branches with kernels that
    scale badly to all threads are put into stages, and the programs with and without stages run in turns. Slow stages
    are dissolved if they cost much. The others stay if the program as a whole is faster. The result is stored in the
    database of costs, so that each program is measured once.

    Where the cost model cannot run programs (a formula, or costs of another machine), the program does not change, and
    the plan says so.
    """

    model: CostModel = field(default_factory=MeasuredCost)
    """The cost model of EstimateCosts."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        if is_cuda(current_target()) or runtime.num_threads() < 2:
            return mod
        variants = variants_in(mod)
        for name in variants:
            mod = self._scheduled(mod, name, alone(mod, name))
        return mod if variants else self._scheduled(mod, "main", mod)

    def _scheduled(self, mod: IRModule, function: str, program: IRModule) -> IRModule:
        """``mod`` with stages in one function, which is ``main`` of ``program``."""
        threads, target = runtime.num_threads(), current_target()
        if why_not_runnable(program) is not None:
            return mod
        calls = Calls.of(program)
        if isinstance(calls, str):
            return _noted(mod, function, f"no branches side by side: {calls}")
        if not _may_gain(calls):
            return mod
        if reason := self.model.why_not(Capability.RUN_PROGRAMS):
            return _noted(mod, function, f"no branches side by side: {reason}")
        try:
            name, what = f"branches {program_digest(program)}", "branches side by side"
            found = self.model.known_or_measured(
                name, planned_backends(program), what, lambda: asdict(tried(program, calls, target, threads))
            )
        except CollageError as error:  # not stored: it may be possible next time
            return _noted(mod, function, f"no branches side by side: {error}")
        if found is None:
            return _noted(mod, function, "branches side by side were not tried: nothing may be measured")
        return _with_stages(mod, function, _decoded(found))


def _with_stages(mod: IRModule, function: str, outcome: Tried) -> IRModule:
    """``mod`` with the stages of a trial in one function, and a remark in its plan."""
    stages = [stage for stage in outcome.stages if len(stage) > 1]
    if not stages:
        remark = "no two branches are faster side by side than split between all threads"
        return _noted(mod, function, remark)
    figures = SideBySide(
        stages=len(stages),
        kernels=sum(len(lane) for stage in stages for lane in stage),
        split_seconds=outcome.split,
        seconds=outcome.side_by_side,
    )
    remark = (
        f"{figures.kernels} kernels run side by side (stages: {len(stages)}): the program's kernels take "
        f"{outcome.side_by_side * 1e3:.3g} ms in place of {outcome.split * 1e3:.3g} ms"
    )
    calls = Calls.of(mod, function)
    assert isinstance(calls, Calls)
    return _noted(staged(mod, calls, outcome.stages, function), function, remark, figures)


def _may_gain(calls: Calls) -> bool:
    """Whether a trial, which builds the program twice more, could gain enough."""
    kernels = len(calls.branching())
    planned = PLAN.read(calls.func).seconds if PLAN.on(calls.func) else 0.0
    return kernels > 1 and kernels * _LOST_TO_SPLITTING >= LEAST_GAIN * planned


def _decoded(found: dict[str, Any]) -> Tried:
    stages = tuple(
        tuple(tuple(int(number) for number in lane) for lane in stage) for stage in found["stages"]
    )
    return Tried(stages, float(found["split"]), float(found["side_by_side"]))


def _noted(mod: IRModule, function: str, remark: str, figures: SideBySide | None = None) -> IRModule:
    """``mod`` with a remark about what was done, or why nothing was, in the plan of one function."""
    func = mod[function]
    if not PLAN.on(func):
        return mod
    plan = PLAN.read(func)
    plan = replace(plan, remarks=(*plan.remarks, remark), branches=figures or plan.branches)
    functions = {**dict(mod.functions_items()), mod.get_global_var(function): PLAN.write(func, plan)}
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
