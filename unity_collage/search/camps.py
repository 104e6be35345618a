"""Camps: the largest sets of backends that can be in one plan, where some backends exclude each other.

Every plan is within a camp. A camp is a problem without exclusions, and there are few: one pair of backends makes two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ..index_set import EMPTY
from .problem import NoCover, Problem, Solution


def camps(problem: Problem, priority: Sequence[str] = ()) -> list[Problem]:
    """The problem of each camp; those with the backends that come first in ``priority`` come first.

    A problem whose options do not exclude each other is its only camp.
    """
    names = [*priority, *(option.backend for option in problem.options)]
    return [
        replace(problem, options=tuple(o for o in problem.options if o.backend in camp), exclusions=())
        for camp in largest_compatible(names, problem.exclusions)
    ]


def largest_compatible(names: Sequence[str], exclusions: Sequence[tuple[str, str]]) -> list[frozenset[str]]:
    """The largest sets of ``names`` without an exclusion; those with the first names come first."""
    order = tuple(dict.fromkeys(names))
    found = list(dict.fromkeys(_compatible(frozenset(order), exclusions)))
    largest = [camp for camp in found if not any(camp < other for other in found)]
    return sorted(largest, key=lambda camp: [name not in camp for name in order])


def _compatible(names: frozenset[str], exclusions: Sequence[tuple[str, str]]) -> Iterator[frozenset[str]]:
    """Sets of backends without an exclusion; the largest are among them."""
    pair = next(((one, other) for one, other in exclusions if one in names and other in names), None)
    if pair is None:
        yield names
        return
    for name in pair:
        yield from _compatible(names - {name}, exclusions)


def best_of_camps(problem: Problem, solve: Callable[[Problem], Solution]) -> Solution:
    """The cheapest of the plans of all camps, with a bound that holds for all; raises NoCover if none has a plan."""
    solutions: list[Solution] = []
    refusal: NoCover | None = None
    bound = float("inf")
    for camp in camps(problem):
        try:
            found = solve(camp)
        except NoCover as error:
            refusal = refusal or error
            # A search whose budget ends may not have found the plan that there is.
            bound = bound if _is_impossible(camp) else 0.0
            continue
        solutions.append(found)
        bound = min(bound, found.lower_bound)
    if not solutions:
        assert refusal is not None
        raise refusal
    best = min(solutions, key=lambda solution: solution.seconds)
    visited = sum(solution.visited for solution in solutions)
    return replace(best, lower_bound=min(bound, best.seconds), visited=visited)


def _is_impossible(problem: Problem) -> bool:
    """Whether a node is in no option and cannot be left behind."""
    makable = problem.free
    for option in problem.options:
        makable |= option.inside
    return problem.everything & ~makable != EMPTY


def are_compatible(problem: Problem, names: frozenset[str]) -> bool:
    """Whether backends of these ``names`` can be in one plan."""
    return not any(one in names and other in names for one, other in problem.exclusions)
