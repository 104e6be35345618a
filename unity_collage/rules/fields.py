"""Operators with several results, such as ``split``: they fuse with their readers together with all their results."""

from __future__ import annotations

from ..graph import DataflowGraph, IndexSet, Node, OpKind, members
from ..index_set import EMPTY, is_subset


def is_field(node: Node, able: list[bool]) -> bool:
    """Whether a projection is of an operator that can be fused; ``able`` says of each node before it whether it can."""
    return bool(node.inputs) and able[node.inputs[0]]


def with_fields(graph: DataflowGraph, region: IndexSet, field: int) -> IndexSet:
    """The operator that ``field`` is one result of, and all its results, if only ``region`` reads them.

    Empty if something else reads one of them, or the operator is more than injective.
    """
    if not graph.nodes[field].inputs:
        return EMPTY
    source = graph.nodes[graph.nodes[field].inputs[0]]
    fields = graph.consumers[source.index]
    if source.call is None or source.block != graph.nodes[field].block or graph.results >> source.index & 1:
        return EMPTY
    for i in members(fields):
        if graph.nodes[i].op != "getitem" or graph.results >> i & 1:
            return EMPTY
        if not is_subset(graph.consumers[i], region):
            return EMPTY
    return fields | 1 << source.index if graph.kinds[source.index] <= OpKind.INJECTIVE else EMPTY
