"""Region: a growing sub-graph with a border that is updated incrementally instead of being computed again."""

from __future__ import annotations

from dataclasses import dataclass

from ..graph import DataflowGraph, IndexSet, Limits, Nested, OpKind, SubGraph, members
from ..graph.nested import why_not_nested
from ..graph.order import read_outside
from ..graph.union import in_order
from ..index_set import EMPTY


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """A set of nodes with its border, as :class:`Combine` needs it."""

    inside: IndexSet
    hidden: IndexSet
    nested: tuple[Nested, ...]
    input: IndexSet
    """Outside nodes that it reads."""
    exit: IndexSet
    """Inside nodes that are read outside, or returned, and not hidden."""
    kind: OpKind
    """The largest kind inside. A bound tuple counts as INJECTIVE, since it only collects values."""
    size: int
    depth: int
    """An upper bound of the longest path inside, in nodes."""
    is_seed: bool = False
    """Whether it is a single node that no rule has proposed: a tuple or a projection, useful only in a union."""

    @property
    def last(self) -> int:
        """The largest index inside."""
        return self.inside.bit_length() - 1

    @property
    def key(self) -> tuple[IndexSet, IndexSet, tuple[Nested, ...]]:
        """Two regions with one key are the same proposal."""
        return (self.inside, self.hidden, self.nested)


def region(
    graph: DataflowGraph,
    inside: IndexSet,
    hidden: IndexSet = EMPTY,
    nested: tuple[Nested, ...] = (),
    *,
    is_seed: bool = False,
) -> Region:
    """The region of these nodes, computed from the graph."""
    sub = SubGraph(graph, inside, hidden)
    kind = max(_kind(graph, i) for i in members(inside))
    return Region(inside, hidden, nested, sub.input, sub.exit, kind, inside.bit_count(), sub.depth, is_seed)


def joined(graph: DataflowGraph, up: Region, down: Region, limits: Limits) -> Region | None:
    """The union of two disjoint regions, or None if it is not valid within ``limits``.

    The checks are those of :meth:`SubGraph.why_not_valid`, on borders that are updated instead of computed again.
    """
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
    """The exits of ``part`` that are also exits of ``inside``."""
    outside, results, found = ~inside, graph.results, EMPTY
    for i in members(part.exit):
        if graph.consumers[i] & outside or results >> i & 1:
            found |= 1 << i
    return found


def _kind(graph: DataflowGraph, index: int) -> OpKind:
    kind = graph.kinds[index]
    return OpKind.INJECTIVE if kind is OpKind.TUPLE else kind
