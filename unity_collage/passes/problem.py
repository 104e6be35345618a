"""From the annotations of a function to the search problem."""

from __future__ import annotations

from collections.abc import Iterable

from ..annotations import Candidate, Costs
from ..graph import DataflowGraph, Node, index_set
from ..graph.dataflow import has_kernel
from ..search import Option, Problem


def problem_of(
    graph: DataflowGraph, candidates: Iterable[Candidate], costs: Costs, redundant: bool = True
) -> Problem:
    """The search problem: priced candidates, and what may be left behind.

    That is what the VM evaluates for free, and operators for which nobody has a price but TVM has a kernel.
    """
    options: list[Option] = []
    for candidate in candidates:
        seconds = costs.prices[costs.keys[candidate.id]].seconds
        if seconds is not None:
            sub = candidate.sub_graph(graph)
            options.append(Option(candidate.id, sub.inside, seconds, sub.hidden, candidate.backend))
    priced = 0
    for option in options:
        priced |= option.inside
    free = index_set(
        node.index
        for node in graph.nodes
        if node.is_host or (not priced >> node.index & 1 and _tvm_can(node))
    )
    return Problem(
        sources=tuple(node.inputs for node in graph.nodes),
        free=free,
        options=tuple(options),
        launch_seconds=costs.launch_seconds,
        launches=costs.launches,
        transitions={tuple(pair.split(">")): seconds for pair, seconds in costs.transitions.items()},
        results=graph.results,
        redundant=redundant,
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
    return call.op.get_attr("FCallPacked") is not None


def why_no_cover(
    graph: DataflowGraph, index: int, candidates: Iterable[Candidate], costs: Costs | None = None
) -> str:
    """Why the binding ``index`` cannot be computed: what each candidate that contains it failed of."""
    node = graph.nodes[index]
    holders = [candidate for candidate in candidates if index in candidate.indexes]
    reasons = [f"{c.backend} {c.label}: {costs.prices[costs.keys[c.id]].reason}" for c in holders if costs]
    why = "; ".join(dict.fromkeys(reasons)) or "no backend takes it and TVM has no legalization for it"
    return f"no kernel for {node.op} (binding {node.var.name}): {why}"
