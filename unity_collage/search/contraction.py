"""Merges the nodes of a graph into kernels one by one, and maintains a topological order of the kernels.

A merge closes a cycle if a path leaves the new kernel and comes back. Every node of such a path lies between the first
and the last node of the kernel in the topological order. So only that stretch is searched and reordered. This is the
idea of dynamic topological sorting (Pearce and Kelly, 2006), applied to edge contraction.

Invariants: each node is in one group; groups are in an order in which they can run; ``_place`` is the position of each
group in ``_order``. Positions that a merge leaves empty are -1.
"""

from __future__ import annotations

from ..index_set import IndexSet, members
from .problem import Problem


class Contraction:
    """Groups of nodes in topological order; at first each node is a group."""

    def __init__(self, problem: Problem):
        self._readers = [list(members(readers)) for readers in problem.readers]
        self._group = list(range(len(problem)))
        self._members: dict[int, list[int]] = {index: [index] for index in range(len(problem))}
        self._order: list[int] = list(range(len(problem)))
        self._place: dict[int, int] = {group: group for group in self._order}

    def take(self, inside: IndexSet) -> bool:
        """Merge the nodes ``inside``, which are single groups so far; returns False if that would close a cycle."""
        nodes = list(members(inside))
        places = [self._place[self._group[node]] for node in nodes]
        after = self._behind(nodes, max(places))
        if after is None:
            return False
        self._merge(nodes, after, min(places), max(places))
        return True

    def _behind(self, nodes: list[int], last: int) -> set[int] | None:
        """The groups outside, up to position ``last``, that depend on ``nodes``; None if ``nodes`` depend on one of
        them."""
        inside = set(nodes)
        found: set[int] = set()
        waiting = list(nodes)
        while waiting:
            for reader in self._readers[waiting.pop()]:
                group = self._group[reader]
                if reader in inside or group in found or self._place[group] > last:
                    continue
                if self._reads(group, inside):
                    return None
                found.add(group)
                waiting += self._members[group]
        return found

    def _reads(self, group: int, inside: set[int]) -> bool:
        """Whether a node of ``inside`` reads a node of ``group``."""
        return any(reader in inside for node in self._members[group] for reader in self._readers[node])

    def _merge(self, nodes: list[int], after: set[int], first: int, last: int) -> None:
        """Put the merged group behind the independent groups of the stretch and before those in ``after``."""
        merged = nodes[0]
        gone = {self._group[node] for node in nodes}
        between = [group for group in self._order[first : last + 1] if group >= 0 and group not in gone]
        order = [group for group in between if group not in after]
        order += [merged, *(group for group in between if group in after)]
        self._members[merged] = nodes
        for node in nodes:
            self._group[node] = merged
        self._order[first : last + 1] = order + [-1] * (last + 1 - first - len(order))
        for place, group in enumerate(order, first):
            self._place[group] = place
