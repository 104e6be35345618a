"""EstimateNeededCosts: give every candidate that may be in the cheapest plan a cost, and the others a lower bound.

Reads    ``collage.candidates``, from AnnotateCandidates; ``collage.costs``, if there are some already.
Writes   ``collage.costs``, for SearchPartition and the comparison of programs.
Keeps    every binding: this pass changes attributes only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import tvm
from tvm import ir, relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS
from ..backends.registry import excluding
from ..cost.asking import workloads
from ..cost.expected import with_expected
from ..cost.lazy import Search, lazy_costs
from ..cost.model import CostModel
from ..cost.shares import with_shares
from ..cost.siblings import expected_costs
from ..errors import NoPlan
from ..feedback.candidates import alone
from ..feedback.settings import BY_DEFAULT
from ..graph import DataflowGraph
from ..measure.choices import why_costs_matter, without_costs
from ..measure.measured import MeasuredCost
from ..plan.costs import EXPECTED, UNKNOWN, Cost, Costs, without_bounds
from ..plan.problem import problem_of, why_no_cover
from ..search import NoCover, Problem, Solution
from ..search.auto import solve


@tvm.transform.module_pass(opt_level=0, name="collage.EstimateNeededCosts")
@dataclass(frozen=True)
class EstimateNeededCosts:
    """Measure only what can still change the plan; the same plan is found, and proved, as after EstimateCosts.

    A candidate that was not measured has a lower bound, and the least cost of a plan with it. If the time is used up
    before each operator is in a measured kernel, the others get kernels with expected costs. Costs that are there
    already do not change, so the pass can run again after one that corrects costs.
    """

    model: CostModel = field(default_factory=MeasuredCost)
    """The source of costs."""
    programs: tuple[str, ...] = ()
    """Backends in preference order: also measure the kernels of the greedy plan, and of the plan of each of these
    backends alone."""
    hopeless: float = BY_DEFAULT.hopeless
    """The plan of one backend alone is measured until it is certain that it costs this many times ours."""
    only_choices: bool = False
    """Whether nothing is measured for a function in which nothing has to be chosen (:mod:`..measure.choices`)."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        done: list[relax.Function] = []

        def change(func: ir.BaseFunc) -> ir.BaseFunc:
            if not isinstance(func, relax.Function) or not CANDIDATES.on(func):
                return func
            changed = COSTS.write(func, self._costs(func, mod, done))
            done.append(changed)
            return changed

        return _with_bounds_that_hold(_with_costs_of_others(with_shares(mod, self.model, change)))

    def _costs(self, func: relax.Function, mod: IRModule, siblings: Sequence[relax.Function]) -> Costs:
        if self.only_choices and why_costs_matter(func, mod) is None:
            return without_costs(func)
        graph, candidates = DataflowGraph(func), CANDIDATES.read(func)
        known = _measured(COSTS.read(func)) if COSTS.on(func) else {}

        def make(costs: Costs) -> Problem:
            return problem_of(graph, candidates, costs)

        try:
            expected = expected_costs(func, siblings, self.model, mod)
            search = Search(make, known=known, expected=expected, guesses=True)
            costs = lazy_costs(func, self.model, search, mod)
        except NoCover as error:
            excluded = excluding(candidate.backend for candidate in candidates)
            raise NoPlan(why_no_cover(graph, error.index, candidates, exclusions=excluded)) from None
        if self.programs:
            best = solve(make(costs)).seconds
            asked = {workload.key: workload for workload in workloads(func, self.model, mod).values()}
            # These are measured if another plan has them.
            again = self.model.doubtful(list(asked.values()))
            sure = {key: cost for key, cost in _measured(costs).items() if key not in again}
            for search in self._others(make, self.hopeless * best, {**known, **sure}):
                costs = self._with_more(func, costs, search, mod)
        costs = with_expected(func, costs, workloads(func, self.model, mod), self.model, make)
        return replace(costs, skipped=COSTS.read(func).skipped) if COSTS.on(func) else costs

    def _others(
        self, make: Callable[[Costs], Problem], enough: float, known: Mapping[str, Cost]
    ) -> Iterator[Search]:
        """The searches for the plans of the other candidate programs."""

        def greedy(problem: Problem) -> Solution:
            return solve(problem, "greedy", priority=self.programs)

        yield Search(make, greedy, None, known=known)
        for name in self.programs:
            yield Search(
                lambda costs, name=name: alone(make(costs), name), throughs=None, known=known, enough=enough
            )

    def _with_more(self, func: relax.Function, costs: Costs, search: Search, mod: IRModule) -> Costs:
        """``costs``, and those that another search has measured, if it has a plan."""
        try:
            more = lazy_costs(func, self.model, search, mod)
        except NoCover:
            return costs
        by_key = {
            key: cost if key in search.known else _latest(cost, more.by_key[key])
            for key, cost in costs.by_key.items()
        }
        both = replace(costs, by_key=by_key)
        return without_bounds(both, more.failed) if more.failed else both


def _with_costs_of_others(mod: IRModule) -> IRModule:
    """``mod`` where an open cost of a function is the one that another function has asked for.

    The next compile knows it from the start. So both have the same costs, and find the same plan.
    """
    of_function = COSTS.by_function(mod)
    if len(of_function) < 2:
        return mod
    found = {key: cost for costs in of_function.values() for key, cost in _measured(costs).items()}

    def completed(costs: Costs) -> Costs:
        by_key = {key: found.get(key, cost) if cost.is_open else cost for key, cost in costs.by_key.items()}
        return replace(costs, by_key=by_key)

    functions = {
        gvar: COSTS.write(func, completed(COSTS.read(func)))
        if isinstance(func, relax.Function) and COSTS.on(func)
        else func
        for gvar, func in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _with_bounds_that_hold(mod: IRModule) -> IRModule:
    """``mod`` without lower bounds if a kernel of some function costs less than its own: all are of one machine."""
    failed = [key for costs in COSTS.by_function(mod).values() for key in costs.failed]
    if not failed:
        return mod
    functions = {
        gvar: COSTS.write(func, without_bounds(COSTS.read(func), failed))
        if isinstance(func, relax.Function) and COSTS.on(func)
        else func
        for gvar, func in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _measured(costs: Costs) -> dict[str, Cost]:
    """The costs, and the refusals, that are known."""
    return {key: cost for key, cost in costs.by_key.items() if not cost.is_open and cost.origin != EXPECTED}


def _latest(one: Cost, other: Cost) -> Cost:
    """``other`` if it is measured or refused, since ``one`` may be what was to be measured again; else the better."""
    return _better(one, other) if other.is_open or other.origin == EXPECTED else other


def _better(one: Cost, other: Cost) -> Cost:
    """The more certain of two costs, in this order: measured, a reason other than the budget, expected, a bound."""
    return min(
        one,
        other,
        key=lambda cost: (
            cost.is_open,
            cost.origin == EXPECTED,
            cost.seconds is None,
            cost.origin == UNKNOWN,
        ),
    )
