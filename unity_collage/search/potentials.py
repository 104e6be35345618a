"""Potentials: a lower bound of the cost of every plan, which is checked by adding numbers.

Each node has a potential, such that those inside an option sum to at most its cost (launch included). A node that may
be left behind has 0. Every other node is inside some chosen kernel, so each plan costs at least the sum of all
potentials. Potentials are a feasible solution of the dual of the covering problem's linear relaxation; the heuristic
here is a dual ascent in two sweeps.
"""

from __future__ import annotations

from ..index_set import members, size
from .problem import NoCover, Problem


def potentials_of(problem: Problem) -> list[float]:
    """Potentials by two sweeps: first the smallest share of a node in an option, then the slack that remains.

    The cost of an option is shared equally by its nodes, and a node gets the least of its shares: that is feasible.
    Then, from the last node to the first, each potential is raised by the smallest slack of the options that contain
    the node. Raises NoCover for a node that is in no option and must not be left behind.
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
