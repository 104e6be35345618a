"""SearchPartition: choose the cheapest cover and outline its kernels.

Reads    ``collage.candidates`` and ``collage.costs``; without the latter it asks ``estimator``.
Writes   the chosen kernels as :mod:`.apply_plan` outlines them; ``collage.plan`` on the function, with the certificate;
         ``collage.explanation`` if asked. Removes the attributes that it has used up.
Keeps    what the program computes; bindings that are left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS, DECLINED, EXPLANATION, PLAN, UNRECOGNISED
from ..backends.merging import merged_candidates
from ..backends.registry import known
from ..cost.asking import workloads
from ..cost.lazy import lazy_costs
from ..cost.model import CostModel
from ..errors import NoPlan
from ..graph import DataflowGraph
from ..lowering.apply import Functions, applied
from ..lowering.outline import NameSupply
from ..plan.candidate import Candidate
from ..plan.check import why_plan_does_not_hold
from ..plan.costs import UNKNOWN, Costs
from ..plan.decision import plan_of
from ..plan.problem import optimistic, problem_of, why_no_cover
from ..plan.regrets import explanation_of
from ..search import NoCover, Problem, Solution, best_throughs, best_withouts
from ..search.auto import certified, solve
from ..search.ties import with_ties_broken, tied_with


@tvm.transform.module_pass(opt_level=0, name="collage.SearchPartition")
@dataclass(frozen=True)
class SearchPartition:
    """Choose kernels so that the sum of their costs, launches and transitions is the least possible."""

    algorithm: str = "auto"
    """``exact``, ``milp``, ``greedy``, ``evolutionary``, or ``auto``: exact, and the best plan with its gap when the
    budget is spent."""
    redundant: bool = True
    """Whether an operator may be computed by several kernels where that is cheaper."""
    max_states: int = 2_000_000
    seconds: float = 60.0
    """The budget of the search for each function; measuring does not count."""
    estimator: CostModel | None = None
    """Asked for costs while the search runs: only what can still change the plan is measured. Where EstimateCosts has
    run it costs merged kernels only."""
    assume_fusion_pays: bool = False
    """Measure far less by assuming that one kernel costs less than its parts, as Relay Collage's pruning did. It is not
    always so: the plan is then not proved, and its gap says what is known."""
    settle_ties: bool = True
    """Whether kernels whose intervals overlap count as equally fast: the plan with the fewest transitions, kernels, and
    then the backends whose candidates come first is taken. Not with ``greedy``, which looks at preference alone."""
    merge: bool = True
    """Whether touching kernels of one backend are tried as one, if the backend can and there is an ``estimator``."""
    explain: bool = False
    """Whether to find out what every other candidate would have cost, and leave it as ``collage.explanation``."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        functions: dict[relax.GlobalVar, tvm.ir.BaseFunc] = {}
        names = NameSupply(mod)
        for gvar, func in mod.functions_items():
            if isinstance(func, relax.Function) and CANDIDATES.on(func):
                partitioned, outlined = self._partitioned(func, names)
                functions.update({gvar: partitioned, **outlined})
            else:
                functions[gvar] = func
        result = IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
        return relax.transform.Normalize()(result)

    def _partitioned(self, func: relax.Function, names: NameSupply) -> tuple[relax.Function, Functions]:
        """``func`` with its cheapest cover outlined, and the new functions."""
        graph = DataflowGraph(func)
        func = self._costed(graph)
        problem, cheapest = self._searched(graph, func)
        if self.merge and self.estimator is not None:
            more = self._with_merged(graph, func, cheapest)
            if more is not None:
                func = more
                problem, cheapest = self._searched(graph, func)
        candidates = {candidate.id: candidate for candidate in CANDIDATES.read(func)}
        costs = COSTS.read(func)
        solution = self._settled(problem, cheapest, list(candidates.values()))
        result, groups, outlined = applied(graph, [candidates[o.id] for o in solution.chosen], names)
        explanation, ties = None, tied_with(problem, solution)
        functions = [group.name for group in groups]
        declined = DECLINED.read(func) if DECLINED.on(func) else ()
        if self.explain:
            throughs = best_throughs(problem, cheapest.seconds)
            withouts = best_withouts(problem, replace(solution, seconds=cheapest.seconds))
            explanation = explanation_of(
                graph,
                problem,
                solution,
                list(candidates.values()),
                costs,
                throughs,
                withouts,
                functions,
                ties,
                declined,
                UNRECOGNISED.read(func) if UNRECOGNISED.on(func) else (),
            )
            result = EXPLANATION.write(result, explanation)
        plan = plan_of(
            graph,
            solution,
            candidates,
            costs,
            functions,
            declined=declined,
            explanation=explanation,
            certificate=certified(problem, cheapest),
            ties=ties,
        )
        return PLAN.write(result, plan), outlined

    def _settled(self, problem: Problem, cheapest: Solution, candidates: Sequence[Candidate]) -> Solution:
        """The plan among those that tie with the cheapest; backends are preferred in the order of their candidates."""
        if not self.settle_ties or self.algorithm == "greedy":
            return cheapest
        return with_ties_broken(problem, cheapest, [candidate.backend for candidate in candidates])

    def _costed(self, graph: DataflowGraph) -> relax.Function:
        """The function with costs: those that are there, or what the search asks the estimator for."""
        func = graph.func
        if COSTS.on(func) or self.estimator is None:
            return func
        candidates = CANDIDATES.read(func)

        def make(costs: Costs) -> Problem:
            return problem_of(graph, candidates, costs, self.redundant)

        try:
            return COSTS.write(func, self._lazy_costs(func, make))
        except NoCover as error:
            raise NoPlan(why_no_cover(graph, error.index, candidates)) from None

    def _lazy_costs(self, func: relax.Function, make: Callable[[Costs], Problem]) -> Costs:
        assert self.estimator is not None
        return lazy_costs(
            func, self.estimator, make, self._solved, assume_fusion_pays=self.assume_fusion_pays
        )

    def _searched(self, graph: DataflowGraph, func: relax.Function) -> tuple[Problem, Solution]:
        """The problem that the annotations of ``func`` pose, and its plan; raises NoPlan."""
        candidates, costs = CANDIDATES.read(func), COSTS.read(func)
        problem = problem_of(graph, candidates, costs, self.redundant)
        try:
            solution = self._solved(problem)
        except NoCover as error:
            raise NoPlan(why_no_cover(graph, error.index, candidates, costs)) from None
        bound = solution.lower_bound
        if any(cost.origin == UNKNOWN for cost in costs.by_key.values()):  # for want of time
            bound = self._solved(optimistic(graph, candidates, costs, problem)).lower_bound
        elif (
            costs.lower_bound is not None
        ):  # what was not measured is no option here: plans with it may be cheaper
            bound = min(bound, costs.lower_bound)
        return problem, replace(solution, lower_bound=min(bound, solution.seconds))

    def _with_merged(
        self, graph: DataflowGraph, func: relax.Function, solution: Solution
    ) -> relax.Function | None:
        """``func`` with merged kernels of the plan among its measured candidates; None if there are none."""
        assert self.estimator is not None
        known_ones, costs = CANDIDATES.read(func), COSTS.read(func)
        chosen = {option.id for option in solution.chosen}
        plan = [candidate for candidate in known_ones if candidate.id in chosen]
        merged = merged_candidates(graph, plan, first_id=1 + max((c.id for c in known_ones), default=0))
        if not merged:
            return None
        asked = workloads(CANDIDATES.write(func, tuple(merged)), self.estimator)
        by_key = {**costs.by_key, **self.estimator.costs(list(asked.values()))}
        keys = {**costs.keys, **{candidate: workload.key for candidate, workload in asked.items()}}
        more = replace(costs, by_key=by_key, keys=keys)
        return COSTS.write(CANDIDATES.write(func, (*known_ones, *merged)), more)

    def _solved(self, problem: Problem) -> Solution:
        return solve(
            problem,
            self.algorithm,
            max_states=self.max_states,
            seconds=self.seconds,
            priority=tuple(known()),
        )


def why_not_plan(costed: relax.Function, partitioned: relax.Function, redundant: bool = True) -> str | None:
    """What is wrong with ``collage.plan`` of ``partitioned``, or None.

    ``measured`` is the same function as EstimateCosts has left it: its candidates and costs pose the problem, the
    certificate in the plan is the answer. ``redundant`` as it was for SearchPartition.
    """
    problem = problem_of(DataflowGraph(costed), CANDIDATES.read(costed), COSTS.read(costed), redundant)
    return why_plan_does_not_hold(problem, PLAN.read(partitioned))
