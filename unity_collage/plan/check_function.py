"""Checks that a plan, and the problem that it answers, are about the candidates of the function that was searched.

Nothing here shares code with the searches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..graph import DataflowGraph
from ..graph.variants import sizes_of
from ..index_set import EMPTY, index_set
from ..search import Option, Problem
from .candidate import Candidate
from .plan import Plan
from .posed import leavable


def why_another_function(plan: Plan, graph: DataflowGraph, candidates: Iterable[Candidate]) -> str | None:
    """Why ``plan`` is for other sizes than the function of ``graph``, or has kernels with other descriptions, or None.

    Names of bindings are not compared: a module as text may have others. Their number is. Kernels that are none of the
    ``candidates`` are not compared.
    """
    if dict(plan.sizes) != sizes_of(graph.func):
        return f"it is for the sizes {dict(plan.sizes)}, and the function for {sizes_of(graph.func)}"
    by_id = {candidate.id: candidate for candidate in candidates}
    for kernel in plan.kernels:
        candidate = by_id.get(kernel.candidate)
        if candidate is None:
            continue
        described = (kernel.label, len(kernel.bindings))
        if described != (candidate.label, len(candidate.indexes)):
            return f"kernel {kernel.function} is described otherwise than candidate {candidate.id}"
    return None


def why_other_threads(plan: Plan, candidates: Iterable[Candidate]) -> str | None:
    """Which kernel of ``plan`` has another number of threads than its candidate, or None."""
    threads = {candidate.id: candidate.threads for candidate in candidates}
    for kernel in plan.kernels:
        if kernel.threads != threads[kernel.candidate]:
            return f"kernel {kernel.function} has other threads than candidate {kernel.candidate}"
    return None


def why_other_candidates(
    problem: Problem, graph: DataflowGraph, candidates: Sequence[Candidate], exclusions: Iterable[str]
) -> str | None:
    """Why the options of ``problem`` are not the ``candidates`` of the function of ``graph``, or None.

    ``exclusions``: the pairs of their backends that exclude each other, as ``"one|other"``. Candidates that were
    refused are no options. There may be more options: kernels that were merged of candidates of one backend.
    """
    if problem.sources != tuple(node.inputs for node in graph.nodes) or problem.results != graph.results:
        return "the function has other bindings"
    if {"|".join(pair) for pair in problem.exclusions} != set(exclusions):
        return "other backends exclude each other"
    by_id = {candidate.id: candidate for candidate in candidates}
    for option in problem.options:
        candidate = by_id.get(option.id)
        if candidate is None and not _is_merged(option, candidates):
            return f"candidate {option.id} of {option.backend} is none of the function"
        if candidate is not None and not _is_of(option, candidate):
            return f"candidate {option.id} is {candidate.backend} {candidate.label} in the function"
    if problem.free != leavable(graph, [option for option in problem.options if not option.is_open]):
        return "other bindings may be left behind"
    return None


def _is_of(option: Option, candidate: Candidate) -> bool:
    stated = (index_set(candidate.indexes), index_set(candidate.hidden), candidate.backend, candidate.device)
    return stated == (option.inside, option.hidden, option.backend, option.device)


def _is_merged(option: Option, candidates: Iterable[Candidate]) -> bool:
    """Whether the nodes of an option are all in candidates of its backend that lie inside of it."""
    covered = EMPTY
    for candidate in candidates:
        inside = index_set(candidate.indexes)
        if candidate.backend == option.backend and not inside & ~option.inside:
            covered |= inside
    return covered == option.inside
