"""Which TVM kernels to tune, and the costs after that.

A kernel is tuned if it is in the plan that is cheapest when every kernel that is not tuned yet costs its lower bound.
So in the end no schedule of an untuned kernel could make a cheaper plan. A kernel that is in no plan cheaper than the
best known one is never tuned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tvm import relax

from ..annotations import CANDIDATES
from ..backends.registry import get
from ..graph import DataflowGraph
from ..plan.costs import Cost, Costs
from ..plan.problem import problem_of
from ..search import NoCover, Problem, best_throughs, quick
from .model import CostModel, TunedCost, Workload

_ANY = "any"
"""Stands for any tuned schedule."""


class _Plans:
    """The search problem of one function, for changing costs."""

    def __init__(self, func: relax.Function, costs: Costs):
        self._graph = DataflowGraph(func)
        self._candidates = CANDIDATES.read(func)
        self._costs = costs

    def problem(self, seconds: Mapping[str, float]) -> Problem:
        """The problem where these costs replace the known ones."""
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
    """``costs`` with the tuned costs that are lower, and the traces of those schedules by kernel.

    A candidate with a faster tuned schedule gets the key of that schedule.
    """
    plans = _Plans(func, costs)
    workloads = {w.key: w for w in asked.values() if get(w.backend).is_fused_by_tvm}
    costed = [w for key, w in workloads.items() if costs.by_key[key].seconds is not None]
    try:
        hopeful = promising(plans, _bounds(costed, model))
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


def _bounds(workloads: Sequence[Workload], model: CostModel) -> dict[str, float]:
    """Lower bounds of the costs with any schedule, by the key of the cost with the backend's own."""
    tuned = {workload.key: replace(workload, schedule=_ANY) for workload in workloads}
    found = model.lower_bounds(list(tuned.values()))
    return {key: found[workload.key] for key, workload in tuned.items()}


def promising(plans: _Plans, bounds: Mapping[str, float]) -> dict[str, float]:
    """The kernels, with their ``bounds``, that are in a cheaper plan if all of them cost their lower bounds."""
    best = quick(plans.problem({})).seconds
    hoped = plans.problem(bounds)
    throughs = best_throughs(hoped, quick(hoped).seconds, within=best)
    cheaper = plans.keys(id_ for id_, through in throughs.items() if through.seconds < best)
    return {key: bounds[key] for key in cheaper if key in bounds}


def _next(
    plans: _Plans, hopeful: Mapping[str, float], won: Mapping[str, TunedCost], costs: Costs
) -> str | None:
    """The kernel that may gain most, of those in the plan that is cheapest if tuning reaches the lower bounds."""
    known = {key: cost.cost.seconds for key, cost in won.items() if cost.cost.seconds is not None}
    plan = quick(plans.problem({**known, **hopeful}))
    wanted = [key for key in plans.keys(option.id for option in plan.chosen) if key in hopeful]
    return max(wanted, key=lambda key: (costs.by_key[key].seconds or 0.0) - hopeful[key], default=None)


def _with_tuned(costs: Costs, won: Mapping[str, TunedCost]) -> Costs:
    keys = {id_: won[key].workload.key if key in won else key for id_, key in costs.keys.items()}
    by_key = {won[key].workload.key if key in won else key: cost for key, cost in costs.by_key.items()}
    return replace(costs, by_key=by_key | {p.workload.key: p.cost for p in won.values()}, keys=keys)
