"""SearchPartition: choose the cheapest cover and outline its kernels.

Reads    ``collage.candidates`` and ``collage.costs``; without costs it asks the ``estimator``.
Writes   the chosen kernels, outlined as by :mod:`.apply_plan`; ``collage.plan`` with its certificate;
         ``collage.explanation`` if requested. Removes the attributes that it read.
Keeps    what the program computes; bindings that are in no chosen kernel.

A function of which no kernel was measured, since the time was used up, gets kernels by rule (:mod:`.choose_by_rule`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS, DECLINED, EXPLANATION, PLAN, UNRECOGNISED
from ..backends.registry import excluding, known
from ..cost.lazy import Search, lazy_costs
from ..cost.model import CostModel
from ..devices.table import label_of
from ..errors import NoPlan
from ..graph import DataflowGraph
from ..graph.devices import key_of, listed
from ..lowering.apply import Functions, applied
from ..lowering.by_rule import applied_unmeasured, is_unmeasured
from ..lowering.kernel_texts import with_scripts
from ..lowering.outline import NameSupply
from ..plan.candidate import Candidate, DeclinedBinding
from ..plan.check import GIVEN, Finding, checked
from ..plan.check_function import why_another_function, why_other_threads
from ..plan.costs import Costs
from ..plan.decision import plan_of
from ..plan.explanation import Explanation
from ..plan.instance import unpacked
from ..plan.memory_plan import within_memory
from ..plan.plan import Plan, PlannedKernel
from ..plan.posed import PosedSample, posed, posed_samples
from ..plan.problem import optimistic, problem_of, why_no_cover
from ..plan.regrets import explanation_of
from ..search import NoCover, Problem, Solution, best_throughs, best_withouts
from ..search.alternatives import seconds_of
from ..search.auto import certified, solve
from ..search.certificate import Certificate, at_least, certificate_of
from ..search.memory_bounded import MemoryGoal
from ..search.ties import tied_with, with_ties_broken
from ..target import devices_of


@tvm.transform.module_pass(opt_level=0, name="collage.SearchPartition")
@dataclass(frozen=True)
class SearchPartition:
    """Choose the kernels with the least sum of costs, launches and transitions."""

    algorithm: str = "auto"
    """``exact``, ``milp``, ``greedy``, ``evolutionary`` or ``auto``. The last is exact within the budget, and returns
    the best plan with its gap beyond that."""
    redundant: bool = True
    """Whether several kernels may compute an operator where that is cheaper."""
    max_states: int = 2_000_000
    """How many states of each function the search visits at most."""
    seconds: float = 60.0
    """The time limit of the search for each function, without measuring."""
    estimator: CostModel | None = None
    """The cost model that the search asks for costs that can still change the plan; not used if there are costs."""
    assume_fusion_pays: bool = False
    """Whether to measure far less, on the assumption that one kernel costs less than its parts (as Relay Collage did).
    It does not always hold, so the plan is not proved, and its gap is larger."""
    settle_ties: bool = True
    """Whether kernels with overlapping intervals count as equally fast. Then the plan with the fewest transitions, the
    fewest kernels, and the backends that come first is chosen. Ignored with ``greedy``."""
    explain: bool = False
    """Whether to find the cheapest plan with every other candidate, and write ``collage.explanation``."""
    memory: MemoryGoal | None = None
    """The goal for the bytes that a plan holds; None: no goal.

    The pass raises NoPlan if no plan under a limit is found, and says whether one exists.
    """

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        functions: dict[relax.GlobalVar, tvm.ir.BaseFunc] = {}
        names = NameSupply(mod)
        for gvar, func in mod.functions_items():
            if isinstance(func, relax.Function) and CANDIDATES.on(func):
                partitioned, outlined = self._partitioned(func, mod, names)
                functions.update({gvar: partitioned, **outlined})
            else:
                functions[gvar] = func
        result = IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
        return relax.transform.Normalize()(result)

    def _partitioned(
        self, func: relax.Function, mod: IRModule, names: NameSupply
    ) -> tuple[relax.Function, Functions]:
        """``func`` of ``mod`` with its cheapest cover outlined, and the new functions."""
        graph = DataflowGraph(func, mod)
        func = self._costed(graph, mod)
        if is_unmeasured(func) and self.memory is None:
            return applied_unmeasured(graph, COSTS.read(func), names)
        problem, whole, cheapest = self._searched(graph, func)
        certificate = certified(whole, cheapest)
        candidates = {candidate.id: candidate for candidate in CANDIDATES.read(func)}
        solution, said = self._settled(problem, cheapest, list(candidates.values())), ""
        if self.memory is not None:
            plans = (cheapest, solution)
            solution, said = within_memory(graph, problem, plans, candidates.values(), self.memory)
            if solution not in plans:
                certificate = certificate_of(whole, solution, certificate.proof)
        result, groups, outlined = applied(graph, [candidates[o.id] for o in solution.chosen], names)
        functions, ties = [group.name for group in groups], tied_with(problem, solution)
        explanation = None
        if self.explain:
            explanation = with_scripts(
                _explanation(graph, func, problem, solution, certificate, functions, ties),
                {gvar.name_hint: outlined[gvar] for gvar in outlined},
            )
            result = EXPLANATION.write(result, explanation)
        plan = plan_of(
            graph,
            solution,
            candidates,
            COSTS.read(func),
            functions,
            declined=_declined(func),
            explanation=explanation,
            certificate=certificate,
            problem=whole,
            ties=ties,
            doubt=0.0 if said else self._doubt(graph, list(candidates.values()), COSTS.read(func), solution),
        )
        if said:
            plan = replace(plan, remarks=(*plan.remarks, said))
        return PLAN.write(result, _on_devices(plan, graph, candidates, mod)), outlined

    def _settled(self, problem: Problem, cheapest: Solution, candidates: Sequence[Candidate]) -> Solution:
        """The plan to prefer among those that tie with the cheapest; backends rank in the order of their candidates."""
        if not self.settle_ties or self.algorithm == "greedy":
            return cheapest
        return with_ties_broken(problem, cheapest, [candidate.backend for candidate in candidates])

    def _costed(self, graph: DataflowGraph, mod: IRModule) -> relax.Function:
        """The function with its costs, or with those that the search asks the estimator for."""
        func = graph.func
        if COSTS.on(func) or self.estimator is None:
            return func
        candidates = CANDIDATES.read(func)

        def make(costs: Costs) -> Problem:
            return problem_of(graph, candidates, costs, self.redundant)

        try:
            return COSTS.write(func, self._lazy_costs(func, make, mod))
        except NoCover as error:
            excluded = excluding(candidate.backend for candidate in candidates)
            raise NoPlan(why_no_cover(graph, error.index, candidates, exclusions=excluded)) from None

    def _lazy_costs(self, func: relax.Function, make: Callable[[Costs], Problem], mod: IRModule) -> Costs:
        assert self.estimator is not None
        search = Search(make, self._solved, assume_fusion_pays=self.assume_fusion_pays)
        return lazy_costs(func, self.estimator, search, mod)

    def _searched(self, graph: DataflowGraph, func: relax.Function) -> tuple[Problem, Problem, Solution]:
        """The search problem of the annotations of ``func``, the one with all candidates, and the solution.

        Raises NoPlan.

        Candidates that were not measured are not options of the first problem, but plans with them may be cheaper: in
        the second one they cost their lower bounds. For the bound of the solution so do those with guessed costs.
        """
        candidates, costs = CANDIDATES.read(func), COSTS.read(func)
        problem = problem_of(graph, candidates, costs, self.redundant)
        try:
            solution = self._solved(problem)
        except NoCover as error:
            raise NoPlan(why_no_cover(graph, error.index, candidates, costs)) from None
        whole, bound = optimistic(graph, candidates, costs, problem), solution.lower_bound
        least = at_least(whole)
        if least.options != problem.options:
            bound = self._solved(least).lower_bound
        return problem, whole, replace(solution, lower_bound=min(bound, solution.seconds))

    def _doubt(
        self, graph: DataflowGraph, candidates: Sequence[Candidate], costs: Costs, solution: Solution
    ) -> float:
        """The regret of ``solution``, as a part of its cost, if doubtful costs are wrong by their intervals.

        The kernels of the plan are assumed to cost the most, and all others the least, that their intervals allow.
        This is the worst case if no other plan calls a kernel of this one more often.
        """
        if not any(cost.is_doubtful for cost in costs.by_key.values()):
            return 0.0
        chosen = {costs.keys[option.id] for option in solution.chosen}
        worst = {
            key: replace(cost, seconds=cost.high if key in chosen else cost.low) if cost.is_doubtful else cost
            for key, cost in costs.by_key.items()
        }
        problem = problem_of(graph, candidates, replace(costs, by_key=worst), self.redundant)
        ids = {option.id for option in solution.chosen}
        ours = seconds_of(problem, [option for option in problem.options if option.id in ids])
        best = self._solved(problem).seconds
        return max(0.0, 1.0 - best / ours) if ours else 0.0

    def _solved(self, problem: Problem) -> Solution:
        return solve(
            problem,
            self.algorithm,
            max_states=self.max_states,
            seconds=self.seconds,
            priority=tuple(known()),
        )


def _on_devices(plan: Plan, graph: DataflowGraph, candidates: Mapping[int, Candidate], mod: IRModule) -> Plan:
    """The plan with the device of each kernel, which is that of what it computes, if the module lists several."""
    devices = listed(mod)
    if len(devices) < 2:
        return plan
    labels = {key_of(device): label_of(devices, index) for index, device in enumerate(devices)}

    def placed(kernel: PlannedKernel) -> PlannedKernel:
        last = graph.nodes[max(candidates[kernel.candidate].indexes)].var
        found = next(devices_of(last.ty), None)
        return kernel if kernel.device or found is None else replace(kernel, device=labels[key_of(found)])

    return replace(plan, kernels=tuple(map(placed, plan.kernels)))


def _declined(func: relax.Function) -> tuple[DeclinedBinding, ...]:
    return DECLINED.read(func) if DECLINED.on(func) else ()


def _explanation(
    graph: DataflowGraph,
    func: relax.Function,
    problem: Problem,
    solution: Solution,
    certificate: Certificate,
    functions: Sequence[str],
    ties: Mapping[int, tuple[tuple[int, ...], ...]],
) -> Explanation:
    """Why ``solution`` was chosen; the ``certificate`` is of the cheapest plan, before ties were settled."""
    return explanation_of(
        graph,
        problem,
        solution,
        CANDIDATES.read(func),
        COSTS.read(func),
        best_throughs(problem, certificate.seconds),
        best_withouts(problem, replace(solution, seconds=certificate.seconds)),
        functions,
        ties,
        _declined(func),
        UNRECOGNISED.read(func) if UNRECOGNISED.on(func) else (),
        certificate,
    )


def why_not_plan(costed: relax.Function, partitioned: relax.Function) -> str | None:
    """What is wrong with ``collage.plan`` of ``partitioned``, or None.

    ``costed``: the same function after EstimateCosts. The problem is built again from its candidates and costs, the
    plan must answer that problem, and its certificate is checked against it.
    """
    plan = PLAN.read(partitioned)
    if plan.certificate is None:
        return GIVEN
    if not plan.problem:
        return "the plan does not carry the problem that it answers"
    finding = checked_for(costed, plan)
    return None if finding.holds else finding.text


def checked_for(costed: relax.Function, plan: Plan) -> Finding:
    """The checker's verdict on the ``plan`` of a function, with that function after EstimateCosts.

    Raises InvalidAnnotation if the problem of the plan cannot be read.
    """
    redundant = unpacked(plan.problem).redundant if plan.problem else True
    finding = checked(plan, stated_problem(costed, redundant), stated_samples(costed, redundant))
    if finding.holds and plan.certificate is not None:
        candidates = CANDIDATES.read(costed)
        reason = why_another_function(plan, DataflowGraph(costed), candidates)
        reason = reason or why_other_threads(plan, candidates)
        return finding if reason is None else Finding(False, f"does not hold: {reason}")
    return finding


def stated_problem(func: relax.Function, redundant: bool = True) -> Problem:
    """The search problem that the annotations of ``func`` state, made without the code that the search uses."""
    return posed(DataflowGraph(func), CANDIDATES.read(func), COSTS.read(func), redundant)


def stated_samples(func: relax.Function, redundant: bool = True) -> list[PosedSample]:
    """The problems that the annotations of ``func`` state for each of its sample sizes; empty where it has none."""
    if not COSTS.read(func).samples:
        return []
    return posed_samples(DataflowGraph(func), CANDIDATES.read(func), COSTS.read(func), redundant)
