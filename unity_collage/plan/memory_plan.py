"""The plan of a function under a limit of memory, or with a weight for memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..errors import CollageError, NoPlan
from ..graph import DataflowGraph
from ..search import Problem, Solution
from ..search.memory import peak_of
from ..search.memory_bounded import BoundedPlan, MemoryGoal, memory_bounded
from .candidate import Candidate
from .footprint import footprint_of, places_of, unknown_values


def within_memory(
    graph: DataflowGraph,
    problem: Problem,
    plans: tuple[Solution, Solution],
    candidates: Iterable[Candidate],
    goal: MemoryGoal,
) -> tuple[Solution, str]:
    """The plan for ``goal``, with remarks; ``plans``: the cheapest one, and the one that the policy for ties prefers.

    The latter is the result if it is as good as the best. Raises NoPlan if no plan under the limit is found, and
    CollageError if the search chooses devices: the bytes of each depend on the plan then.
    """
    candidates = list(candidates)
    if len({candidate.device for candidate in candidates}) > 1:
        raise CollageError(
            "a plan for a goal of memory cannot choose devices: give all candidates one device"
        )
    footprint = footprint_of(graph, candidates)
    cheapest, preferred = plans
    found = memory_bounded(problem, footprint, cheapest, goal)
    if found.solution is None:
        raise NoPlan(_none_found(found, goal, graph))
    if found.solution == cheapest:
        peak = peak_of(problem, footprint, preferred)
        if goal.score(preferred.seconds, peak) <= goal.score(found.solution.seconds, found.peak):
            return preferred, _said(found, goal, peak, graph)
    solution = replace(found.solution, lower_bound=cheapest.lower_bound)
    return cheapest if solution == cheapest else solution, _said(found, goal, found.peak, graph)


def _none_found(found: BoundedPlan, goal: MemoryGoal, graph: DataflowGraph) -> str:
    proof = (
        "no plan of the measured candidates is"
        if found.is_proved
        else "no plan was found that is (there may be one)"
    )
    return (
        f"{proof} under the memory limit of {goal.limit} bytes; the smallest that was found holds {found.peak} "
        f"bytes{_together(graph)}: raise the limit"
    )


def _said(found: BoundedPlan, goal: MemoryGoal, peak: int, graph: DataflowGraph) -> str:
    asked = (
        "for the price of memory" if goal.limit is None else f"under the memory limit of {goal.limit} bytes"
    )
    known = "the best one" if found.is_proved else "the best one that was found; there may be a better one"
    unknown = unknown_values(graph)
    without = f", without the {unknown} of free sizes" if unknown else ""
    return f"the plan holds {peak} bytes at most{_together(graph)} by the sizes of its values{without}: {known} {asked}"


def _together(graph: DataflowGraph) -> str:
    """With several devices the search limits their sum."""
    return " on all devices together" if len(places_of(graph)) > 1 else ""
