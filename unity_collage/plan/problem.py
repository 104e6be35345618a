"""From the annotations of a function to the search problem."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from tvm import ir

from ..errors import InvalidAnnotation
from ..graph import DataflowGraph, Node, SubGraph, index_set, members
from ..graph.dataflow import has_kernel
from ..graph.kinds import LEGALIZED_BY_TARGET
from ..graph.order import read_outside
from ..index_set import EMPTY, IndexSet
from ..search import Option, Problem
from .candidate import Candidate
from .costs import Cost, Costs
from .weighed import transition_seconds

_DRIFT = 0.025
"""The part by which two costs may differ by chance if they were not timed in turns.

On shared machines kernels differ by more from hour to hour. Plans that differ by less are ties, which the policy
settles (fewer kernels).
"""


def problem_of(
    graph: DataflowGraph, candidates: Iterable[Candidate], costs: Costs, redundant: bool = True
) -> Problem:
    """The search problem: measured candidates, and bindings that may be left behind.

    Those are bindings that the VM evaluates for free, and operators without a measured candidate for which TVM has a
    kernel. If the budget ran out, a value may be computed only inside of measured kernels: then an operator without
    which there is no plan may be left behind too.
    """
    options: list[Option] = []
    candidates = list(candidates)
    _check_devices(candidates, costs)
    for candidate in candidates:
        cost = costs.of(candidate.id)
        if cost.seconds is not None:
            options.append(_option(candidate, candidate.sub_graph(graph), cost, cost.seconds))
    return Problem(
        sources=tuple(node.inputs for node in graph.nodes),
        free=_free(graph, options),
        options=tuple(options),
        launch_seconds=costs.launch_seconds,
        launches=costs.launches,
        transitions={
            _writer_and_reader(pair): transition_seconds(graph, costs, points)
            for pair, points in (*costs.transitions.items(), *costs.copies.items())
        },
        results=graph.results,
        exclusions=tuple((one, other) for one, _, other in (e.partition("|") for e in costs.exclusions)),
        redundant=redundant,
        drift=_DRIFT if any(cost.runs for cost in costs.by_key.values()) else 0.0,
    )


def _check_devices(candidates: Sequence[Candidate], costs: Costs) -> None:
    """Raises InvalidAnnotation where some candidates have no device, or a copy between their devices has no cost."""
    devices = sorted({candidate.device for candidate in candidates})
    if devices in ([], [""]):
        return
    if "" in devices:
        bare = next(candidate for candidate in candidates if not candidate.device)
        raise InvalidAnnotation(
            f"candidate {bare.id} ({bare.label}) has no device, and others have: give it one"
        )
    for pair in (f"{a}>{b}" for a in devices for b in devices if a != b):
        if pair not in costs.copies:
            raise InvalidAnnotation(f"collage.costs has no copies {pair}, and candidates are on both devices")


def _writer_and_reader(pair: str) -> tuple[str, str]:
    writer, reader = pair.split(">")
    return writer, reader


def optimistic(
    graph: DataflowGraph, candidates: Iterable[Candidate], costs: Costs, problem: Problem
) -> Problem:
    """``problem`` with the candidates that were not measured, at their lower bounds (0 where there is none).

    Whatever their costs are, no plan of all candidates is cheaper than the cheapest plan of this problem. If some costs
    are guesses, that holds for the problem :func:`.search.certificate.at_least`.
    """
    options = list(problem.options)
    for candidate in candidates:
        cost = costs.of(candidate.id)
        if cost.is_open:
            unmeasured = _option(candidate, candidate.sub_graph(graph), cost, cost.bound or 0.0)
            options.append(replace(unmeasured, is_open=True))
    return replace(problem, options=tuple(options))


def _free(graph: DataflowGraph, options: Sequence[Option]) -> IndexSet:
    """The bindings that may be left behind, so that there is a plan if TVM has the kernels for one."""
    costed = EMPTY
    for option in options:
        costed |= option.inside
    free = index_set(
        node.index
        for node in graph.nodes
        if node.is_host or (not costed >> node.index & 1 and _tvm_can(node))
    )
    ways = _ways(graph, options, free)
    computable = _computable(ways)
    wanted = list(members(graph.results & ~computable))
    while wanted:
        index = wanted.pop()
        if computable >> index & 1:
            continue
        computable |= 1 << index  # each binding is handled once
        reads = min(ways[index], key=lambda reads: (reads & ~computable).bit_count(), default=EMPTY)
        if not ways[index] and _tvm_can(graph.nodes[index]):
            free |= 1 << index
            reads = index_set(graph.nodes[index].inputs)
        wanted += members(reads & ~computable)
    return free


def _ways(graph: DataflowGraph, options: Sequence[Option], free: IndexSet) -> list[list[IndexSet]]:
    """For each binding, the ways to compute it: the values read by each option that writes it, or by the binding
    itself.

    An option does not write what only its own nodes read.
    """
    ways = [[index_set(node.inputs)] if free >> node.index & 1 else [] for node in graph.nodes]
    for option in options:
        reads = EMPTY
        for index in members(option.inside):
            reads |= index_set(graph.nodes[index].inputs)
        for index in members(read_outside(graph, option.inside) & ~option.hidden):
            ways[index].append(reads & ~option.inside)
    return ways


def _computable(ways: Sequence[Sequence[IndexSet]]) -> IndexSet:
    """The values that can be computed: one of their ways reads only values that can be computed."""
    found, before = EMPTY, None
    while found != before:
        before = found
        for index, of_value in enumerate(ways):
            if not found >> index & 1 and any(not reads & ~found for reads in of_value):
                found |= 1 << index
    return found


def _option(candidate: Candidate, sub: SubGraph, cost: Cost, seconds: float) -> Option:
    low, high = cost.interval or (None, None)
    return Option(
        candidate.id,
        sub.inside,
        seconds,
        sub.hidden,
        candidate.backend,
        low,
        high,
        candidate.device,
        cost.bound_of_guess,
    )


_VM_PREFIXES = (
    "relax.call_",
    "relax.memory.",
    "relax.vm.",
    "relax.builtin.",
    "relax.shape_of",
    "relax.to_vdevice",
)
"""Operators that ``relax.build`` lowers without a legalization."""


def _tvm_can(node: Node) -> bool:
    """Whether TVM compiles the binding without a kernel of ours."""
    call = node.call
    if call is None or node.op.startswith(_VM_PREFIXES) or has_kernel(call):
        return True
    return node.op in LEGALIZED_BY_TARGET or ir.Op.get(node.op).get_attr("FCallPacked") is not None


def possible_without_kernels(graph: DataflowGraph) -> IndexSet:
    """The bindings that need no kernel of a plan: the VM evaluates them, or TVM compiles them as they are."""
    return index_set(node.index for node in graph.nodes if node.is_host or _tvm_can(node))


def why_no_cover(
    graph: DataflowGraph,
    index: int,
    candidates: Iterable[Candidate],
    costs: Costs | None = None,
    exclusions: Sequence[str] = (),
) -> str:
    """Why the binding ``index`` cannot be computed: the reason of each candidate that contains it.

    ``exclusions``: pairs of backends that exclude each other, as ``"one|other"``, in addition to those of ``costs``.
    """
    node, candidates = graph.nodes[index], list(candidates)
    pairs = [pair.split("|") for pair in (*exclusions, *(costs.exclusions if costs else ()))]
    there = {candidate.backend for candidate in candidates}
    reasons = [
        f"{holder.backend} {holder.label}: {_why_unused(holder, costs, pairs, there)}"
        for holder in candidates
        if index in holder.indexes
    ]
    why = "; ".join(dict.fromkeys(reasons)) or "no backend takes it and TVM has no legalization for it"
    return f"no kernel for {node.op} (binding {node.var.name}): {why}"


def _why_unused(
    candidate: Candidate, costs: Costs | None, exclusions: Sequence[Sequence[str]], there: Container[str]
) -> str:
    """Why a candidate is in no plan: it was refused, or what others it needs cannot be in a plan with it."""
    cost = costs.of(candidate.id) if costs else None
    if cost is not None and cost.seconds is None:
        return cost.reason
    for pair in exclusions:
        if candidate.backend in pair and all(name in there for name in pair):
            one, other = pair
            return f"{one} and {other} exclude each other, and neither makes a plan without the other"
    return "it has a cost, but no plan contains it" if costs else "it is refused, or no plan contains it"
