"""From the annotations of a function to the search problem."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..graph import DataflowGraph, Node, SubGraph, index_set, members
from ..graph.dataflow import has_kernel
from ..graph.kinds import LEGALIZED_BY_TARGET
from ..index_set import EMPTY, IndexSet
from ..search import Option, Problem
from .candidate import Candidate
from .costs import UNKNOWN, Cost, Costs

BETWEEN_RACES = 0.025
"""By what share two costs that were not measured in turns may be off: on shared machines kernels of one program differ
by more from hour to hour, and what is left to chance then is decided by policy (fewer kernels)."""


def problem_of(
    graph: DataflowGraph, candidates: Iterable[Candidate], costs: Costs, redundant: bool = True
) -> Problem:
    """The search problem: measured candidates, and what may be left behind.

    That is what the VM evaluates for free, operators for which nobody has a cost but TVM has a kernel, and such ones
    without which the measured candidates make no plan: a spent budget may leave a value only inside of kernels.
    """
    options: list[Option] = []
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
        transitions={tuple(pair.split(">")): seconds for pair, seconds in costs.transitions.items()},
        results=graph.results,
        redundant=redundant,
        drift=BETWEEN_RACES if any(cost.runs for cost in costs.by_key.values()) else 0.0,
    )


def optimistic(
    graph: DataflowGraph, candidates: Iterable[Candidate], costs: Costs, problem: Problem
) -> Problem:
    """``problem`` with what was not measured at its lower bounds, 0 where there is none.

    No plan of ``problem`` is cheaper than the cheapest one of this, whatever the costs turn out to be.
    """
    options = list(problem.options)
    for candidate in candidates:
        cost = costs.of(candidate.id)
        if cost.seconds is None and (cost.origin == UNKNOWN or cost.bound is not None):
            sub = candidate.sub_graph(graph)
            least = cost.bound or 0.0
            options.append(Option(candidate.id, sub.inside, least, sub.hidden, candidate.backend))
    return replace(problem, options=tuple(options))


def _free(graph: DataflowGraph, options: Sequence[Option]) -> IndexSet:
    """What may be left behind, so that there is a plan if TVM has the kernels for one."""
    costed = EMPTY
    for option in options:
        costed |= option.inside
    free = index_set(
        node.index
        for node in graph.nodes
        if node.is_host or (not costed >> node.index & 1 and _tvm_can(node))
    )
    makers = _makers(graph, options, free)
    made = _made(makers)
    wanted = list(members(graph.results & ~made))
    while wanted:
        index = wanted.pop()
        if made >> index & 1:
            continue
        made |= 1 << index  # asked for once
        reads = min(makers[index], key=lambda reads: (reads & ~made).bit_count(), default=EMPTY)
        if not makers[index] and _tvm_can(graph.nodes[index]):
            free |= 1 << index
            reads = index_set(graph.nodes[index].inputs)
        wanted += members(reads & ~made)
    return free


def _makers(graph: DataflowGraph, options: Sequence[Option], free: IndexSet) -> list[list[IndexSet]]:
    """By value, what is read by each way to have it: by the options that make it for others, or by itself."""
    makers = [[index_set(node.inputs)] if free >> node.index & 1 else [] for node in graph.nodes]
    for option in options:
        reads = EMPTY
        for index in members(option.inside):
            reads |= index_set(graph.nodes[index].inputs)
        for index in members(option.inside & ~option.hidden):
            makers[index].append(reads & ~option.inside)
    return makers


def _made(makers: Sequence[Sequence[IndexSet]]) -> IndexSet:
    """The values that can be had: those with a way that reads only such."""
    made, before = EMPTY, None
    while made != before:
        before = made
        for index, ways in enumerate(makers):
            if not made >> index & 1 and any(not reads & ~made for reads in ways):
                made |= 1 << index
    return made


def _option(candidate: Candidate, sub: SubGraph, cost: Cost, seconds: float) -> Option:
    return Option(
        candidate.id, sub.inside, seconds, sub.hidden, candidate.backend, *(cost.interval or (None, None))
    )


_VM_PREFIXES = (
    "relax.call_",
    "relax.memory.",
    "relax.vm.",
    "relax.builtin.",
    "relax.shape_of",
    "relax.to_vdevice",
)
"""Operators that ``relax.build`` lowers by itself, without a legalization."""


def _tvm_can(node: Node) -> bool:
    """Whether the binding compiles as it stands."""
    call = node.call
    if call is None or call.op.name.startswith(_VM_PREFIXES) or has_kernel(call):
        return True
    return call.op.name in LEGALIZED_BY_TARGET or call.op.get_attr("FCallPacked") is not None


def why_no_cover(
    graph: DataflowGraph, index: int, candidates: Iterable[Candidate], costs: Costs | None = None
) -> str:
    """Why the binding ``index`` cannot be computed: what each candidate that contains it failed of."""
    node = graph.nodes[index]
    holders = [candidate for candidate in candidates if index in candidate.indexes]
    reasons = [f"{c.backend} {c.label}: {costs.of(c.id).reason}" for c in holders if costs]
    why = "; ".join(dict.fromkeys(reasons)) or "no backend takes it and TVM has no legalization for it"
    return f"no kernel for {node.op} (binding {node.var.name}): {why}"
