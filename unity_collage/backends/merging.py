"""Merged candidates: adjacent kernels of one backend as one, made after a search from the kernels that it has chosen.

A library that runs several primitives in one call saves launches, and perhaps memory. The merged candidates are
measured like any others, and the search decides again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..graph import DataflowGraph, Limits, Nested, SubGraph, disjoint_union, index_set
from ..index_set import members
from ..plan.candidate import VIEW, Candidate, CompositePart
from .registry import get

MOST_PARTS = 8
"""The most parts of a merged kernel: beyond, saving one more launch is less than the noise of its cost."""

_LIMITS = Limits(max_exits=0, allow_taps=True)


def merged_candidates(graph: DataflowGraph, chosen: Sequence[Candidate], first_id: int) -> list[Candidate]:
    """Each two touching kernels of ``chosen`` as one candidate, if their backend merges and the whole is valid.

    The search checks whether a plan with them can be put in an order. Ids count up from ``first_id``.
    """
    wholes = [
        (upper, union)
        for upper, lower in _touching(
            graph, [c for c in chosen if c.backend != VIEW and get(c.backend).merges]
        )
        if not isinstance(union := disjoint_union(_in_parts(graph, upper), _in_parts(graph, lower)), str)
        and len(union.nested) <= MOST_PARTS
        and union.why_not_valid(_LIMITS) is None
    ]
    return [
        Candidate(
            id=first_id + number,
            backend=upper.backend,
            rule="merged",
            label=union.label,
            indexes=tuple(members(union.inside)),
            hidden=tuple(members(union.hidden)),
            composites=tuple(CompositePart(part.label, tuple(members(part.inside))) for part in union.nested),
        )
        for number, (upper, union) in enumerate(wholes)
    ]


def _touching(graph: DataflowGraph, kernels: Sequence[Candidate]) -> Iterator[tuple[Candidate, Candidate]]:
    """Pairs of kernels of one backend, each once, in which the second reads a value of the first."""
    writer = {index: k for k in kernels for index in members(k.sub_graph(graph).exit)}
    for kernel in kernels:
        sources = [writer[index] for index in members(kernel.sub_graph(graph).input) if index in writer]
        for source in dict.fromkeys(sources):
            if source.backend == kernel.backend:
                yield source, kernel


def _in_parts(graph: DataflowGraph, candidate: Candidate) -> SubGraph:
    """The sub-graph of a candidate; one without parts becomes a single part."""
    if candidate.composites:
        return candidate.sub_graph(graph)
    inside = index_set(candidate.indexes)
    whole = Nested(inside, f"{candidate.backend}.{candidate.label}")
    return SubGraph(graph, inside, index_set(candidate.hidden), (whole,))
