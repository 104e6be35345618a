"""What the cheapest plan costs with a certain option, or without it: regrets, and what would change a choice."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .potentials import potentials_of
from .problem import Option, Problem, Solution
from .spaces import space_of
from .states import Space, cheapest_of_equals
from .walk import INFINITE, Budget, Edge, Layers, edges, walk


@dataclass(frozen=True, slots=True)
class Through:
    """What the cheapest plan costs that contains a certain option."""

    seconds: float
    exact: bool
    """False: it costs at least that much."""


def best_throughs(problem: Problem, best_seconds: float, max_states: int = 200_000) -> dict[int, Through]:
    """For each option that can be in a valid plan, by id, what the cheapest plan with it costs.

    ``best_seconds`` is the cost of a cheapest plan. All states are walked where ``max_states`` allows it; else only
    those on plans that are more expensive than the cheapest by no more than a half, a tenth, nothing: beyond, the answer
    is a lower bound.
    """
    space, layers, beyond = _walked(problem, best_seconds, max_states)
    found = _throughs(edges(space, layers))
    answer: dict[int, Through] = {}
    by_id = {option.id: option for option in problem.options}
    for id_, equal in cheapest_of_equals(problem).items():
        through = _bounded(found.get(equal.id, INFINITE), beyond)
        if through is not None:
            more = problem.cost(by_id[id_]) - problem.cost(equal)
            answer[id_] = Through(through.seconds + more, through.exact)
    return answer


def best_withouts(problem: Problem, best: Solution, max_states: int = 200_000) -> dict[int, Through]:
    """For each option of the cheapest plan that another plan can do without, by id, what the cheapest of those costs.

    As :func:`best_throughs` a lower bound where not all states can be walked.
    """
    space, layers, beyond = _walked(problem, best.seconds, max_states)
    at = {problem.outputs(option).bit_length() - 1: option for option in best.chosen}
    found = _withouts(edges(space, layers), at)
    stand_in = _stand_ins(problem, best)
    answer: dict[int, Through] = {}
    for layer, option in at.items():
        without = _bounded(min(found.get(layer, INFINITE), stand_in.get(option.id, INFINITE)), beyond)
        if without is not None:
            answer[option.id] = without
    return answer


def _walked(problem: Problem, best_seconds: float, max_states: int) -> tuple[Space, Layers, float]:
    """All states of plans up to a certain cost, and that cost: the largest of a few that the budget allows."""
    potentials = potentials_of(problem)
    space, layers, ceiling = space_of(problem, potentials), Layers(), best_seconds
    for factor in (INFINITE, 1.5, 1.1, 1.0):
        budget = Budget(max_states, INFINITE)
        ceiling = best_seconds * factor if factor < INFINITE else INFINITE
        layers, _ = walk(space, sum(potentials), ceiling, budget)
        if not budget.is_spent():
            break
    return space, layers, ceiling


def _bounded(found: float, beyond: float) -> Through | None:
    """What is known of a cheapest plan after a walk up to ``beyond``; None: there is no such plan."""
    if found <= beyond:
        return None if found == INFINITE else Through(found, True)
    return Through(beyond, False)


def _stand_ins(problem: Problem, best: Solution) -> dict[int, float]:
    """What the plan costs with the next cheapest option of the same effect, by id of the chosen one."""
    by_id = {option.id: option for option in problem.options}
    chosen = {option.id for option in best.chosen}
    found: dict[int, float] = {}
    for id_, equal in cheapest_of_equals(problem).items():
        if equal.id in chosen and id_ != equal.id:
            seconds = best.seconds + problem.cost(by_id[id_]) - problem.cost(equal)
            found[equal.id] = min(found.get(equal.id, INFINITE), seconds)
    return found


def _throughs(walked: Iterable[Edge]) -> dict[int, float]:
    """By id, the least cost of a walked plan that takes each option."""
    found: dict[int, float] = {}
    for step in walked:
        if step.move.option is not None:
            id_ = step.move.option.id
            found[id_] = min(found.get(id_, INFINITE), step.seconds)
    return found


def _withouts(walked: Iterable[Edge], at: Mapping[int, Option]) -> dict[int, float]:
    """By layer, the least cost of a walked plan that does not take the option ``at`` that layer.

    Every plan passes each layer in exactly one step, and takes an option nowhere but in a step from its own layer.
    """
    numbers = sorted(at)
    found: dict[int, float] = {}
    for step in walked:
        for layer in numbers[bisect_right(numbers, step.below) : bisect_right(numbers, step.layer)]:
            own = step.move.option
            if layer == step.layer and own is not None and own.id == at[layer].id:
                continue
            found[layer] = min(found.get(layer, INFINITE), step.seconds)
    return found
