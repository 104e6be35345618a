"""EstimateCosts: give every candidate a cost, or the reason why it has none.

Reads    ``collage.candidates``, from AnnotateCandidates.
Writes   ``collage.costs``, for SearchPartition; ``collage.schedules`` of the module, for FuseRemaining, if kernels
         were tuned.
Keeps    every binding: this pass changes attributes only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeGuard

import tvm
from tvm import ir, relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS, SCHEDULES
from ..cost.asking import answered, workloads
from ..cost.expected import with_expected
from ..cost.model import Capability, CostModel, Overheads, Workload
from ..cost.tuned import tuned_costs
from ..errors import CollageError, warn
from ..graph import DataflowGraph
from ..measure.measured import MeasuredCost
from ..plan.costs import Cost, Costs
from ..plan.problem import problem_of
from ..search import Problem


@tvm.transform.module_pass(opt_level=0, name="collage.EstimateCosts")
@dataclass(frozen=True)
class EstimateCosts:
    """Ask ``model`` once for each distinct workload and backend.

    A network repeats its layers: sixteen equal convolutions are one question. A candidate without a cost has a reason
    instead, and is never chosen.
    """

    model: CostModel = field(default_factory=MeasuredCost)
    """The source of costs: measurements, a database of them, or a formula."""
    tune_trials: int = 0
    """How many schedules MetaSchedule tries for each TVM kernel that could make the plan cheaper."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        questions = {
            gvar: workloads(func, self.model, mod)
            for gvar, func in mod.functions_items()
            if _has_candidates(func)
        }
        costs = self.model.costs([w for asked in questions.values() for w in asked.values()])
        _warn_if_all_failed(costs)
        backends = dict.fromkeys(w.backend for asked in questions.values() for w in asked.values())
        overheads = self.model.overheads(list(backends)) if questions else Overheads()
        schedules: dict[str, str] = {}
        functions: dict[ir.GlobalVar, ir.BaseFunc] = {}
        for gvar, func in mod.functions_items():
            if _has_candidates(func):
                found = self._complete(
                    func, answered(func, questions[gvar], costs, overheads), questions[gvar]
                )
                found, tuned = self._tuned(func, found, questions[gvar])
                func, schedules = COSTS.write(func, found), schedules | tuned
            functions[gvar] = func
        result = IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
        return result.with_attr(SCHEDULES, schedules) if schedules else result

    def _complete(self, func: relax.Function, costs: Costs, asked: Mapping[int, Workload]) -> Costs:
        """``costs``, and expected ones if the time was used up before each operator was in a measured kernel."""

        def make(given: Costs) -> Problem:
            return problem_of(DataflowGraph(func), CANDIDATES.read(func), given)

        return with_expected(func, costs, asked, self.model, make)

    def _tuned(
        self, func: relax.Function, costs: Costs, asked: Mapping[int, Workload]
    ) -> tuple[Costs, dict[str, str]]:
        if not self.tune_trials:
            return costs, {}
        if reason := self.model.why_not(Capability.TUNE):
            raise CollageError(f"kernels are not tuned: {reason}")
        return tuned_costs(func, costs, asked, self.model, self.tune_trials)


def _warn_if_all_failed(costs: Mapping[str, Cost]) -> None:
    if costs and all(cost.seconds is None for cost in costs.values()):
        reason = next(iter(costs.values())).reason
        text = f"no kernel has a cost, so TVM compiles everything; the first reason: {reason}"
        warn(text)


def _has_candidates(func: ir.BaseFunc) -> TypeGuard[relax.Function]:
    return isinstance(func, relax.Function) and CANDIDATES.on(func)
