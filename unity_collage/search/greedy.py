"""What ``partition_for_*`` functions do: the preferred backend takes the most it can, then the next one.

No cost is asked while a preferred backend finds something to take; what is left goes to the cheapest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..index_set import EMPTY, IndexSet, members, size
from .contraction import Contraction
from .plans import is_usable, solution_of
from .problem import NoCover, Option, Problem, Solution


def greedy_cover(problem: Problem, priority: Sequence[str] = ()) -> Solution:
    """A valid plan: backends in the order of ``priority``, each its largest options first; then, of all others,
    those that are the cheapest by node. No node is computed twice.

    When what was taken leaves a node uncovered, it is given up again and the whole starts anew without it, so a plan
    is found in all but odd cases; raises NoCover if not. Its lower bound is 0.
    """
    alone = Problem(problem.sources, problem.free, (), results=problem.results)
    options = [option for option in problem.options if is_usable(alone, option)]
    order = sorted(options, key=lambda option: _turn(problem, option, priority))
    holders: list[list[Option]] = [[] for _ in problem.sources]
    for option in order:
        for index in members(option.inside):
            holders[index].append(option)
    banned: set[int] = set()
    while True:
        taken, missing = _take(problem, [option for option in order if option.id not in banned])
        if not missing:
            return solution_of(problem, taken, "greedy", visited=len(options))
        blockers = set(_blockers(taken, holders, missing)) - banned
        if not blockers:
            raise NoCover((missing & -missing).bit_length() - 1)
        banned |= blockers


def _turn(problem: Problem, option: Option, priority: Sequence[str]) -> tuple[int, float, int, int]:
    """Smaller is earlier; what costs nothing, a view, is before all else."""
    nodes = size(option.inside)
    if problem.cost(option) == 0.0:
        return -1, -nodes, 0, option.id
    if option.backend in priority:
        return priority.index(option.backend), -nodes, 0, option.id
    return len(priority), problem.cost(option) / nodes, -nodes, option.id


def _take(problem: Problem, order: Sequence[Option]) -> tuple[list[Option], IndexSet]:
    """All that fits, one after the other, and the nodes that nobody makes then."""
    contraction = Contraction(problem)
    taken: list[Option] = []
    covered = EMPTY
    for option in order:
        if not option.inside & covered and contraction.take(option.inside):
            taken.append(option)
            covered |= option.inside
    return taken, problem.everything & ~problem.free & ~covered


def _blockers(taken: Sequence[Option], holders: list[list[Option]], missing: IndexSet) -> Iterator[int]:
    """Ids of the taken kernels that stand where options for the missing nodes would be; if none
    does, of those that have several nodes, since one of them makes an option wait for itself.
    """
    wanted = EMPTY
    for index in members(missing):
        for option in holders[index]:
            wanted |= option.inside
    blocking = [option.id for option in taken if option.inside & wanted and size(option.inside) > 1]
    yield from blocking or (option.id for option in taken if wanted and size(option.inside) > 1)
