"""Lazy costs of a function's candidates: only those are measured that can still change the plan.

EstimateCosts measures all candidates beforehand. Without ``collage.costs`` SearchPartition calls this while it
searches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tvm import relax
from tvm.ir import IRModule

from ..plan.costs import EXPECTED, UNKNOWN, Cost, Costs, without_bounds
from ..search.auto import quick
from ..search.lazy import Answer, LazySearch, LazySolution
from ..search.problem import Problem, Solution
from ..search.throughs import Through, best_throughs
from .asking import costs_of, workloads
from .expected import guessed
from .model import CostModel, Workload

Throughs = Callable[[Problem, float], Mapping[int, Through]]


@dataclass(frozen=True)
class Search:
    """How to search for a plan while costs are measured."""

    make: Callable[[Costs], Problem]
    """Returns the search problem for given costs."""
    solve: Callable[[Problem], Solution] = quick
    """Finds its cheapest plan."""
    throughs: Throughs | None = best_throughs
    """Finds the least cost of a plan with each candidate, for the reasons of those that were not measured."""
    known: Mapping[str, Cost] = field(default_factory=dict[str, Cost])
    """Known costs by key, for which the cost model is not asked."""
    enough: float = math.inf
    """Seconds: see :class:`LazySearch`."""
    assume_fusion_pays: bool = False
    """See :class:`LazySearch`."""
    expected: Mapping[str, float] = field(default_factory=dict[str, float])
    """See :class:`LazySearch`; by key. A kernel for which no time is left has this cost."""
    guesses: bool = False
    """Whether to measure the plan first that is the cheapest by guessed costs (:func:`.expected.guessed`)."""


def lazy_costs(func: relax.Function, model: CostModel, search: Search, mod: IRModule | None = None) -> Costs:
    """Costs with which the cheapest plan is a cheapest plan of all candidates.

    A candidate that need not be measured has a cost without seconds: it has a lower bound, and its reason gives the
    least cost of a plan with the candidate. Without lower bounds of the cost model they are 0. So are all of them after
    a cost below its bound. ``mod`` has the PrimFuncs that ``func`` calls.

    Raises NoCover.
    """
    return lazily(func, workloads(func, model, mod), model, search)


def lazily(func: relax.Function, asked: Mapping[int, Workload], model: CostModel, search: Search) -> Costs:
    """:func:`lazy_costs` of candidates for which these workloads are asked, by candidate id."""
    keys = {candidate: workload.key for candidate, workload in asked.items()}
    overheads = model.overheads(list(dict.fromkeys(workload.backend for workload in asked.values())))
    by_key = {workload.key: workload for workload in asked.values()}
    given = {key: cost for key, cost in search.known.items() if key in by_key}
    # Costs that were measured before are used from the start: so what a compile measures is enough for the next one.
    known = given | model.known(list(by_key.values()))
    measurer = _Measurer(model, by_key, known | given, search.expected)

    def problem(answers: Mapping[str, Answer]) -> Problem:
        assumed = {key: _assumed(answer) for key, answer in answers.items()} | given
        return search.make(costs_of(func, assumed, keys, overheads))

    found = LazySearch(
        keys,
        measurer.bounds,
        problem,
        measurer.measure,
        search.solve,
        search.assume_fusion_pays,
        {key: _answer(cost) for key, cost in known.items()},
        search.enough,
        lambda answers: _expected(search, by_key, measurer.bounds, answers),
        measurer.rest,
    ).run()
    through: Mapping[int, Through] = {}
    if search.throughs and found.bounds:
        through = search.throughs(found.problem, found.solution.seconds)
    costs = measurer.all_costs({key: _not_measured(key, keys, found, through) for key in found.bounds})
    answer = costs_of(func, costs, keys, overheads)
    return without_bounds(answer, found.failed) if found.failed else answer


class _Measurer:
    """Asks a cost model for the costs that the search wants, and caches them."""

    def __init__(
        self,
        model: CostModel,
        by_key: Mapping[str, Workload],
        known: Mapping[str, Cost],
        expected: Mapping[str, float],
    ):
        self._model = model
        self._by_key = by_key
        self._expected = expected
        self._costs = dict(known)
        self.bounds = model.lower_bounds(list(by_key.values()))

    def measure(self, wanted: Sequence[str]) -> dict[str, Answer]:
        """The costs of these keys in seconds, or reasons; once the time is used up, of all keys that are known.

        A key for which no time was left costs what is expected of it.
        """
        found = self._model.costs([self._by_key[key] for key in wanted])
        if any(cost.origin == UNKNOWN for cost in found.values()):
            rest = [key for key in self._by_key if key not in self._costs and key not in found]
            found |= self._model.costs([self._by_key[key] for key in rest])
        for key, cost in found.items():
            if cost.origin == UNKNOWN:
                expected = self._expected.get(key)
                if expected is None:
                    found[key] = replace(cost, bound=self.bounds[key])
                else:
                    found[key] = Cost(expected, origin=EXPECTED, bound=self.bounds[key])
        self._costs |= found
        return {key: _answer(cost) for key, cost in found.items()}

    def rest(self, keys: Sequence[str]) -> dict[str, Answer]:
        """The doubtful costs of these keys. A later compile that may not measure begins with them: it must find the
        same plan."""
        doubtful = self._model.doubtful([self._by_key[key] for key in keys])
        found = {key: cost for key, cost in doubtful.items() if cost.seconds is not None}
        self._costs |= found
        return {key: _answer(cost) for key, cost in found.items()}

    def all_costs(self, others: Mapping[str, Cost]) -> dict[str, Cost]:
        """The cost of every key: the measured one, else that of ``others``."""
        return {key: self._costs.get(key) or others[key] for key in self._by_key}


def _expected(
    search: Search, asked: Mapping[str, Workload], bounds: Mapping[str, float], answers: Mapping[str, Answer]
) -> dict[str, float]:
    """The expected seconds of kernels without an answer."""
    if not search.guesses:
        return dict(search.expected)
    measured = {key: answer for key, answer in answers.items() if not isinstance(answer, str)}
    return {**guessed(asked.values(), bounds, measured), **search.expected}


def _answer(cost: Cost) -> Answer:
    return cost.reason if cost.seconds is None else cost.seconds


def _assumed(answer: Answer) -> Cost:
    return Cost(None, reason=answer) if isinstance(answer, str) else Cost(answer, answer, answer)


def _not_measured(
    key: str, keys: Mapping[int, str], found: LazySolution, throughs: Mapping[int, Through]
) -> Cost:
    """The cost of a key that was not measured, with the reason why it cannot change the plan."""
    bound = found.bounds[key]
    with_it = [throughs[id_].seconds for id_, other in keys.items() if other == key and id_ in throughs]
    least = "probably at least" if found.failed else "at least"
    reason = f"not measured: it costs {least} {bound * 1e6:.4g} us"
    if with_it:
        reason += f", and a plan with it {least} {min(with_it) * 1e6:.4g} us"
    reason += f"; the plan that was found costs {found.solution.seconds * 1e6:.4g} us"
    return Cost(None, reason=reason, origin="formula", bound=bound)
