"""The greedy search, as in ``partition_for_*`` functions: the preferred backend takes all it can, then the next one.

Costs do not matter for preferred backends. The nodes that these leave go to the cheapest options of all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..index_set import EMPTY, IndexSet, members, size
from .camps import camps
from .contraction import Contraction
from .plans import is_usable, solution_of
from .problem import NoCover, Option, Problem, Solution


def greedy_cover(problem: Problem, priority: Sequence[str] = ()) -> Solution:
    """A valid plan in which no node is computed twice; its lower bound is 0.

    Backends are taken in the order of ``priority``, each with its largest options first. Then the options of all others
    follow, by their cost for each node. If the taken options leave a node uncovered, those in its way are banned and
    the search restarts. That finds a plan except in rare cases, in which it raises NoCover.
    """
    if problem.exclusions:
        return _of_a_camp(problem, priority)
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


def _of_a_camp(problem: Problem, priority: Sequence[str]) -> Solution:
    """The plan of the first camp that has one; camps with preferred backends come first."""
    refusal: NoCover | None = None
    for camp in camps(problem, priority):
        try:
            return greedy_cover(camp, priority)
        except NoCover as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _turn(problem: Problem, option: Option, priority: Sequence[str]) -> tuple[int, float, int, int]:
    """The sort key of ``option``: smaller is earlier. Options that cost nothing, which are views, come first."""
    nodes = size(option.inside)
    if problem.cost(option) == 0.0:
        return -1, -nodes, 0, option.id
    if option.backend in priority:
        return priority.index(option.backend), -nodes, 0, option.id
    return len(priority), problem.cost(option) / nodes, -nodes, option.id


def _take(problem: Problem, order: Sequence[Option]) -> tuple[list[Option], IndexSet]:
    """The options of ``order`` that fit, taken one after the other, and the nodes that remain uncovered."""
    contraction = Contraction(problem)
    taken: list[Option] = []
    covered = EMPTY
    for option in order:
        if not option.inside & covered and contraction.take(option.inside):
            taken.append(option)
            covered |= option.inside
    return taken, problem.everything & ~problem.free & ~covered


def _blockers(taken: Sequence[Option], holders: list[list[Option]], missing: IndexSet) -> Iterator[int]:
    """Ids of the taken options with several nodes that overlap an option for a missing node.

    If there are none, all taken options with several nodes: one of them puts such an option in a cycle.
    """
    wanted = EMPTY
    for index in members(missing):
        for option in holders[index]:
            wanted |= option.inside
    blocking = [option.id for option in taken if option.inside & wanted and size(option.inside) > 1]
    yield from blocking or (option.id for option in taken if wanted and size(option.inside) > 1)
