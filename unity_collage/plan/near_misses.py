"""Near misses of the rewrites at the bindings of the function that was partitioned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ..graph import DataflowGraph, members
from ..graph.kinds import Kind
from .unrecognised import NearMiss, Unrecognised

_STEPS = 8
"""How far from a near miss the bindings of its chain are looked for, in each direction."""


def near_misses_of(graph: DataflowGraph, found: Iterable[Unrecognised]) -> tuple[NearMiss, ...]:
    """Those of ``found`` with a binding that is still there, by name and operator, and the chain that it is in."""
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
    """What the binding is computed from, as far as nothing else reads it and nothing fuses only behind it."""
    for source in graph.nodes[index].inputs if steps else ():
        if _reader(graph, source) == index and graph.kinds[source] < Kind.OUT_EWISE_FUSABLE:
            yield source
            yield from _before(graph, source, steps - 1)


def _behind(graph: DataflowGraph, index: int) -> Iterator[int]:
    """What is computed from the binding, each by the one reader of the binding before."""
    for _ in range(_STEPS):
        reader = _reader(graph, index)
        if reader is None or graph.kinds[reader] >= Kind.OUT_EWISE_FUSABLE:
            return
        yield reader
        index = reader


def _reader(graph: DataflowGraph, index: int) -> int | None:
    """The only binding that reads this one, if nothing else does and the function does not return it."""
    readers = members(graph.consumers[index])
    first = next(iter(readers), None)
    single = first is not None and graph.consumers[index] == 1 << first
    return first if single and not graph.results >> index & 1 else None
