"""The costs of a function's candidates, of which only those are measured that can still change the plan.

What EstimateCosts writes for all candidates beforehand, SearchPartition asks for here while it searches, if it
has an estimator and no ``collage.costs``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tvm import relax

from ..plan.costs import UNKNOWN, Cost, Costs
from ..search.exact import cheapest_cover
from ..search.lazy import Answer, LazySearch, LazySolution
from ..search.problem import Problem, Solution
from ..search.throughs import Through, best_throughs
from .asking import costs_of, workloads
from .model import CostModel

Throughs = Callable[[Problem, float], Mapping[int, Through]]


def lazy_costs(
    func: relax.Function,
    model: CostModel,
    make: Callable[[Costs], Problem],
    solve: Callable[[Problem], Solution] = cheapest_cover,
    throughs: Throughs | None = best_throughs,
    assume_fusion_pays: bool = False,
) -> Costs:
    """Costs of which a cheapest plan is a cheapest plan of all candidates.

    ``make`` is the search problem for given costs and ``solve`` finds a cheapest plan of it. A candidate that
    need not be measured has no cost: its cost carries its lower bound and says, by ``throughs`` if given, what the
    best plan with it costs at least. By default the lower bounds of a cost model are 0.

    ``lower_bound`` of the costs holds for plans of all candidates. The cost of the plan does not tell that if
    ``solve`` is no exact search, or if less is measured because fusion is assumed to pay
    (:class:`LazySearch`). Raises NoCover.
    """
    asked = workloads(func, model)
    by_key = {workload.key: workload for workload in asked.values()}
    keys = {candidate: workload.key for candidate, workload in asked.items()}
    charged = model.overheads(list(dict.fromkeys(workload.backend for workload in asked.values())))
    measured: dict[str, Cost] = {}

    def measure(wanted: Sequence[str]) -> dict[str, Answer]:
        found = model.costs([by_key[key] for key in wanted])
        if any(cost.origin == UNKNOWN for cost in found.values()):
            # The time is over: what else is known is asked for at once.
            found |= model.costs([by_key[key] for key in by_key if key not in measured | found])
        for key, cost in found.items():
            measured[key] = replace(cost, bound=bounds[key]) if cost.origin == UNKNOWN else cost
        return {key: _answer(cost) for key, cost in found.items()}

    def problem(answers: Mapping[str, Answer]) -> Problem:
        return make(costs_of(func, {key: _assumed(answer) for key, answer in answers.items()}, keys, charged))

    bounds = model.lower_bounds(list(by_key.values()))
    found = LazySearch(keys, bounds, problem, measure, solve, assume_fusion_pays).run()
    through = throughs(found.problem, found.solution.seconds) if throughs and found.bounds else {}
    open_costs = {key: _not_measured(key, keys, found, through) for key in found.bounds}
    if found.failed:  # then no bound is sure
        measured = {key: replace(c, bound=0.0) if c.origin == UNKNOWN else c for key, c in measured.items()}
    answers = {key: measured.get(key) or open_costs[key] for key in by_key}
    return replace(costs_of(func, answers, keys, charged), lower_bound=found.solution.lower_bound)


def _answer(cost: Cost) -> Answer:
    return cost.reason if cost.seconds is None else cost.seconds


def _assumed(answer: Answer) -> Cost:
    return Cost(None, reason=answer) if isinstance(answer, str) else Cost(answer, answer, answer)


def _not_measured(
    key: str, keys: Mapping[int, str], found: LazySolution, throughs: Mapping[int, Through]
) -> Cost:
    """Why the cost of ``key`` could not matter."""
    bound = found.bounds[key]
    with_it = [throughs[id_].seconds for id_, other in keys.items() if other == key and id_ in throughs]
    reason = f"not measured: it costs at least {bound * 1e6:.4g} us"
    if with_it:
        reason += f", and a plan with it at least {min(with_it) * 1e6:.4g} us"
    reason += f"; the plan that was found costs {found.solution.seconds * 1e6:.4g} us"
    return Cost(None, reason=reason, origin="formula", bound=bound)
