"""The cheapest plan, by dynamic programming over the values that are still wanted.

Collage's Dijkstra goes forwards over covered sets; ours goes backwards over wanted values (:mod:`.states`), layer by
layer from the last value to the first. A beam of limited width finds a good plan first; then every state whose cost so
far plus the potentials of what is left (:mod:`.potentials`) does not exceed that plan is looked at, which proves
the optimum. When a budget runs out, the best plan found and the smallest bound still open are the answer.
"""

from __future__ import annotations

import heapq
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .plans import solution_of
from .potentials import potentials_of
from .problem import NoCover, Option, Problem, Solution
from .states import DONE, Move, Space, State, cheapest_of_equals, space_of

BEAM = 48
"""States kept in each layer by the first pass."""

INFINITE = float("inf")

_ROUNDING = 1e-9
"""Sums in another order differ by so much of their value at most."""


class Label(NamedTuple):
    """The cheapest way to a state that is known."""

    seconds: float
    rest: float
    """At least what the rest costs."""
    layer: int
    """Where it comes from."""
    previous: State
    move: Move | None


Layers = dict[int, dict[State, Label]]


@dataclass(frozen=True, slots=True)
class Through:
    """What the cheapest plan costs that contains a certain option."""

    seconds: float
    exact: bool
    """False: it costs at least that much."""


@dataclass(slots=True)
class _Budget:
    states: int
    deadline: float
    visited: int = 0

    def is_spent(self) -> bool:
        return self.visited > self.states or time.monotonic() > self.deadline


def cheapest_cover(
    problem: Problem,
    max_states: int = 2_000_000,
    seconds: float = 60.0,
    potentials: Sequence[float] | None = None,
    beam: int = BEAM,
) -> Solution:
    """A cheapest valid plan, or the best one found within the budget, with a lower bound; raises NoCover.

    Better ``potentials`` than the quick ones make it look at fewer states; the first pass is ``beam`` wide, and only
    finds a good plan. Equal costs are resolved towards the
    option with the smaller id, so equal input gives equal output as long as no budget of time runs out.
    """
    known = potentials_of(problem) if potentials is None else potentials
    bound = sum(known)
    space = space_of(problem, known)
    budget = _Budget(max_states, time.monotonic() + seconds)
    best, _ = _walk(space, bound, INFINITE, budget, width=beam)
    budget = _Budget(max_states, budget.deadline)
    dearest = _ceiling(best)
    for ceiling in _ceilings(bound, dearest):
        layers, least = _walk(space, sum(known), ceiling, budget)
        if DONE in layers:
            best, bound = layers, least
            break
        # Nothing is that cheap, as far as all states were looked at.
        bound = max(bound, min(least, ceiling))
        if budget.is_spent():
            break
    if DONE not in best:
        raise NoCover(_first_unmade(problem, space))
    return _solution(problem, best, bound, budget.visited)


def _ceilings(bound: float, dearest: float) -> tuple[float, ...]:
    """How dear a plan may be, step by step: good bounds are nearly reached, and a low ceiling leaves few states."""
    if dearest == INFINITE:
        return (dearest,)
    return (*(bound + (dearest - bound) * share for share in (0.05, 0.3)), dearest)


def best_throughs(problem: Problem, best_seconds: float, max_states: int = 200_000) -> dict[int, Through]:
    """For each option that can be in a valid plan, by id, what the cheapest plan with it costs.

    ``best_seconds`` is the cost of a cheapest plan. All states are walked where ``max_states`` allows it; else only
    those on plans that are dearer than the cheapest by no more than a half, a tenth, nothing: beyond, the answer
    is a lower bound.
    """
    space, layers, beyond = _walked(problem, best_seconds, max_states)
    found = _throughs(_steps(space, layers))
    answer: dict[int, Through] = {}
    by_id = {option.id: option for option in problem.options}
    for id_, equal in cheapest_of_equals(problem).items():
        through = _bounded(found.get(equal.id, INFINITE), beyond)
        if through is not None:
            more = problem.price(by_id[id_]) - problem.price(equal)
            answer[id_] = Through(through.seconds + more, through.exact)
    return answer


def best_withouts(problem: Problem, best: Solution, max_states: int = 200_000) -> dict[int, Through]:
    """For each option of the cheapest plan that another plan can do without, by id, what the cheapest of those costs.

    As :func:`best_throughs` a lower bound where not all states can be walked.
    """
    space, layers, beyond = _walked(problem, best.seconds, max_states)
    at = {problem.outputs(option).bit_length() - 1: option for option in best.chosen}
    found = _withouts(_steps(space, layers), at)
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
        budget = _Budget(max_states, INFINITE)
        ceiling = best_seconds * factor if factor < INFINITE else INFINITE
        layers, _ = _walk(space, sum(potentials), ceiling, budget)
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
            seconds = best.seconds + problem.price(by_id[id_]) - problem.price(equal)
            found[equal.id] = min(found.get(equal.id, INFINITE), seconds)
    return found


def _walk(
    space: Space, potential: float, ceiling: float, budget: _Budget, width: int | None = None
) -> tuple[Layers, float]:
    """All states within ``ceiling``, and a lower bound of the plans that were not looked at for want of budget."""
    top, start = space.start()
    limit = ceiling * (1 + _ROUNDING)
    layers: Layers = {top: {start: Label(0.0, potential, DONE, None, None)}}
    for layer in range(top, DONE, -1):
        states = layers.get(layer)
        if states is None:
            continue
        if width is not None and len(states) > width:
            kept = heapq.nsmallest(width, states.items(), key=lambda item: item[1].seconds + item[1].rest)
            states = layers[layer] = dict(kept)
        budget.visited += len(states)
        if width is None and budget.is_spent():
            return layers, _open_bound(layers, layer)
        for state, (seconds, rest, _, _, _) in states.items():
            for below, following, paid, move in space.successors(layer, state):
                cost, left = seconds + paid, rest - move.potential
                if cost + (left if left > 0.0 else 0.0) > limit:
                    continue
                found = layers.get(below)
                if found is None:
                    found = layers[below] = {}
                known = found.get(following)
                if known is None or cost < known.seconds:
                    found[following] = Label(cost, left, layer, state, move)
    return layers, _ceiling(layers)


def _open_bound(layers: Layers, layer: int) -> float:
    """The least that any plan costs which goes through a state that was not expanded."""
    return min(
        label.seconds + max(0.0, label.rest)
        for number, states in layers.items()
        if number <= layer
        for label in states.values()
    )


def _ceiling(layers: Layers) -> float:
    """The cost of the cheapest finished plan."""
    done = layers.get(DONE)
    return min((label.seconds for label in done.values()), default=float("inf")) if done else float("inf")


def _solution(problem: Problem, layers: Layers, bound: float, visited: int) -> Solution:
    label = min(layers[DONE].values(), key=lambda found: found.seconds)
    chosen: list[Option] = []
    while label.move is not None:
        if label.move.option is not None:
            chosen.append(label.move.option)
        label = layers[label.layer][label.previous]
    return solution_of(problem, chosen, "exact", bound, visited)


class Step(NamedTuple):
    """A step of walked plans."""

    layer: int
    below: int
    move: Move
    seconds: float
    """What the cheapest plan with it costs."""


def _steps(space: Space, layers: Layers) -> Iterator[Step]:
    """Every step that leads to a finished plan: the cost to it, its own, and the least from it on."""
    onward: dict[int, dict[State, float]] = {DONE: dict.fromkeys(layers.get(DONE, {}), 0.0)}
    for layer in sorted(layers):
        if layer == DONE:
            continue
        onward[layer] = {}
        for state, label in layers[layer].items():
            least = INFINITE
            for below, following, paid, move in space.successors(layer, state):
                rest = onward.get(below, {}).get(following)
                if rest is not None:
                    least = min(least, paid + rest)
                    yield Step(layer, below, move, label.seconds + paid + rest)
            if least < INFINITE:
                onward[layer][state] = least


def _throughs(steps: Iterable[Step]) -> dict[int, float]:
    """By id, the least cost of a walked plan that takes each option."""
    found: dict[int, float] = {}
    for step in steps:
        if step.move.option is not None:
            id_ = step.move.option.id
            found[id_] = min(found.get(id_, INFINITE), step.seconds)
    return found


def _withouts(steps: Iterable[Step], at: Mapping[int, Option]) -> dict[int, float]:
    """By layer, the least cost of a walked plan that does not take the option ``at`` that layer.

    Every plan passes each layer in exactly one step, and takes an option nowhere but in a step from its own layer.
    """
    numbers = sorted(at)
    found: dict[int, float] = {}
    for step in steps:
        for layer in numbers[bisect_right(numbers, step.below) : bisect_right(numbers, step.layer)]:
            own = step.move.option
            if layer == step.layer and own is not None and own.id == at[layer].id:
                continue
            found[layer] = min(found.get(layer, INFINITE), step.seconds)
    return found


def _first_unmade(problem: Problem, space: Space) -> int:
    """The node at which every plan ends: the smallest value that could be wanted but not made."""
    layers, _ = _walk(space, 0.0, float("inf"), _Budget(10_000, float("inf")), width=BEAM)
    return min(layer for layer in layers if layer != DONE)
