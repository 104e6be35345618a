"""The partitioning problem and its solution as plain data.

Nodes are post-dfs indexes ``0 .. n-1``: a node reads only smaller ones. Index sets are ints, bit ``i`` for
node ``i``. Nothing here knows of TVM.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from ..index_set import EMPTY, IndexSet, first_n, members


@dataclass(frozen=True, slots=True)
class Option:
    """A priced candidate: these nodes as one kernel."""

    id: int
    inside: IndexSet
    seconds: float
    """Price of one run, without the launch."""


@dataclass(frozen=True)
class Problem:
    """Which kernels shall compute the graph?"""

    sources: tuple[tuple[int, ...], ...]
    """For each node, the nodes that it reads."""
    free: IndexSet
    """Nodes that may be left behind at no cost."""
    options: tuple[Option, ...]
    launch_seconds: float = 0.0
    """Charged once for every chosen option."""

    def __len__(self) -> int:
        return len(self.sources)

    @cached_property
    def upstream(self) -> tuple[IndexSet, ...]:
        """For each node, itself and all nodes it depends on."""
        reach: list[IndexSet] = []
        for index, sources in enumerate(self.sources):
            here = 1 << index
            for source in sources:
                here |= reach[source]
            reach.append(here)
        return tuple(reach)

    def inputs(self, inside: IndexSet) -> IndexSet:
        """The outside nodes that ``inside`` reads."""
        found = EMPTY
        for index in members(inside):
            for source in self.sources[index]:
                found |= 1 << source
        return found & ~inside

    @cached_property
    def everything(self) -> IndexSet:
        return first_n(len(self))


@dataclass(frozen=True)
class Solution:
    """A cheapest cover."""

    chosen: tuple[Option, ...]
    left_behind: IndexSet
    seconds: float
    """Prices and launches of the chosen options."""
    lower_bound: float
    """No cover is cheaper than this."""
    visited: int
    """How many states the search expanded."""


class NoCover(Exception):
    """Some node is in no option and may not be left behind; ``index`` names the first one."""

    def __init__(self, index: int):
        super().__init__(f"node {index} is in no candidate and cannot be left behind")
        self.index = index


def uncoverable(problem: Problem) -> Iterator[int]:
    """The nodes that no option contains and that may not be left behind, in order."""
    covered = problem.free
    for option in problem.options:
        covered |= option.inside
    yield from members(problem.everything & ~covered)


def why_not_cover(problem: Problem, chosen: Iterable[Option], left_behind: IndexSet) -> str | None:
    """What is wrong with a claimed cover, or None: every node once, nothing left behind
    that must not be, and kernels that can be put in an order.
    """
    covered = left_behind
    if left_behind & ~problem.free:
        return f"node {next(members(left_behind & ~problem.free))} must not be left behind"
    groups = [1 << index for index in members(left_behind)]
    for option in chosen:
        if option.inside & covered:
            return f"option {option.id} covers a node a second time"
        covered |= option.inside
        groups.append(option.inside)
    if covered != problem.everything:
        return f"node {next(members(problem.everything & ~covered))} is not covered"
    return _why_cyclic(problem, groups)


def _why_cyclic(problem: Problem, groups: list[IndexSet]) -> str | None:
    waiting, done = [(group, problem.inputs(group)) for group in groups], EMPTY
    while waiting:
        ready = [group for group, inputs in waiting if not inputs & ~done]
        if not ready:
            return f"{len(waiting)} kernels wait for each other"
        for group in ready:
            done |= group
        waiting = [(group, inputs) for group, inputs in waiting if group & ~done]
    return None
