"""The search problem that the annotations of a function state, for the checker of plans.

It is made anew from the bindings, ``collage.candidates`` and ``collage.costs``, not by :mod:`.problem`, which makes the
problem that is searched. So a fault there is a difference here. Three things are asked of the same code: the graph of
the bindings, what TVM compiles without a kernel, and the cost of a transition between two measured sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..graph import DataflowGraph
from ..graph.shapes import nbytes_of
from ..index_set import index_set
from ..search import Option, Problem
from .candidate import Candidate
from .costs import UNKNOWN, Cost, Costs, at_size
from .problem import possible_without_kernels

DRIFT = 0.025
"""By what part costs that were not timed in turns may differ by chance, if any was timed."""

Way = frozenset[int]
"""What must be there so that a value can be made."""


def posed(
    graph: DataflowGraph, candidates: Iterable[Candidate], costs: Costs, redundant: bool = True
) -> Problem:
    """The problem of all candidates that may have a cost: one that was not measured costs its lower bound."""
    sources = [frozenset(node.inputs) for node in graph.nodes]
    results = {index for index in range(len(graph)) if graph.results >> index & 1}
    measured: list[Option] = []
    unmeasured: list[Option] = []
    for candidate in candidates:
        cost = costs.by_key[costs.keys[candidate.id]]
        if cost.seconds is not None:
            measured.append(_option(candidate, cost.seconds, cost))
        elif cost.bound is not None or cost.origin == UNKNOWN:
            unmeasured.append(_option(candidate, cost.bound or 0.0, cost))
    transitions: dict[tuple[str, str], float | tuple[float, ...]] = {}
    for pair, points in costs.transitions.items():
        writer, reader = pair.split(">")
        sizes = (nbytes_of(node.var) for node in graph.nodes)
        transitions[writer, reader] = tuple(at_size(points, nbytes) for nbytes in sizes)
    return Problem(
        sources=tuple(node.inputs for node in graph.nodes),
        free=index_set(_leavable(graph, sources, results, measured)),
        options=(*measured, *unmeasured),
        launch_seconds=costs.launch_seconds,
        results=index_set(results),
        transitions=transitions,
        launches=dict(costs.launches),
        exclusions=tuple(_pair(text) for text in costs.exclusions),
        redundant=redundant,
        drift=DRIFT if any(cost.runs for cost in costs.by_key.values()) else 0.0,
    )


def _pair(text: str) -> tuple[str, str]:
    one, other = text.split("|")
    return one, other


def _option(candidate: Candidate, seconds: float, cost: Cost) -> Option:
    inside, hidden = index_set(candidate.indexes), index_set(candidate.hidden)
    interval = cost.interval or (None, None)
    return Option(candidate.id, inside, seconds, hidden, candidate.backend, *interval)


def _leavable(
    graph: DataflowGraph, sources: Sequence[Way], results: set[int], measured: Sequence[Option]
) -> set[int]:
    """The bindings that a plan may leave behind.

    The VM evaluates some. TVM compiles what is in no measured candidate. If a result cannot be made of these and the
    measured candidates, what is missing on the way with the fewest missing values may be left behind too.
    """
    possible = possible_without_kernels(graph)
    inside = {index for option in measured for index in range(len(graph)) if option.inside >> index & 1}
    left = {node.index for node in graph.nodes if node.is_host}
    left |= {index for index in range(len(graph)) if index not in inside and possible >> index & 1}
    ways: list[list[Way]] = [[sources[index]] if index in left else [] for index in range(len(graph))]
    for option in measured:
        _add_ways(graph, sources, results, option, ways)
    there = _reachable(ways)
    missing = sorted(results - there)
    while missing:
        index = missing.pop()
        if index in there:
            continue
        there.add(index)
        if not ways[index] and possible >> index & 1:
            left.add(index)
            ways[index].append(sources[index])
        if ways[index]:
            missing += sorted(min(ways[index], key=lambda way: len(way - there)) - there)
    return left


def _add_ways(
    graph: DataflowGraph, sources: Sequence[Way], results: set[int], option: Option, ways: list[list[Way]]
) -> None:
    """Add what ``option`` reads to the ways of each value that it writes."""
    inside = {index for index in range(len(sources)) if option.inside >> index & 1}
    reads: Way = frozenset[int]().union(*(sources[index] for index in inside)) - inside
    for index in inside:
        is_read = index in results or bool(graph.consumers[index] & ~option.inside)
        if is_read and not option.hidden >> index & 1:
            ways[index].append(reads)


def _reachable(ways: Sequence[Sequence[Way]]) -> set[int]:
    """The values that can be made, one after the other."""
    there: set[int] = set()
    while True:
        more = {
            index
            for index, of_value in enumerate(ways)
            if index not in there and any(way <= there for way in of_value)
        }
        if not more:
            return there
        there |= more
