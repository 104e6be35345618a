"""Near misses of the rewrites, found again among the bindings of the partitioned function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ..graph import DataflowGraph, members
from ..graph.kinds import OpKind
from .unrecognised import NearMiss, Unrecognised

_STEPS = 8
"""How many bindings of its chain before and after a near miss are found."""


def near_misses_of(graph: DataflowGraph, found: Iterable[Unrecognised]) -> tuple[NearMiss, ...]:
    """The near misses among ``found`` with a binding that still exists, by name and operator, each with its chain."""
    by_name = {node.var.name: node for node in graph.nodes}
    times = Counter(node.var.name for node in graph.nodes)
    placed = [
        (miss, by_name[miss.binding].index)
        for miss in found
        if times[miss.binding] == 1 and by_name[miss.binding].op == miss.op
    ]
    return tuple(
        NearMiss(miss.rule, miss.reason, (index, *_behind(graph, index), *_before(graph, index)))
        for miss, index in placed
    )


def _before(graph: DataflowGraph, index: int, steps: int = _STEPS) -> Iterator[int]:
    """The bindings before it that nothing else reads, up to an operator that can only be followed by others."""
    for source in graph.nodes[index].inputs if steps else ():
        if _reader(graph, source) == index and graph.kinds[source] < OpKind.OUT_EWISE_FUSABLE:
            yield source
            yield from _before(graph, source, steps - 1)


def _behind(graph: DataflowGraph, index: int) -> Iterator[int]:
    """The bindings after it: each is the only reader of the one before."""
    for _ in range(_STEPS):
        reader = _reader(graph, index)
        if reader is None or graph.kinds[reader] >= OpKind.OUT_EWISE_FUSABLE:
            return
        yield reader
        index = reader


def _reader(graph: DataflowGraph, index: int) -> int | None:
    """The only reader of this binding; None if there are several, or if the function returns it."""
    readers = members(graph.consumers[index])
    first = next(iter(readers), None)
    single = first is not None and graph.consumers[index] == 1 << first
    return first if single and not graph.results >> index & 1 else None
