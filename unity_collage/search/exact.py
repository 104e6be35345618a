"""The cheapest plan, by dynamic programming over the values that are still wanted.

The search of the Collage RFC (Dijkstra) goes forwards over sets of covered nodes. This one goes backwards over sets of
wanted values (:mod:`.states`), layer by layer from the last value to the first. It is a branch-and-bound in two passes:

1. A beam search, which keeps the best states of each layer, finds a good plan, the upper bound.
2. All states are visited whose cost so far plus the potentials of the remaining nodes (:mod:`.potentials`) is at most
   the upper bound. Potentials are a lower bound of the remaining cost, so this finds and proves the optimum.

If the budget ends, the answer has the best plan found and the smallest bound of the states that were not expanded.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from .camps import best_of_camps, camps
from .plans import solution_of
from .potentials import potentials_of
from .problem import NoCover, Option, Problem, Solution
from .spaces import space_of
from .states import DONE, Space
from .walk import INFINITE, Budget, Layers, cheapest_finished, walk

BEAM = 48
"""States that the first pass keeps in each layer."""


def cheapest_cover(
    problem: Problem,
    max_states: int = 2_000_000,
    seconds: float = 60.0,
    potentials: Sequence[float] | None = None,
    beam: int = BEAM,
) -> Solution:
    """A cheapest valid plan, or the best one found within the budget, with a lower bound; raises NoCover.

    ``max_states`` is for the smallest state space; of the other, whose states take longer, fewer are visited.
    With better ``potentials`` than the default it visits fewer states. ``beam`` is the width of the first pass. Of
    options with equal costs the one with the smaller id is taken, so equal input gives equal output unless the time
    runs out.
    """
    if problem.exclusions:
        one = partial(cheapest_cover, potentials=potentials, beam=beam)
        parts = len(camps(problem))
        return best_of_camps(
            problem, lambda camp: one(camp, max_states=max_states // parts, seconds=seconds / parts)
        )
    known = potentials_of(problem) if potentials is None else potentials
    bound = sum(known)
    space = space_of(problem, known)
    budget = Budget(max_states // space.work, time.monotonic() + seconds)
    best, _ = walk(space, bound, INFINITE, budget, width=beam)
    budget = Budget(max_states // space.work, budget.deadline)
    best_seconds = cheapest_finished(best)
    for ceiling in _ceilings(bound, best_seconds):
        layers, least = walk(space, sum(known), ceiling, budget)
        if DONE in layers:
            best, bound = layers, least
            break
        # No plan is that cheap, if all states were visited.
        bound = max(bound, min(least, ceiling))
        if budget.is_spent():
            break
    if DONE not in best:
        raise NoCover(_first_unmade(problem, space))
    return _solution(problem, best, bound, budget.visited)


def _ceilings(bound: float, best_seconds: float) -> tuple[float, ...]:
    """Increasing limits for the cost of a plan. A low limit leaves few states, and a good bound is almost reached."""
    if best_seconds == INFINITE:
        return (best_seconds,)
    return (*(bound + (best_seconds - bound) * share for share in (0.05, 0.3)), best_seconds)


def _solution(problem: Problem, layers: Layers, bound: float, visited: int) -> Solution:
    label = min(layers[DONE].values(), key=lambda found: found.seconds)
    chosen: list[Option] = []
    while label.move is not None:
        if label.move.option is not None:
            chosen.append(label.move.option)
        label = layers[label.layer][label.previous]
    return solution_of(problem, chosen, "exact", bound, visited)


def _first_unmade(problem: Problem, space: Space) -> int:
    """The smallest wanted value that no option made in a beam search: a node that keeps every plan from completion."""
    layers, _ = walk(space, 0.0, INFINITE, Budget(10_000, INFINITE), width=BEAM)
    return min(layer for layer in layers if layer != DONE)
