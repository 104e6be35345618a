"""Checks what a plan says of its kernels apart from costs: that they are candidates of the function that was searched.

Nothing here shares code with the searches.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..graph import DataflowGraph
from ..graph.variants import sizes_of
from .candidate import Candidate
from .plan import Plan


def why_another_function(plan: Plan, graph: DataflowGraph, candidates: Iterable[Candidate]) -> str | None:
    """Why ``plan`` is for other sizes than the function of ``graph``, or has kernels with other descriptions, or None.

    Names of bindings are not compared: a module as text may have others. Their number is.
    """
    if dict(plan.sizes) != sizes_of(graph.func):
        return f"it is for the sizes {dict(plan.sizes)}, and the function for {sizes_of(graph.func)}"
    by_id = {candidate.id: candidate for candidate in candidates}
    for kernel in plan.kernels:
        candidate = by_id[kernel.candidate]
        described = (kernel.label, kernel.threads, len(kernel.bindings))
        if described != (candidate.label, candidate.threads, len(candidate.indexes)):
            return f"kernel {kernel.function} is described otherwise than candidate {candidate.id}"
    return None
