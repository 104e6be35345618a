"""Combiners: which two touching regions may become one, and which further nodes belong to a region."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax

from ..graph import DataflowGraph, IndexSet, OpKind, index_set, members, used_vars
from ..graph.order import read_outside
from ..index_set import EMPTY, is_subset
from .region import Region
from .tree import Printed


class Combiner(Printed):
    """One way to make larger regions. The defaults here do nothing; each combiner overrides what it does."""

    __slots__ = ()

    def seeds(self, graph: DataflowGraph) -> IndexSet:
        """Nodes that may be part of a region although no rule proposes them; they are never offered alone."""
        return EMPTY

    def joins(self, graph: DataflowGraph, up: Region, down: Region) -> bool:
        """Whether ``up``, which feeds ``down``, may be computed together with it."""
        return False

    def widened(self, graph: DataflowGraph, part: Region) -> tuple[IndexSet, IndexSet] | None:
        """The inside and hidden nodes of ``part`` with all that belongs to it, or None if nothing is to be added."""
        return None


@dataclass(frozen=True, slots=True)
class ByKind(Combiner):
    """A region of at most the upstream kind feeds one of at most the downstream kind: A -> B, B -> R, I -> I, ..."""

    upstream_kind: OpKind
    downstream_kind: OpKind

    def joins(self, graph: DataflowGraph, up: Region, down: Region) -> bool:
        if up.is_seed or down.is_seed:
            return False
        return up.kind <= self.upstream_kind and down.kind <= self.downstream_kind


@dataclass(frozen=True, slots=True)
class TupleArgument(Combiner):
    """Values that reach their reader through a tuple, one field or several: ``concat((a, b))``.

    The tuple may be a binding or be written inline. A value that is in the tuple twice counts once.
    """

    upstream_kind: OpKind = OpKind.INJECTIVE
    downstream_kind: OpKind = OpKind.INJECTIVE

    def seeds(self, graph: DataflowGraph) -> IndexSet:
        return _nodes_of(graph, "tuple")

    def joins(self, graph: DataflowGraph, up: Region, down: Region) -> bool:
        if down.is_seed or up.kind > self.upstream_kind or down.kind > self.downstream_kind:
            return False
        if up.is_seed:
            return graph.nodes[up.last].op == "tuple"
        return any(
            _in_tuple(graph, reader, source)
            for source in members(up.exit & down.input)
            for reader in members(graph.consumers[source] & down.inside)
        )


@dataclass(frozen=True, slots=True)
class TupleProjection(Combiner):
    """Values that reach their reader as an element of a tuple: ``split(x)[0]``.

    One projection joins the producer of the tuple, or the reader of the element. All projections at once join the
    producer if nothing else reads the tuple.
    """

    upstream_kind: OpKind = OpKind.OUT_EWISE_FUSABLE
    downstream_kind: OpKind = OpKind.INJECTIVE

    def seeds(self, graph: DataflowGraph) -> IndexSet:
        return _nodes_of(graph, "getitem")

    def joins(self, graph: DataflowGraph, up: Region, down: Region) -> bool:
        if up.kind > self.upstream_kind or down.kind > self.downstream_kind:
            return False
        if up.is_seed:
            return graph.nodes[up.last].op == "getitem" and not down.is_seed
        return any(
            graph.nodes[reader].op == "getitem"
            for source in members(up.exit & down.input)
            for reader in members(graph.consumers[source] & down.inside)
        )

    def widened(self, graph: DataflowGraph, part: Region) -> tuple[IndexSet, IndexSet] | None:
        if part.kind > self.upstream_kind or part.exit.bit_count() != 1:
            return None
        made = part.exit.bit_length() - 1
        readers = graph.consumers[made] & ~part.inside
        if not readers or graph.results >> made & 1 or not is_subset(readers, _nodes_of(graph, "getitem")):
            return None
        return part.inside | readers, part.hidden


@dataclass(frozen=True, slots=True)
class Constant(Combiner):
    """All bound constants that a region reads, at once; those that other nodes read too are hidden.

    Inline constants belong to the call that mentions them in any case.
    """

    def widened(self, graph: DataflowGraph, part: Region) -> tuple[IndexSet, IndexSet] | None:
        constants = index_set(i for i in members(part.input) if graph.nodes[i].op == "constant")
        if not constants:
            return None
        inside = part.inside | constants
        return inside, part.hidden | read_outside(graph, inside) & constants


@dataclass(frozen=True, slots=True)
class JoinAnything(Combiner):
    """Any two touching regions: for backends that take every sub-graph of the operators that they know."""

    def joins(self, graph: DataflowGraph, up: Region, down: Region) -> bool:
        return True


def _nodes_of(graph: DataflowGraph, op: str) -> IndexSet:
    return index_set(node.index for node in graph.nodes if node.op == op and node.in_dataflow)


def _in_tuple(graph: DataflowGraph, reader: int, source: int) -> bool:
    """Whether ``reader`` is a tuple, or a call with a tuple argument, of which ``source`` is a field."""
    node, var = graph.nodes[reader], graph.nodes[source].var
    if node.call is None:
        return node.op == "tuple"
    tuples = (arg for arg in node.call.args if isinstance(arg, relax.Tuple))
    return any(used == var for arg in tuples for used in used_vars(arg))
