"""ChooseByRule: give each library what it takes, in order of preference, and TVM the rest; no costs are needed.

Reads    ``collage.candidates``, from AnnotateCandidates.
Writes   the chosen kernels, outlined as by :mod:`.apply_plan`; ``collage.plan`` without costs. Removes the attributes
         that it read.
Keeps    what the program computes; bindings that are in no chosen kernel, which FuseRemaining groups as TVM does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, DECLINED, PLAN
from ..backends.registry import excluding, known
from ..errors import NoPlan
from ..graph import DataflowGraph
from ..lowering.apply import Functions, applied
from ..lowering.outline import NameSupply
from ..plan.candidate import VIEW, Candidate
from ..plan.costs import Cost, Costs
from ..plan.decision import plan_of
from ..plan.problem import possible_without_kernels, problem_of, why_no_cover
from ..search import NoCover, Problem
from ..search.greedy import greedy_cover

BY_RULE = "rule"
"""The ``algorithm`` of such a plan, and the origin of the values in place of its costs."""

_REMARK = "chosen by rule: nothing was measured, so it is not known which kernels are fast"
_TVM = "tvm"


@tvm.transform.module_pass(opt_level=0, name="collage.ChooseByRule")
@dataclass(frozen=True)
class ChooseByRule:
    """The backend that comes first takes all it can, its largest candidates first; then the next one.

    The partitioners of libraries work like this. TVM makes and groups what is left. Backends behind TVM in the order
    get only bindings that TVM cannot compile.
    """

    priority: tuple[str, ...] | None = None
    """Backends in preference order; None: the order of ``unity-collage backends``, TVM last."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        functions: dict[relax.GlobalVar, tvm.ir.BaseFunc] = {}
        names = NameSupply(mod)
        for gvar, func in mod.functions_items():
            if isinstance(func, relax.Function) and CANDIDATES.on(func):
                chosen, outlined = self._chosen(DataflowGraph(func, mod), names)
                functions.update({gvar: chosen, **outlined})
            else:
                functions[gvar] = func
        result = IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
        return relax.transform.Normalize()(result)

    def _chosen(self, graph: DataflowGraph, names: NameSupply) -> tuple[relax.Function, Functions]:
        func = graph.func
        candidates = CANDIDATES.read(func)
        libraries = tuple(name for name in known() if name != _TVM)
        priority = (*libraries, _TVM) if self.priority is None else self.priority
        by_id = {candidate.id: candidate for candidate in candidates}
        try:
            solution = greedy_cover(_problem(graph, candidates, priority), priority)
        except NoCover as error:
            raise NoPlan(why_no_cover(graph, error.index, candidates)) from None
        result, groups, outlined = applied(graph, [by_id[option.id] for option in solution.chosen], names)
        plan = plan_of(
            graph,
            replace(solution, seconds=0.0, lower_bound=0.0, algorithm=BY_RULE),
            by_id,
            _no_costs(candidates),
            [group.name for group in groups],
            declined=DECLINED.read(func) if DECLINED.on(func) else (),
        )
        return PLAN.write(result, replace(plan, remarks=(_REMARK, *plan.remarks))), outlined


def _problem(graph: DataflowGraph, candidates: Sequence[Candidate], priority: Sequence[str]) -> Problem:
    """The problem of the libraries' candidates, in which TVM gets for free what it can compile."""
    free = possible_without_kernels(graph)
    late = priority[priority.index(_TVM) :] if _TVM in priority else ()
    offered: list[Candidate] = []
    for candidate in candidates:
        inside = candidate.sub_graph(graph).inside
        if candidate.backend == VIEW or (candidate.backend not in (*late, _TVM)) or inside & ~free:
            offered.append(candidate)
    costs = Costs(
        {BY_RULE: Cost(1.0, 1.0, 1.0), VIEW: Cost(0.0)},
        {candidate.id: VIEW if candidate.backend == VIEW else BY_RULE for candidate in offered},
        exclusions=excluding(candidate.backend for candidate in offered),
    )
    return replace(problem_of(graph, offered, costs), free=free)


def _no_costs(candidates: Sequence[Candidate]) -> Costs:
    """Zero costs for all candidates, since none was measured."""
    nothing = Cost(None, origin=BY_RULE, reason="not measured: plans are chosen by rule", bound=0.0)
    return Costs({BY_RULE: nothing}, {candidate.id: BY_RULE for candidate in candidates})
