"""Which kernels of TVM to tune, and what the costs are then.

A kernel is tuned if it lies in a plan that is the cheapest one as long as each kernel not tuned yet costs no more than
its lower bound. So when this ends, no schedule that tuning might have found for the others makes a cheaper plan; and a
kernel with which no plan can beat the best known one is never tuned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tvm import relax

from ..annotations import CANDIDATES
from ..backends.registry import get
from ..graph import DataflowGraph
from ..plan.costs import Cost, Costs
from ..plan.problem import problem_of
from ..search import NoCover, Problem, best_throughs, cheapest_cover
from .model import CostModel, TunedCost, Workload


class _Plans:
    """The search problem of one function, for one cost after the other."""

    def __init__(self, func: relax.Function, costs: Costs):
        self._graph = DataflowGraph(func)
        self._candidates = CANDIDATES.read(func)
        self._costs = costs

    def problem(self, seconds: Mapping[str, float]) -> Problem:
        """With these costs in place of some of the known ones."""
        by_key = {
            key: Cost(seconds[key]) if key in seconds else cost for key, cost in self._costs.by_key.items()
        }
        return problem_of(self._graph, self._candidates, replace(self._costs, by_key=by_key))

    def keys(self, ids: Iterable[int]) -> list[str]:
        """The cost keys of these candidates, each once."""
        return list(dict.fromkeys(self._costs.keys[id_] for id_ in ids))


def tuned_costs(
    func: relax.Function, costs: Costs, asked: Mapping[int, Workload], model: CostModel, trials: int
) -> tuple[Costs, dict[str, str]]:
    """``costs`` with the tuned costs that are lower, and the traces of those by kernel.

    A candidate whose tuned schedule is faster gets that schedule's key.
    """
    plans = _Plans(func, costs)
    workloads = {w.key: w for w in asked.values() if get(w.backend).codegen is None}
    costed = [w for key, w in workloads.items() if costs.by_key[key].seconds is not None]
    try:
        hopeful = promising(plans, model.lower_bounds(costed))
    except NoCover:  # SearchPartition says why
        return costs, {}
    won: dict[str, TunedCost] = {}
    with model.tuning(trials) as tuning:
        while (key := _next(plans, hopeful, won, costs)) is not None:
            del hopeful[key]
            found = tuning.tuned(workloads[key])
            if found is not None:
                won[key] = found
    return _with_tuned(costs, won), {cost.kernel: cost.trace for cost in won.values()}


def promising(plans: _Plans, bounds: Mapping[str, float]) -> dict[str, float]:
    """Of the kernels with these lower bounds, those that are in a cheaper plan if all of them cost no more."""
    best = cheapest_cover(plans.problem({})).seconds
    hoped = plans.problem(bounds)
    throughs = best_throughs(hoped, cheapest_cover(hoped).seconds)
    kept = plans.keys(id_ for id_, through in throughs.items() if through.seconds < best)
    return {key: bounds[key] for key in kept if key in bounds}


def _next(
    plans: _Plans, hopeful: Mapping[str, float], won: Mapping[str, TunedCost], costs: Costs
) -> str | None:
    """Of the kernels in the plan that is cheapest if tuning does all it can, the one that may gain most."""
    known = {key: cost.cost.seconds for key, cost in won.items() if cost.cost.seconds is not None}
    plan = cheapest_cover(plans.problem({**known, **hopeful}))
    wanted = [key for key in plans.keys(option.id for option in plan.chosen) if key in hopeful]
    return max(wanted, key=lambda key: (costs.by_key[key].seconds or 0.0) - hopeful[key], default=None)


def _with_tuned(costs: Costs, won: Mapping[str, TunedCost]) -> Costs:
    keys = {id_: won[key].workload.key if key in won else key for id_, key in costs.keys.items()}
    by_key = {won[key].workload.key if key in won else key: cost for key, cost in costs.by_key.items()}
    return replace(costs, by_key=by_key | {p.workload.key: p.cost for p in won.values()}, keys=keys)
