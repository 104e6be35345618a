"""The cost of the cheapest plan with a certain option, and without it, which regrets and margins are computed from.

Both are min-marginals of the dynamic program. The cost of the cheapest plan through an edge of the state space has
three parts: the least cost to the edge's state, the edge, and the least cost from the next state on. One walk forwards
and one backwards give that cost for all edges (:func:`.walk.edges`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from .camps import camps
from .potentials import potentials_of
from .problem import NoCover, Option, Problem, Solution
from .spaces import space_of
from .states import Space, cheapest_of_equals
from .walk import INFINITE, Budget, Edge, Layers, edges, walk


@dataclass(frozen=True, slots=True)
class Through:
    """The cost of the cheapest plan that contains a certain option, or that does not."""

    seconds: float
    exact: bool
    """If False, ``seconds`` is a lower bound."""


def best_throughs(
    problem: Problem, best_seconds: float, max_states: int = 200_000, within: float = INFINITE
) -> dict[int, Through]:
    """For each option that can be in a valid plan, by id, the cost of the cheapest plan with it.

    ``best_seconds`` is the cost of a cheapest plan. Plans that cost more than ``within`` are not visited. If
    ``max_states`` does not suffice for all others, only those of cheap plans are visited. They cost at most 1.5 times,
    1.1 times or just as much as the cheapest. For options that are in none of these plans the answer is a lower bound.
    With transitions there may be too many states even then; the answers are those without transitions, as lower bounds.
    """
    if problem.exclusions:
        return _least(
            problem, lambda camp, states: best_throughs(camp, best_seconds, states, within), max_states
        )
    walked = _walked(problem, best_seconds, max_states, within)
    problem = walked.problem
    found = _throughs(edges(walked.space, walked.layers))
    answer: dict[int, Through] = {}
    by_id = {option.id: option for option in problem.options}
    for id_, equal in cheapest_of_equals(problem).items():
        through = walked.bounded(found.get(equal.id, INFINITE))
        if through is not None:
            more = problem.cost(by_id[id_]) - problem.cost(equal)
            answer[id_] = Through(through.seconds + more, through.exact)
    return answer


def best_withouts(problem: Problem, best: Solution, max_states: int = 200_000) -> dict[int, Through]:
    """For each option of the cheapest plan, by id, the cost of the cheapest plan without it, if there is one.

    It is a lower bound where not all states can be visited, as in :func:`best_throughs`.
    """
    if problem.exclusions:
        return _least(problem, lambda camp, states: best_withouts(camp, best, states), max_states)
    walked = _walked(problem, best.seconds, max_states)
    at = {problem.outputs(option).bit_length() - 1: option for option in best.chosen}
    found = _withouts(edges(walked.space, walked.layers), at)
    stand_in = _stand_ins(walked.problem, _with_each(walked, best))
    answer: dict[int, Through] = {}
    for layer, option in at.items():
        without = walked.bounded(min(found.get(layer, INFINITE), stand_in.get(option.id, INFINITE)))
        if without is not None:
            answer[option.id] = without
    return answer


def _least(
    problem: Problem, ask: Callable[[Problem, int], Mapping[int, Through]], max_states: int
) -> dict[int, Through]:
    """The cheapest plan of all camps, by id; a camp without a plan is ignored."""
    least: dict[int, Through] = {}
    each = camps(problem)
    for camp in each:
        of_camp: Mapping[int, Through] = {}
        with suppress(NoCover):
            of_camp = ask(camp, max_states // len(each))
        for identity, through in of_camp.items():
            known = least.get(identity)
            if known is None or through.seconds < known.seconds:
                least[identity] = through
    return least


@dataclass(frozen=True, slots=True)
class _Walked:
    """The states of all plans up to a certain cost."""

    problem: Problem
    space: Space
    layers: Layers
    beyond: float
    """That cost."""
    is_relaxed: bool = False
    """Whether ``problem`` is without its transitions, so that all costs are lower bounds."""

    def bounded(self, found: float) -> Through | None:
        """The answer if ``found`` is the least cost of a visited plan; None if no plan exists."""
        if found <= self.beyond:
            return None if found == INFINITE else Through(found, not self.is_relaxed)
        return Through(self.beyond, False)


def _walked(problem: Problem, best_seconds: float, max_states: int, within: float = INFINITE) -> _Walked:
    """The largest of a few costs, up to ``within``, for which the budget suffices."""
    potentials = potentials_of(problem)
    space, layers, ceiling = space_of(problem, potentials), Layers(), best_seconds
    for ceiling in (within, *(most for part in (1.5, 1.1, 1.0) if (most := part * best_seconds) < within)):
        budget = Budget(max_states // space.work, INFINITE)
        layers, _ = walk(space, sum(potentials), ceiling, budget)
        if not budget.is_spent():
            break
        if problem.has_transitions:
            relaxed = _walked(replace(problem, transitions={}), best_seconds, max_states, within)
            return replace(relaxed, is_relaxed=True)
    return _Walked(problem, space, layers, ceiling)


def _with_each(walked: _Walked, best: Solution) -> Mapping[int, float]:
    """The cost of the cheapest plan of the problem with each option of ``best``, by id.

    That is ``best`` itself, unless it is a plan of another camp, or of the problem with its transitions.
    """
    there = {option.id for option in walked.problem.options}
    if not walked.is_relaxed and all(option.id in there for option in best.chosen):
        return {option.id: best.seconds for option in best.chosen}
    return _throughs(edges(walked.space, walked.layers))


def _stand_ins(problem: Problem, with_each: Mapping[int, float]) -> dict[int, float]:
    """The cost of the plan with the second cheapest option of the same effect, by id of the cheapest one.

    ``with_each``: the cost of the cheapest plan with an option, by id.
    """
    by_id = {option.id: option for option in problem.options}
    found: dict[int, float] = {}
    for id_, equal in cheapest_of_equals(problem).items():
        if equal.id in with_each and id_ != equal.id:
            seconds = with_each[equal.id] + problem.cost(by_id[id_]) - problem.cost(equal)
            found[equal.id] = min(found.get(equal.id, INFINITE), seconds)
    return found


def _throughs(walked: Iterable[Edge]) -> dict[int, float]:
    """For each option, by id, the least cost of a visited plan that takes it."""
    found: dict[int, float] = {}
    for edge in walked:
        if edge.move.option is not None:
            id_ = edge.move.option.id
            found[id_] = min(found.get(id_, INFINITE), edge.seconds)
    return found


def _withouts(walked: Iterable[Edge], at: Mapping[int, Option]) -> dict[int, float]:
    """By layer, the least cost of a visited plan that does not take the option ``at`` that layer.

    Every plan passes each layer with exactly one edge, and takes an option only with an edge from the option's own
    layer. So the plans without the option are those whose edge at that layer is another one.
    """
    numbers = sorted(at)
    found: dict[int, float] = {}
    for edge in walked:
        for layer in numbers[bisect_right(numbers, edge.below) : bisect_right(numbers, edge.layer)]:
            own = edge.move.option
            if layer == edge.layer and own is not None and own.id == at[layer].id:
                continue
            found[layer] = min(found.get(layer, INFINITE), edge.seconds)
    return found
