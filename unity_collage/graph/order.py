"""Whether groups of nodes can be computed one after the other, each as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..index_set import EMPTY, IndexSet, first_inside, members
from .dataflow import DataflowGraph


@dataclass(frozen=True, slots=True)
class Unit:
    """Nodes that are computed together."""

    inside: IndexSet
    written: IndexSet
    """Those of them whose values others can read afterwards."""


def why_no_order(graph: DataflowGraph, units: Iterable[Unit], within: IndexSet) -> str | None:
    """Which groups wait for each other, or None if there is an order that respects all reads.

    What of ``within`` no unit writes is computed alone; what is not ``within`` is there from the beginning.
    Two convex groups may still wait for each other: a -> b, a -> d, c -> b, c -> d with {a,d} and {c,b}.
    """
    pending = list(units)
    written = EMPTY
    for unit in pending:
        written |= unit.written
    pending += [Unit(1 << i, 1 << i) for i in members(within & ~written)]
    pending.sort(key=lambda unit: unit.inside.bit_length())
    made = ~within
    while pending:
        waiting: list[Unit] = []
        for unit in pending:
            if reads(graph, unit.inside) & ~made:
                waiting.append(unit)
            else:
                made |= unit.written
        if len(waiting) == len(pending):
            return _who_waits(graph, [unit for unit in waiting if unit.inside.bit_count() > 1])
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


def _who_waits(graph: DataflowGraph, waiting: list[Unit]) -> str:
    names = (f"the one from {graph.nodes[first_inside(unit.inside)].var.name}" for unit in waiting)
    return "groups wait for each other: " + ", ".join(names)
