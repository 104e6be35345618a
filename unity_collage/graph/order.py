"""Whether groups of nodes can be computed one after the other, each as a whole.

That is the case exactly if the quotient graph, in which each group is one vertex, has no cycle. The check is Kahn's
algorithm (1962): repeatedly take every group whose inputs are all available.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..index_set import EMPTY, IndexSet, first_inside, members
from .dataflow import DataflowGraph


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that are computed together."""

    inside: IndexSet
    written: IndexSet
    """The inside nodes with values that other groups can read afterwards."""


def why_no_order(graph: DataflowGraph, groups: Iterable[NodeGroup], within: IndexSet) -> str | None:
    """Which groups wait for each other, or None if an order exists that respects all reads.

    A node of ``within`` that no group writes is a group of its own; all other nodes are available from the start.
    Convexity of each group is not enough. With the edges a -> b, a -> d, c -> b and c -> d, the groups {a,d} and {c,b}
    are convex. Yet they wait for each other.
    """
    pending = list(groups)
    written = EMPTY
    for group in pending:
        written |= group.written
    pending += [NodeGroup(1 << i, 1 << i) for i in members(within & ~written)]
    pending.sort(key=lambda group: group.inside.bit_length())
    made = ~within
    while pending:
        waiting: list[NodeGroup] = []
        for group in pending:
            if reads(graph, group.inside) & ~made:
                waiting.append(group)
            else:
                made |= group.written
        if len(waiting) == len(pending):
            return _waiting_groups(graph, [group for group in waiting if group.inside.bit_count() > 1])
        pending = waiting
    return None


def reads(graph: DataflowGraph, inside: IndexSet) -> IndexSet:
    """The outside nodes that ``inside`` reads."""
    found = EMPTY
    for i in members(inside):
        for source in graph.nodes[i].inputs:
            found |= 1 << source
    return found & ~inside


def read_outside(graph: DataflowGraph, inside: IndexSet) -> IndexSet:
    """The inside nodes that something outside reads or that the function returns."""
    found = inside & graph.results
    for i in members(inside):
        if graph.consumers[i] & ~inside:
            found |= 1 << i
    return found


def _waiting_groups(graph: DataflowGraph, waiting: list[NodeGroup]) -> str:
    names = (f"the one from {graph.nodes[first_inside(group.inside)].var.name}" for group in waiting)
    return "groups wait for each other: " + ", ".join(names)
