"""Adjacent kernels of one backend as one: more candidates, made after a search from what it has chosen.

A library that runs several primitives in one call saves launches, and perhaps memory. Whether it does is a matter of
cost: a merged candidate is measured like any other, and the search decides again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..graph import DataflowGraph, Limits, Nested, SubGraph, disjoint_union, index_set
from ..index_set import members
from ..plan.candidate import VIEW, Candidate, Composite
from .registry import get

MOST_PARTS = 8
"""A merged kernel has so many parts at most: beyond, one more launch saved is less than the noise of its cost."""

_LIMITS = Limits(max_exits=0, allow_taps=True)


def merged_candidates(graph: DataflowGraph, chosen: Sequence[Candidate], first_id: int) -> list[Candidate]:
    """Any two touching kernels of ``chosen`` as one, where their backend can and the whole is valid.

    Whether the plan still has an order is for the search to see. Ids go up from ``first_id``.
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
            composites=tuple(Composite(part.label, tuple(members(part.inside))) for part in union.nested),
        )
        for number, (upper, union) in enumerate(wholes)
    ]


def _touching(graph: DataflowGraph, kernels: Sequence[Candidate]) -> Iterator[tuple[Candidate, Candidate]]:
    """Kernels of one backend of which the second reads the first, each pair once."""
    writer = {index: k for k in kernels for index in members(k.sub_graph(graph).exit)}
    for kernel in kernels:
        sources = [writer[index] for index in members(kernel.sub_graph(graph).input) if index in writer]
        for source in dict.fromkeys(sources):
            if source.backend == kernel.backend:
                yield source, kernel


def _in_parts(graph: DataflowGraph, candidate: Candidate) -> SubGraph:
    """Its sub-graph as one part, if it is not of several already."""
    if candidate.composites:
        return candidate.sub_graph(graph)
    inside = index_set(candidate.indexes)
    whole = Nested(inside, f"{candidate.backend}.{candidate.label}")
    return SubGraph(graph, inside, index_set(candidate.hidden), (whole,))
