"""EstimateCostsOfPrograms: measure the kernels of candidate programs within a budget, the most important first.

Reads    ``collage.candidates``, from AnnotateCandidates.
Writes   ``collage.costs``, for SearchPartition and the comparison of programs.
Keeps    every binding: this pass changes attributes only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS
from ..cost.lazy import lazy_costs
from ..cost.model import CostModel
from ..errors import NoPlan
from ..feedback.candidates import alone
from ..graph import DataflowGraph
from ..plan.costs import UNKNOWN, Cost, Costs
from ..plan.problem import problem_of, why_no_cover
from ..search import NoCover, Problem
from ..search.auto import solve

Make = Callable[[Costs], Problem]


@tvm.transform.module_pass(opt_level=0, name="collage.EstimateCostsOfPrograms")
@dataclass(frozen=True)
class EstimateCostsOfPrograms:
    """Measure the kernels that can be in our plan, then those of the greedy plan, then those of each backend alone.

    It replaces EstimateCosts where there is a budget. Each step is a lazy search, and what it does not measure has no
    cost.
    """

    model: CostModel
    priority: tuple[str, ...]
    """The backends in preference order."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        functions = {
            gvar: COSTS.write(func, self._costs(func))
            if isinstance(func, relax.Function) and CANDIDATES.on(func)
            else func
            for gvar, func in mod.functions_items()
        }
        return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)

    def _costs(self, func: relax.Function) -> Costs:
        graph, candidates = DataflowGraph(func), CANDIDATES.read(func)

        def make(costs: Costs) -> Problem:
            return problem_of(graph, candidates, costs)

        try:
            costs = lazy_costs(func, self.model, make, solve)
        except NoCover as error:
            raise NoPlan(why_no_cover(graph, error.index, candidates)) from None
        for more in self._of_others(func, make):
            costs = replace(
                costs, by_key={key: _better(cost, more.by_key[key]) for key, cost in costs.by_key.items()}
            )
        return costs

    def _of_others(self, func: relax.Function, make: Make) -> list[Costs]:
        """Costs with the kernels of the other candidate programs, as far as they have a plan and time is left."""

        def greedy(problem: Problem):
            return solve(problem, "greedy", priority=self.priority)

        found: list[Costs] = []
        searches = [(make, greedy)]
        searches += [(lambda costs, name=name: alone(make(costs), name), solve) for name in self.priority]
        for variant, search in searches:
            try:
                found.append(lazy_costs(func, self.model, variant, search, throughs=None))
            except NoCover:
                continue
        return found


def _better(one: Cost, other: Cost) -> Cost:
    """The cost that says more: one with seconds first, then one with a reason other than the budget, then a bound."""
    return min(
        one, other, key=lambda cost: (cost.seconds is None, cost.bound is not None, cost.origin == UNKNOWN)
    )
