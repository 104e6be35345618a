"""Sub-graphs made from sub-graphs: the union of two, one as a single labelled part, one moved to another graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..index_set import IndexSet, first_inside, index_set, members, to_text
from .dataflow import DataflowGraph
from .nested import Nested
from .order import read_outside
from .sub_graph import SubGraph


def disjoint_union(first: SubGraph, second: SubGraph) -> SubGraph | str:
    """Both sub-graphs as one, with the parts of both, or the reason why they cannot be united.

    A hidden node stays hidden while a node outside of the union reads it. Whether the union may be a kernel is a
    separate question (:meth:`SubGraph.why_not_valid`).
    """
    if first.graph is not second.graph:
        return "sub-graphs of two graphs"
    if shared := first.inside & second.inside:
        return f"both hold {to_text(shared)}"
    inside = first.inside | second.inside
    hidden = first.hidden | second.hidden
    if hidden:
        hidden &= read_outside(first.graph, inside)
    return SubGraph(first.graph, inside, hidden, in_order((*first.nested, *second.nested)))


def in_order(parts: tuple[Nested, ...]) -> tuple[Nested, ...]:
    """``parts`` by first node."""
    return tuple(sorted(parts, key=lambda part: first_inside(part.inside)))


def wrapped(sub: SubGraph, label: str) -> SubGraph:
    """``sub`` as a single part named ``label``, which replaces the parts that it had."""
    return replace(sub, nested=(Nested(sub.inside, label),))


def substituted(sub: SubGraph, graph: DataflowGraph, mapping: Mapping[int, int]) -> SubGraph | str:
    """``sub`` in another graph, in which node ``mapping[i]`` stands for node ``i``, or the reason why that fails.

    Several nodes may map to one node, such as the call of the function that was made of them.
    """
    gone = [i for i in members(sub.inside) if i not in mapping]
    if gone:
        node = sub.graph.nodes[gone[0]]
        return f"{node.var.name} ({node.op}) has no counterpart in the other graph"

    def there(indexes: IndexSet) -> IndexSet:
        return index_set(mapping[i] for i in members(indexes))

    parts = tuple(Nested(there(part.inside), part.label) for part in sub.nested)
    return SubGraph(graph, there(sub.inside), there(sub.hidden), in_order(parts))


def index_mapping(old: DataflowGraph, new: DataflowGraph) -> dict[int, int]:
    """The indexes in ``new`` of the nodes of ``old``, matched by variable: outlining keeps variables that are read."""
    return {node.index: new.index_of[node.var] for node in old.nodes if node.var in new.index_of}
