"""A graph whose nodes are merged into kernels one by one, kept in an order in which they can run.

The order makes the question whether a merge closes a cycle a local one: only what stands between the first and
the last node of the new kernel can lie on a path that leaves it and comes back.
"""

from __future__ import annotations

from ..index_set import IndexSet, members
from .problem import Problem


class Contraction:
    """Groups of nodes in an order; in the beginning each node is a group."""

    def __init__(self, problem: Problem):
        self._readers = [list(members(readers)) for readers in problem.readers]
        self._group = list(range(len(problem)))
        self._members: dict[int, list[int]] = {index: [index] for index in range(len(problem))}
        self._order: list[int] = list(range(len(problem)))
        self._place: dict[int, int] = {group: group for group in self._order}

    def take(self, inside: IndexSet) -> bool:
        """Merge ``inside``, whose nodes are alone so far, unless the groups would then wait for each other."""
        nodes = list(members(inside))
        places = [self._place[self._group[node]] for node in nodes]
        after = self._behind(nodes, max(places))
        if after is None:
            return False
        self._merge(nodes, after, min(places), max(places))
        return True

    def _behind(self, nodes: list[int], last: int) -> set[int] | None:
        """The outside groups up to ``last`` that depend on ``nodes``; None if these depend on one of them."""
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
        """Whether one of ``inside`` reads ``group``, which depends on them."""
        return any(reader in inside for node in self._members[group] for reader in self._readers[node])

    def _merge(self, nodes: list[int], after: set[int], first: int, last: int) -> None:
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
