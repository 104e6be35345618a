"""Lower bounds that anybody can check: potentials of the nodes, the best that a linear program finds.

See ``Certificate.potentials`` for what they have to be. Those of a solver miss that by a rounding here and there, so
they are lowered until they are exactly feasible.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, inf, nextafter

from ..index_set import members
from .linear import Model, minimise
from .potentials import potentials_of
from .problem import Option, Problem


def lp_potentials(problem: Problem, seconds: float = 10.0) -> tuple[float, ...]:
    """Potentials with the largest sum, by the dual of covering each node; in too little time merely good ones.

    Raises NoCover for a node that no option contains and that may not be left behind.
    """
    quick = repaired(problem, potentials_of(problem))
    outcome = minimise(_covering(problem), seconds)
    if outcome.status != "optimal":
        return quick
    best = repaired(problem, outcome.duals)
    return best if fsum(best) > fsum(quick) else quick


def _covering(problem: Problem) -> Model:
    """Each node is in options that add up to one, to one at least where it may be in two; a free one in none at
    least.
    """
    model = Model()
    holders: list[list[tuple[int, float]]] = [[] for _ in problem.sources]
    for option in problem.options:
        column = model.column(problem.cost(option), upper=inf)
        for index in members(option.inside):
            holders[index].append((column, 1.0))
    for index, terms in enumerate(holders):
        free, twice = problem.free >> index & 1, problem.redundant
        model.row(-inf if free else 1.0, terms, inf if twice else 1.0)
    return model


def repaired(problem: Problem, potentials: Sequence[float]) -> tuple[float, ...]:
    """The nearest potentials below that keep all conditions exactly."""
    result = list(potentials)
    for index in range(len(problem)):
        if problem.free >> index & 1:
            result[index] = min(0.0, result[index])
        if problem.redundant:
            result[index] = max(0.0, result[index])
    for option in problem.options:
        _lower(problem, option, result)
    return tuple(result)


def _lower(problem: Problem, option: Option, potentials: list[float]) -> None:
    """Take what ``option`` holds too much from its largest potentials."""
    inside = list(members(option.inside))
    while (
        excess := fsum([*(potentials[i] for i in inside), -option.seconds, -problem.launch(option)])
    ) > 0.0:
        largest = max(inside, key=lambda index: potentials[index])
        lowered = min(potentials[largest] - excess, nextafter(potentials[largest], -inf))
        potentials[largest] = max(0.0, lowered) if problem.redundant else lowered
