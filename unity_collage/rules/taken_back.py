"""Permutations that take each other back: together they are a view, which costs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..graph import DataflowGraph, IndexSet, Node, index_set, members
from ..graph.shapes import tensor_type
from .base import Found
from .tree import Printed

PERMUTATION = "relax.permute_dims"


@dataclass(frozen=True, slots=True)
class TakenBack(Printed):
    """Pairs of permutations of which the second restores what the first was given.

    The first is hidden where others read it too. Kernels with both inside are never better than the pair beside them.
    """

    name: str = "taken back"

    def apply(self, graph: DataflowGraph) -> Iterator[Found]:
        for node in graph.nodes:
            first = taken_back(graph, node)
            if first is not None:
                pair = 1 << first | 1 << node.index
                others = graph.consumers[first] & ~pair or graph.results >> first & 1
                yield Found(pair, self.name, "as it is", hidden=1 << first if others else 0)


def taken_back(graph: DataflowGraph, node: Node) -> int | None:
    """The permutation whose result ``node`` permutes back, in the same block; None if it does no such thing."""
    second = _axes(node)
    if second is None or not node.inputs:
        return None
    source = graph.nodes[node.inputs[0]]
    first = _axes(source)
    inverse = first is not None and [first[axis] for axis in second] == list(range(len(second)))
    return source.index if inverse and source.block == node.block and node.in_dataflow else None


def _axes(node: Node) -> list[int] | None:
    """The axes of a permutation."""
    if node.op != PERMUTATION or node.call is None:
        return None
    rank = tensor_type(node.call.args[0]).ndim
    axes = node.call.attrs.axes
    return list(range(rank))[::-1] if axes is None else [int(axis) % rank for axis in axes]


def in_pairs(graph: DataflowGraph) -> IndexSet:
    """All permutations that are taken back, and those that take them back."""
    pairs = {node.index: taken_back(graph, node) for node in graph.nodes}
    return index_set(i for pair in pairs.items() if None not in pair for i in pair if i is not None)


def reads_back(graph: DataflowGraph, inside: IndexSet, source: int) -> bool:
    """Whether a permutation in ``inside`` takes back ``source``, so that no kernel should have both."""
    return any(taken_back(graph, graph.nodes[i]) == source for i in members(graph.consumers[source] & inside))
