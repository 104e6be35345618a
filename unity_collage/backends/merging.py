"""Merged candidates: adjacent kernels of one backend as one, made after a search from the kernels that it has chosen.

A library that runs several primitives in one call saves launches, and perhaps memory. The merged candidates are
measured like any others, and the search decides again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..graph import DataflowGraph, Limits, Nested, SubGraph, disjoint_union, index_set
from ..index_set import members
from ..plan.candidate import VIEW, Candidate, CompositePart
from .registry import get

MOST_PARTS = 8
"""The most parts of a merged kernel: with more, the saving of one launch is less than the noise of its cost."""

_LIMITS = Limits(max_exits=0, allow_taps=True)


class Merge(NamedTuple):
    """Two touching kernels as one."""

    upper: Candidate
    lower: Candidate
    """Reads a value of ``upper``."""
    whole: SubGraph

    def candidate(self, number: int) -> Candidate:
        """The candidate with this id. If its parts run on equally many threads, so does the whole."""
        return Candidate(
            id=number,
            backend=self.upper.backend,
            rule="merged",
            label=self.whole.label,
            indexes=tuple(members(self.whole.inside)),
            hidden=tuple(members(self.whole.hidden)),
            composites=tuple(
                CompositePart(part.label, tuple(members(part.inside))) for part in self.whole.nested
            ),
            options=self.upper.options,
            threads=self.upper.threads if self.upper.threads == self.lower.threads else None,
            device=self.upper.device,
        )


def merges(graph: DataflowGraph, kernels: Sequence[Candidate], near: Sequence[Candidate] = ()) -> list[Merge]:
    """Each two touching kernels, at least one of them in ``kernels``, if their backend merges and the whole is valid.

    ``near``: more kernels, which may overlap. The search checks whether a plan with the whole can be put in an order.
    """
    able = [kernel for kernel in kernels if kernel.backend != VIEW and get(kernel.backend).merges]
    found = [
        Merge(upper, lower, union)
        for upper, lower in _touching(graph, able, near)
        if not isinstance(union := disjoint_union(_in_parts(graph, upper), _in_parts(graph, lower)), str)
        and len(union.nested) <= MOST_PARTS
        and union.why_not_valid(_LIMITS) is None
    ]
    distinct = {(m.upper.backend, m.upper.device, m.whole.inside, m.whole.hidden): m for m in reversed(found)}
    return list(distinct.values())[::-1]


def merged_candidates(graph: DataflowGraph, chosen: Sequence[Candidate], first_id: int) -> list[Candidate]:
    """The :func:`merges` of ``chosen`` as candidates. Ids count up from ``first_id``."""
    return [merge.candidate(number) for number, merge in enumerate(merges(graph, chosen), first_id)]


def _touching(
    graph: DataflowGraph, kernels: Sequence[Candidate], near: Sequence[Candidate]
) -> Iterator[tuple[Candidate, Candidate]]:
    """Pairs of kernels of one backend on one device, each once, in which the second reads a value of the first."""
    writers: dict[int, list[Candidate]] = {}
    for kernel in (*kernels, *near):
        for index in members(kernel.sub_graph(graph).exit):
            writers.setdefault(index, []).append(kernel)
    ids = {kernel.id for kernel in kernels}
    for kernel in (*kernels, *near):
        read = members(kernel.sub_graph(graph).input)
        sources = {source.id: source for index in read for source in writers.get(index, ())}
        for source in sources.values():
            is_alike = source.backend == kernel.backend and source.device == kernel.device
            if is_alike and ids & {source.id, kernel.id}:
                yield source, kernel


def _in_parts(graph: DataflowGraph, candidate: Candidate) -> SubGraph:
    """The sub-graph of a candidate; one without parts becomes a single part."""
    if candidate.composites:
        return candidate.sub_graph(graph)
    inside = index_set(candidate.indexes)
    whole = Nested(inside, f"{candidate.backend}.{candidate.label}")
    return SubGraph(graph, inside, index_set(candidate.hidden), (whole,))
