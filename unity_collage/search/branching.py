"""Proofs by cases, by branch and bound (Land and Doig, 1960) over the linear programs of :mod:`.bounds`.

The branch with the least bound is split first, at the option that its program takes most nearly by half. Where the
program takes only whole options, they wait for each other in a cycle, and the branch is split at one of them.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..index_set import EMPTY, members
from .bounds import lp_branch
from .branches import Between, Fork, ProofBranch, branch_seconds
from .problem import Option, Problem

MOST_BRANCHES = 64
"""Branches of a proof: it must stay small enough for an attribute of a function."""

_ROUNDING = 1e-9


@dataclass(order=True, slots=True)
class _Open:
    """A branch with a program; the queue has the least bound first."""

    seconds: float
    number: int
    branch: ProofBranch = field(compare=False)
    taken: dict[int, float] = field(compare=False)
    """The part of each option that the program takes, by id."""


def branched(
    problem: Problem, goal: float, seconds: float, most: int = MOST_BRANCHES
) -> tuple[ProofBranch, ...]:
    """A proof by cases that reaches ``goal`` seconds, or the best one that was found; empty if there is none.

    At most ``most`` branches, within ``seconds``.
    """
    deadline = time.monotonic() + seconds
    search = _Branching(problem, goal)
    first = search.solved((), deadline)
    if first is None:
        return ()
    queue = [first]
    while queue[0].seconds < goal - _ROUNDING * abs(goal) and len(queue) < most:
        split = search.split(queue[0], deadline)
        if split is None:
            break
        heapq.heappop(queue)
        for open_ in split:
            heapq.heappush(queue, open_)
    return tuple(sorted((open_.branch for open_ in queue), key=lambda branch: branch.forks))


class _Branching:
    def __init__(self, problem: Problem, goal: float) -> None:
        self._problem = problem
        self._between = Between(problem)
        self._goal = goal
        self._costs = {option.id: option.seconds for option in problem.options}
        self._count = 0

    def split(self, open_: _Open, deadline: float) -> list[_Open] | None:
        """The two branches of ``open_``; None if there is nothing to split at, or no time."""
        forks = open_.branch.forks
        at = self._fork_at(open_)
        if at is None:
            return None
        found: list[_Open] = []
        for way in (0, 1):
            further: tuple[Fork, ...] = (*forks, (at, way))
            settled = self._between.only_plan_seconds(further)
            if settled is not None:
                found.append(_Open(settled, self._next(), ProofBranch(further), {}))
                continue
            solved = self.solved(further, deadline)
            if solved is None:
                return None
            found.append(solved)
        return found

    def solved(self, forks: tuple[Fork, ...], deadline: float) -> _Open | None:
        """A branch with the bound of its program; None if the time ended."""
        left = deadline - time.monotonic()
        if left <= 0.0:
            return None
        taken = [id_ for id_, way in forks if way]
        smaller = self._between.problem_of(forks, {})
        outcome = lp_branch(smaller, taken, self._goal, left)
        if outcome is None:
            return None
        proof, charged, shares = outcome
        branch = ProofBranch(forks, tuple(charged.items()), proof)
        return _Open(branch_seconds(self._problem, branch), self._next(), branch, shares)

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _fork_at(self, open_: _Open) -> int | None:
        """The option to split at, by id.

        This is the option of which the program takes about half, else one that waits in a cycle, else the most
        expensive one.
        """
        decided = {id_ for id_, _ in open_.branch.forks}
        shares = {id_: share for id_, share in open_.taken.items() if id_ not in decided}
        taken = {id_ for id_, share in open_.taken.items() if share > 0.5}
        stuck = _stuck(self._problem, [o for o in self._problem.options if o.id in taken])

        def order(id_: int) -> tuple[float, bool, bool, float, int]:
            half = round(abs(shares[id_] - 0.5), 6)
            return half, id_ not in stuck, shares[id_] < 0.5, -self._costs[id_], id_

        return min(shares, key=order, default=None)


def _stuck(problem: Problem, options: Sequence[Option]) -> set[int]:
    """The ids of ``options`` that wait for each other, or for one that does."""
    written, made = EMPTY, EMPTY
    for option in options:
        written |= problem.outputs(option)
    waiting = list(options)
    while True:
        for node in members(problem.free & ~written):
            if all(made >> source & 1 for source in problem.sources[node]):
                made |= 1 << node
        ready = [
            option
            for option in waiting
            if not problem.inputs(option.inside) & (written | problem.free) & ~made
        ]
        if not ready:
            return {option.id for option in waiting}
        for option in ready:
            made |= problem.outputs(option)
        waiting = [option for option in waiting if option not in ready]
