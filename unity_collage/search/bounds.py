"""Lower bounds that are easy to check: potentials of the nodes, from the dual of a linear program.

``Certificate.potentials`` says which conditions potentials must satisfy. The duals of a solver violate them by rounding
errors, so they are lowered until they are exactly feasible.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, inf, nextafter

from ..index_set import members
from .linear import Model, minimise
from .potentials import potentials_of
from .problem import Option, Problem


def lp_potentials(problem: Problem, seconds: float = 10.0) -> tuple[float, ...]:
    """Potentials with the largest sum: the duals of the covering program. If the time ends, those of ``potentials_of``.

    Raises NoCover for a node that is in no option and must not be left behind.
    """
    quick = repaired(problem, potentials_of(problem))
    outcome = minimise(_covering(problem), seconds)
    if outcome.status != "optimal":
        return quick
    best = repaired(problem, outcome.duals)
    return best if fsum(best) > fsum(quick) else quick


def _covering(problem: Problem) -> Model:
    """The linear relaxation of covering each node.

    The options that contain a node add up to one, or to at least one if nodes may be computed twice. For a free node
    there is no lower limit.
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
    """Potentials that satisfy all conditions exactly, made by lowering ``potentials`` as little as possible."""
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
    """Subtract the excess over the cost of ``option`` from the largest potentials inside."""
    inside = list(members(option.inside))
    while (
        excess := fsum([*(potentials[i] for i in inside), -option.seconds, -problem.launch(option)])
    ) > 0.0:
        largest = max(inside, key=lambda index: potentials[index])
        lowered = min(potentials[largest] - excess, nextafter(potentials[largest], -inf))
        potentials[largest] = max(0.0, lowered) if problem.redundant else lowered
