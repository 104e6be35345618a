"""Region: a sub-graph in the making, whose border is kept up to date instead of computed anew."""

from __future__ import annotations

from dataclasses import dataclass

from ..graph import DataflowGraph, IndexSet, Kind, Limits, Nested, SubGraph, members
from ..graph.nested import why_not_nested
from ..graph.order import read_outside
from ..graph.union import in_order
from ..index_set import EMPTY


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """What :class:`Combine` knows of a set of nodes."""

    inside: IndexSet
    hidden: IndexSet
    nested: tuple[Nested, ...]
    input: IndexSet
    """Outside nodes that it reads."""
    exit: IndexSet
    """Inside nodes that are read outside, or returned, and not hidden."""
    kind: Kind
    """The largest kind inside; a bound tuple counts as INJECTIVE: it only collects values."""
    size: int
    depth: int
    """At least the longest path inside, in nodes."""
    is_seed: bool = False
    """One node that no rule has proposed: a tuple or a projection, which makes sense in company only."""

    @property
    def last(self) -> int:
        """The largest index inside."""
        return self.inside.bit_length() - 1

    @property
    def key(self) -> tuple[IndexSet, IndexSet, tuple[Nested, ...]]:
        """What makes two regions one proposal."""
        return (self.inside, self.hidden, self.nested)


def region(
    graph: DataflowGraph,
    inside: IndexSet,
    hidden: IndexSet = EMPTY,
    nested: tuple[Nested, ...] = (),
    *,
    is_seed: bool = False,
) -> Region:
    """The region of these nodes, computed from nothing."""
    sub = SubGraph(graph, inside, hidden)
    kind = max(_kind(graph, i) for i in members(inside))
    return Region(inside, hidden, nested, sub.input, sub.exit, kind, inside.bit_count(), sub.depth, is_seed)


def joined(graph: DataflowGraph, up: Region, down: Region, limits: Limits) -> Region | None:
    """The union of two disjoint regions if it is within ``limits``, as :class:`SubGraph` would judge it."""
    inside = up.inside | down.inside
    exits, hidden = _still_read(graph, up, inside), up.hidden | down.hidden
    exits |= _still_read(graph, down, inside)
    if limits.max_exits and exits.bit_count() > limits.max_exits:
        return None
    if not limits.allow_taps and any(graph.consumers[i] & inside for i in members(exits)):
        return None
    inputs = (up.input | down.input) & ~inside
    upstream = graph.upstream
    for source in members(inputs):
        if upstream[source] & exits:
            return None
    depth = up.depth + down.depth
    if limits.max_depth and depth > limits.max_depth:
        depth = SubGraph(graph, inside).depth
        if depth > limits.max_depth:
            return None
    nested = up.nested
    if down.nested:
        nested = in_order((*up.nested, *down.nested))
        if why_not_nested(graph, inside, nested) is not None:
            return None
    if hidden:
        hidden &= read_outside(graph, inside)
    return Region(inside, hidden, nested, inputs, exits, max(up.kind, down.kind), up.size + down.size, depth)


def _still_read(graph: DataflowGraph, part: Region, inside: IndexSet) -> IndexSet:
    """Those exits of ``part`` that are exits of ``inside`` too."""
    outside, results, found = ~inside, graph.results, EMPTY
    for i in members(part.exit):
        if graph.consumers[i] & outside or results >> i & 1:
            found |= 1 << i
    return found


def _kind(graph: DataflowGraph, index: int) -> Kind:
    kind = graph.kinds[index]
    return Kind.INJECTIVE if kind is Kind.TUPLE else kind
