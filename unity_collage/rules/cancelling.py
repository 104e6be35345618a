"""Cancelling transposes: two ``permute_dims`` in a row, one the inverse of the other, are a view and cost nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..graph import DataflowGraph, IndexSet, Node, index_set, members, used_vars
from ..graph.shapes import tensor_type
from .base import Found
from .tree import Printed

PERMUTATION = "relax.permute_dims"


@dataclass(frozen=True, slots=True)
class CancellingTransposes(Printed):
    """Pairs of transposes of which the second is the inverse of the first.

    The first one is hidden if other nodes read it too. A kernel that computes both is never better than the pair as a
    view.
    """

    name: str = "cancelling transposes"

    def apply(self, graph: DataflowGraph) -> Iterator[Found]:
        for node in graph.nodes:
            first = transpose_cancelled_by(graph, node)
            if first is not None:
                pair = 1 << first | 1 << node.index
                others = graph.consumers[first] & ~pair or graph.results >> first & 1
                yield Found(pair, self.name, "as it is", hidden=1 << first if others else 0)


def transpose_cancelled_by(graph: DataflowGraph, node: Node) -> int | None:
    """The transpose of the same block that ``node``, its inverse, reads; None if ``node`` cancels nothing.

    It cancels nothing either if its result, or what the first one reads, is changed in place: then they are two values.
    """
    second = _axes(node)
    if second is None or not node.inputs:
        return None
    source = graph.nodes[node.inputs[0]]
    first = _axes(source)
    inverse = first is not None and [first[axis] for axis in second] == list(range(len(second)))
    if not inverse or source.block != node.block or not node.in_dataflow:
        return None
    shared = (node.var, *used_vars(source.value))
    return None if any(map(graph.changed_memory.has, shared)) else source.index


def _axes(node: Node) -> list[int] | None:
    """The axes of a transpose; None for another operator."""
    if node.op != PERMUTATION or node.call is None:
        return None
    rank = tensor_type(node.call.args[0]).ndim
    axes = node.call.attrs.axes
    return list(range(rank))[::-1] if axes is None else [int(axis) % rank for axis in axes]


def cancelling_transposes(graph: DataflowGraph) -> IndexSet:
    """All transposes that are the first or the second of a cancelling pair."""
    pairs = {node.index: transpose_cancelled_by(graph, node) for node in graph.nodes}
    return index_set(i for pair in pairs.items() if None not in pair for i in pair if i is not None)


def cancels_inside(graph: DataflowGraph, inside: IndexSet, source: int) -> bool:
    """Whether a transpose in ``inside`` cancels ``source``, so that one kernel should not compute both."""
    readers = members(graph.consumers[source] & inside)
    return any(transpose_cancelled_by(graph, graph.nodes[i]) == source for i in readers)
