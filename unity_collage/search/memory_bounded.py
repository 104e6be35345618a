"""A cheap plan that holds few bytes: under a limit, or with a weight for each byte.

Two things are done, one after the other:

1. *Penalties.* The values that the last plan holds above the limit, or near its peak, cost some seconds more. So do
   options with scratch or packed copies. The search is repeated. This is a Lagrangian method: it finds plans quickly
   and proves nothing.
2. *Enumeration.* Plans are enumerated in the order of their seconds, by a best-first search whose bound of the rest is
   exact. It ends at the first plan after which none can be better. Then it is proved that this plan is the best, or
   that there is none. If its budget ends before, the best plan that was found is the result, and nothing is proved.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from ..index_set import members
from .camps import camps
from .exact import cheapest_cover
from .memory import Footprint, curve_of, least_bytes, live_at, peak_of
from .plans import solution_of
from .potentials import potentials_of
from .problem import NoCover, Option, Problem, Solution
from .spaces import space_of
from .states import DONE, State
from .walk import INFINITE, Budget, walk

_ROUNDS = 24
"""How often the penalties are raised."""

_ROUNDING = 1e-9
"""The relative error of a sum that is computed in another order."""

_NEAR = 0.9
"""Kernels above this part of the peak count as near to it."""


@dataclass(frozen=True, slots=True)
class MemoryGoal:
    """A goal for the bytes of a plan."""

    limit: int | None = None
    """The most bytes that it may hold."""
    seconds_per_byte: float = 0.0
    """The weight of each byte of the peak, in seconds."""

    def score(self, seconds: float, peak: int) -> float:
        """The score that is minimised; infinite above the limit."""
        return (
            INFINITE
            if self.limit is not None and peak > self.limit
            else seconds + self.seconds_per_byte * peak
        )


@dataclass(frozen=True, slots=True)
class BoundedPlan:
    """The answer to a :class:`MemoryGoal`."""

    solution: Solution | None
    """The best plan that was found; None: none is under the limit."""
    peak: int
    """Its bytes; without one the fewest bytes of a plan that was found."""
    is_proved: bool
    """Whether no plan is better; without a plan whether there is none under the limit."""
    plans: int
    """How many plans were enumerated."""


def memory_bounded(
    problem: Problem,
    footprint: Footprint,
    cheapest: Solution,
    goal: MemoryGoal,
    *,
    max_states: int = 300_000,
    max_plans: int = 20_000,
    seconds: float = 20.0,
) -> BoundedPlan:
    """The best plan for ``goal`` that is found within the budget; ``cheapest``: the plan of fewest seconds."""
    search = _MemorySearch(problem, footprint, goal, cheapest)
    if not search.can_be_better(cheapest.lower_bound):
        return search.answer(True, 0)
    deadline = time.monotonic() + seconds
    search.penalise(max_states, time.monotonic() + seconds / 2)
    return search.enumerate(max_states, max_plans, deadline)


class _MemorySearch:
    def __init__(self, problem: Problem, footprint: Footprint, goal: MemoryGoal, cheapest: Solution):
        self._problem, self._footprint, self._goal = problem, footprint, goal
        # The peak depends on the order of kernels, which is the same one for each plan then.
        self._cheapest = cheapest = replace(cheapest, chosen=_planned(problem, cheapest.chosen).chosen)
        self._least = least_bytes(problem, footprint)
        self._best: Solution | None = None
        self._best_score, self._peak = INFINITE, peak_of(problem, footprint, cheapest)
        self._consider(cheapest)

    def answer(self, is_proved: bool, plans: int) -> BoundedPlan:
        return BoundedPlan(self._best, self._peak, is_proved, plans)

    def can_be_better(self, seconds: float) -> bool:
        """Whether a plan of at least these seconds may have a better score than the best one, up to rounding."""
        return self._goal.score(seconds, self._least) < self._best_score * (1 - _ROUNDING)

    def _consider(self, plan: Solution) -> int:
        """Take a plan if it is the best one so far; its peak."""
        peak = peak_of(self._problem, self._footprint, plan)
        score = self._goal.score(plan.seconds, peak)
        if score < self._best_score:
            self._best, self._best_score, self._peak = plan, score, peak
        elif self._best is None:
            self._peak = min(self._peak, peak)
        return peak

    def penalise(self, max_states: int, deadline: float) -> None:
        """Search with penalties on the values that the last plan holds at its peak, until the plan does not change."""
        problem, footprint = self._problem, self._footprint
        penalties = [0.0] * len(problem)
        step = max(self._cheapest.seconds, 1e-9) / max(self._peak, 1) / 4
        plan, seen = self._cheapest, {_ids(self._cheapest)}
        for _ in range(_ROUNDS):
            curve = curve_of(problem, footprint, plan)
            if not curve or time.monotonic() > deadline:
                return
            for node in members(live_at(problem, footprint, plan, self._too_high(curve))):
                penalties[node] += step * footprint.sizes[node]
            options = tuple(
                replace(option, seconds=option.seconds + self._penalty(option, penalties, step))
                for option in problem.options
            )
            try:
                found = cheapest_cover(
                    replace(problem, options=options), max_states, max(0.1, deadline - time.monotonic())
                )
            except NoCover:
                return
            plan = _planned(problem, found.chosen)
            self._consider(plan)
            step *= 1.0 if _ids(plan) not in seen else 2.0
            seen.add(_ids(plan))

    def _too_high(self, curve: Sequence[int]) -> list[int]:
        """The kernels of a plan at which fewer bytes are wanted."""
        most = max(curve)
        limit = _NEAR * most if self._goal.limit is None or most <= self._goal.limit else self._goal.limit
        return [turn for turn, nbytes in enumerate(curve) if nbytes > limit]

    def _penalty(self, option: Option, penalties: list[float], step: float) -> float:
        own = self._footprint.scratch.get(option.id, 0) + self._footprint.packed.get(option.id, 0)
        return step * own + sum(penalties[node] for node in members(self._problem.outputs(option)))

    def enumerate(self, max_states: int, max_plans: int, deadline: float) -> BoundedPlan:
        """Enumerate plans in the order of their seconds, as long as one of them may be the best."""
        number = 0
        for number, plan in enumerate(_plans_of_camps(self._problem, max_states, deadline), 1):
            if plan is None:
                return self.answer(False, number - 1)
            if not self.can_be_better(plan.seconds):
                return self.answer(True, number)
            self._consider(plan)
            if number >= max_plans or time.monotonic() > deadline:
                return self.answer(False, number)
        return self.answer(True, number)


def _planned(problem: Problem, chosen: Sequence[Option], visited: int = 0) -> Solution:
    """The plan of these options, by id; those that start at one node run in the order of the problem."""
    wanted = {option.id for option in chosen}
    ordered = [option for option in problem.options if option.id in wanted]
    return solution_of(problem, ordered, "memory", 0.0, visited)


def _ids(plan: Solution) -> tuple[int, ...]:
    return tuple(sorted(option.id for option in plan.chosen))


def _plans_of_camps(problem: Problem, max_states: int, deadline: float) -> Iterator[Solution | None]:
    """:func:`_plans_in_order` without plans of backends that exclude each other; some plans are in several camps."""
    each = camps(problem)
    plans = (_plans_in_order(camp, max_states // len(each), deadline) for camp in each)
    return heapq.merge(*plans, key=lambda plan: -INFINITE if plan is None else plan.seconds)


def _plans_in_order(problem: Problem, max_states: int, deadline: float) -> Iterator[Solution | None]:
    """All valid plans, the cheapest first; None, and the end, where the states are too many.

    A walk visits all states. Backwards from the end they get the exact cost of the rest, which is the bound of a
    best-first search for paths: each path that it ends is the next plan.
    """
    try:
        space = space_of(problem, potentials_of(problem), every=True)
    except NoCover:  # a camp need not have a plan
        return
    budget = Budget(max_states, deadline)
    layers, _ = walk(space, 0.0, INFINITE, budget)
    if budget.is_spent():
        yield None
        return
    rest: dict[tuple[int, State], float] = {(DONE, state): 0.0 for state in layers.get(DONE, {})}
    for layer in sorted(number for number in layers if number != DONE):
        for state in layers[layer]:
            ways = (
                paid + rest.get((below, following), INFINITE)
                for below, following, paid, _ in space.successors(layer, state)
            )
            rest[layer, state] = min(ways, default=INFINITE)
    turn, (top, start) = count(), space.start()
    waiting: list[tuple[float, int, float, int, State, tuple[Option, ...]]] = []
    heapq.heappush(waiting, (rest[top, start], next(turn), 0.0, top, start, ()))
    while waiting:
        bound, _, spent, layer, state, chosen = heapq.heappop(waiting)
        if bound == INFINITE:
            return
        if layer == DONE:
            yield _planned(problem, chosen, budget.visited)
            continue
        for below, following, paid, move in space.successors(layer, state):
            more = rest.get((below, following), INFINITE)
            if more < INFINITE:
                taken = chosen if move.option is None else (*chosen, move.option)
                heapq.heappush(
                    waiting, (spent + paid + more, next(turn), spent + paid, below, following, taken)
                )
