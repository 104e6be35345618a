"""The search problem that the annotations of a function state, for the checker of plans.

It is built from the bindings, ``collage.candidates`` and ``collage.costs``, independently of :mod:`.problem`, which
makes the problem that is searched. So a fault there shows as a difference. Both share the code for three things: the
graph of the bindings, what TVM compiles without a kernel, and the cost of a transition between two measured sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum

from ..graph import DataflowGraph
from ..graph.shapes import nbytes_of
from ..graph.variants import at_sizes
from ..index_set import IndexSet, index_set
from ..search import Option, Problem
from .candidate import Candidate
from .costs import EXPECTED, UNKNOWN, Cost, Costs, at_size
from .problem import possible_without_kernels

DRIFT = 0.025
"""The part by which costs that were not timed in turns may differ by chance, if any was timed."""

Way = frozenset[int]
"""The values that must exist so that a value can be computed."""


@dataclass(frozen=True, slots=True)
class PosedSample:
    """The problem of a function with free sizes at one sample."""

    sizes: Mapping[str, int]
    weight: float
    problem: Problem


def posed(
    graph: DataflowGraph, candidates: Iterable[Candidate], costs: Costs, redundant: bool = True
) -> Problem:
    """The problem of all candidates that may have a cost: one that was not measured costs its lower bound.

    One with an expected cost has that cost and the lower bound, with which proofs count.
    Where costs are known at several samples, it is the weighted sum of the problems there.
    """
    if costs.samples:
        return weighted_sum(posed_samples(graph, candidates, costs, redundant))
    return _posed(graph, candidates, costs, (costs.by_key,), redundant)[0]


def posed_samples(
    graph: DataflowGraph, candidates: Iterable[Candidate], costs: Costs, redundant: bool = True
) -> list[PosedSample]:
    """The problem at each sample of ``costs``, each made of the costs there; all have the same options."""
    tables = tuple(sample.by_key for sample in costs.samples)
    problems = _posed(graph, candidates, costs, tables, redundant)
    return [
        PosedSample(
            sample.sizes, sample.weight, replace(problem, transitions=_at(graph, costs, sample.sizes))
        )
        for sample, problem in zip(costs.samples, problems, strict=True)
    ]


def weighted_sum(samples: Sequence[PosedSample]) -> Problem:
    """The problem in which each option and transition costs the weighted sum of its costs at the samples."""
    weights = [sample.weight for sample in samples]

    def summed(values: Iterable[float]) -> float:
        return fsum(weight * value for weight, value in zip(weights, values, strict=True))

    first = samples[0].problem
    options: list[Option] = []
    for each in zip(*(sample.problem.options for sample in samples), strict=True):
        has_interval = any(option.low is not None for option in each)
        low, high = (summed(option.interval[end] for option in each) for end in (0, 1))
        ends = (low, high) if has_interval else (None, None)
        seconds, least = summed(option.seconds for option in each), _least_of(each, summed)
        options.append(replace(each[0], seconds=seconds, low=ends[0], high=ends[1], least=least))
    transitions: dict[tuple[str, str], float | tuple[float, ...]] = {}
    for pair in first.transitions:
        rows = [_by_node(sample.problem, pair) for sample in samples]
        transitions[pair] = tuple(map(summed, zip(*rows, strict=True)))
    drift = max(sample.problem.drift for sample in samples)
    return replace(first, options=tuple(options), transitions=transitions, drift=drift)


def _least_of(each: Sequence[Option], summed: Callable[[Iterable[float]], float]) -> float | None:
    """The sum of the lower bounds of an option where its costs are guesses, and of its costs elsewhere.

    None if no cost is a guess.
    """
    if all(option.least is None for option in each):
        return None
    return summed(option.seconds if option.least is None else option.least for option in each)


def _by_node(problem: Problem, pair: tuple[str, str]) -> tuple[float, ...]:
    seconds = problem.transitions.get(pair, 0.0)
    return seconds if isinstance(seconds, tuple) else (seconds,) * len(problem.sources)


def _posed(
    graph: DataflowGraph,
    candidates: Iterable[Candidate],
    costs: Costs,
    tables: Sequence[Mapping[str, Cost]],
    redundant: bool,
) -> list[Problem]:
    """The problem for each table of costs by key. A candidate is an option if no table refuses it."""
    measured: list[list[Option]] = []
    unmeasured: list[list[Option]] = []
    for candidate in candidates:
        found = [table[costs.keys[candidate.id]] for table in tables]
        if any(not _may_cost(cost) for cost in found):
            continue
        known = all(cost.seconds is not None for cost in found)
        row = [_option(candidate, cost, known) for cost in found]
        (measured if known else unmeasured).append(row)
    free = leavable(graph, [row[0] for row in measured])
    drift = DRIFT if any(cost.runs for table in tables for cost in table.values()) else 0.0
    return [
        Problem(
            sources=tuple(node.inputs for node in graph.nodes),
            free=free,
            options=tuple(row[place] for row in (*measured, *unmeasured)),
            launch_seconds=costs.launch_seconds,
            results=graph.results,
            transitions=_at(graph, costs, {}),
            launches=dict(costs.launches),
            exclusions=tuple(_pair(text) for text in costs.exclusions),
            redundant=redundant,
            drift=drift,
        )
        for place in range(len(tables))
    ]


def _may_cost(cost: Cost) -> bool:
    return cost.seconds is not None or cost.bound is not None or cost.origin == UNKNOWN


def _at(
    graph: DataflowGraph, costs: Costs, sizes: Mapping[str, int]
) -> dict[tuple[str, str], float | tuple[float, ...]]:
    """The transitions and copies of the values of ``graph`` with these free sizes, if it has some."""
    crossings = [*costs.transitions.items(), *costs.copies.items()]
    nodes = DataflowGraph(at_sizes(graph.func, sizes)).nodes if sizes and crossings else graph.nodes
    found: dict[tuple[str, str], float | tuple[float, ...]] = {}
    for pair, points in crossings:
        writer, reader = pair.split(">")
        found[writer, reader] = tuple(at_size(points, nbytes_of(node.var)) for node in nodes)
    return found


def _pair(text: str) -> tuple[str, str]:
    one, other = text.split("|")
    return one, other


def _option(candidate: Candidate, cost: Cost, has_cost: bool) -> Option:
    """The candidate at its cost; one that has no cost somewhere has no interval, and lower bounds for guesses."""
    inside, hidden = index_set(candidate.indexes), index_set(candidate.hidden)
    is_guess = cost.seconds is not None and cost.origin == EXPECTED
    bound = cost.bound or 0.0
    seconds = bound if cost.seconds is None or (is_guess and not has_cost) else cost.seconds
    low, high = (cost.interval if has_cost else None) or (None, None)
    least = bound if is_guess and has_cost else None
    return Option(
        candidate.id,
        inside,
        seconds,
        hidden,
        candidate.backend,
        low,
        high,
        candidate.device,
        least,
        is_open=not has_cost,
    )


def leavable(graph: DataflowGraph, measured: Sequence[Option]) -> IndexSet:
    """The bindings that a plan may leave behind if these options are the ``measured`` ones.

    The VM evaluates some. TVM compiles what is in no measured candidate. If a result cannot be computed from these
    and the measured candidates, the way with the fewest missing values is taken. These may then be left behind too.
    """
    sources = [frozenset(node.inputs) for node in graph.nodes]
    results = {index for index in range(len(graph)) if graph.results >> index & 1}
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
    return index_set(left)


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
