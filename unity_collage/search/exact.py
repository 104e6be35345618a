"""The cheapest plan, by dynamic programming over the values that are still wanted.

Collage's Dijkstra goes forwards over covered sets; ours goes backwards over wanted values (:mod:`.states`), layer by
layer from the last value to the first. A beam of limited width finds a good plan first; then every state whose cost so
far plus the potentials of what is left (:mod:`.potentials`) does not exceed that plan is looked at, which proves
the optimum. When a budget runs out, the best plan found and the smallest bound still open are the answer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from .plans import solution_of
from .potentials import potentials_of
from .problem import NoCover, Option, Problem, Solution
from .spaces import space_of
from .states import DONE, Space
from .walk import INFINITE, Budget, Layers, cheapest_finished, walk

BEAM = 48
"""States kept in each layer by the first pass."""


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
    budget = Budget(max_states, time.monotonic() + seconds)
    best, _ = walk(space, bound, INFINITE, budget, width=beam)
    budget = Budget(max_states, budget.deadline)
    best_seconds = cheapest_finished(best)
    for ceiling in _ceilings(bound, best_seconds):
        layers, least = walk(space, sum(known), ceiling, budget)
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


def _ceilings(bound: float, best_seconds: float) -> tuple[float, ...]:
    """How expensive a plan may be, step by step: good bounds are nearly reached, and a low ceiling leaves few states."""
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
    """The node at which every plan ends: the smallest value that could be wanted but not made."""
    layers, _ = walk(space, 0.0, INFINITE, Budget(10_000, INFINITE), width=BEAM)
    return min(layer for layer in layers if layer != DONE)
