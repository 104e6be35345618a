"""Potentials: a lower bound of every plan that anybody can check by adding up.

A potential is a number for each node such that those inside any option sum to its cost at most (launch included), and
that of a node which may be left behind is 0. Each other node is inside some chosen kernel, so no plan costs
less than the sum of all potentials: it is the dual of the covering problem's linear relaxation.
"""

from __future__ import annotations

from ..index_set import members, size
from .problem import NoCover, Problem


def potentials_of(problem: Problem) -> list[float]:
    """Potentials by two sweeps: each node's cheapest share of an option, then the slack that is left.

    Raises NoCover for a node that no option contains and that may not be left behind.
    """
    costs = [problem.cost(option) for option in problem.options]
    potentials = [float("inf")] * len(problem)
    holders: list[list[int]] = [[] for _ in problem.sources]
    for number, option in enumerate(problem.options):
        paying = size(option.inside & ~problem.free)
        for index in members(option.inside & ~problem.free):
            potentials[index] = min(potentials[index], costs[number] / paying)
            holders[index].append(number)
    for index in members(problem.free):
        potentials[index] = 0.0
    for index, potential in enumerate(potentials):
        if potential == float("inf"):
            raise NoCover(index)
    slack = [
        cost - sum(potentials[index] for index in members(option.inside))
        for cost, option in zip(costs, problem.options, strict=True)
    ]
    for index in range(len(problem) - 1, -1, -1):
        gain = min((slack[number] for number in holders[index]), default=0.0)
        if gain > 0.0:
            potentials[index] += gain
            for number in holders[index]:
                slack[number] -= gain
    return potentials
