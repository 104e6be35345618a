"""The common entry point of all searches, and the certificate of their answer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from .alternatives import evolutionary_cover
from .bounds import lp_potentials, lp_proof, repaired
from .branching import branched
from .certificate import Certificate, at_least, certificate_of
from .enumeration import Enumeration, why_not_enumerated
from .exact import cheapest_cover
from .greedy import greedy_cover
from .milp import NotInTime, milp_cover
from .plans import solution_of
from .potentials import potentials_of
from .problem import NoCover, Problem, Solution

ALGORITHMS = ("auto", "exact", "milp", "greedy", "evolutionary")

_SHORT = 300_000
"""The most states of the first search, which takes a second or two."""
_QUICK_SECONDS = 6.0
_NEAR = 2e-3
"""Transitions that cost at most this part of a plan are not worth a longer search."""


def solve(
    problem: Problem,
    algorithm: str = "auto",
    *,
    max_states: int = 2_000_000,
    seconds: float = 60.0,
    priority: Sequence[str] = (),
) -> Solution:
    """A valid plan by the search of that name, within its budget; raises NoCover, or ValueError for a wrong name.

    ``auto`` begins with a short ``exact`` search, which proves most plans. If it does not, the exact search is repeated
    with the best potentials, and integer programming gets the rest of the time. The answer has the best plan and the
    best bound of all three. With transitions, integer programming comes first, and ends the search if its plan is
    proved, or near the cheapest. ``priority`` is the order of backends for ``greedy``.
    """
    if algorithm == "auto":
        return _auto(problem, max_states, seconds)
    if algorithm == "exact":
        return cheapest_cover(problem, max_states=max_states, seconds=seconds)
    if algorithm == "milp":
        return milp_cover(problem, seconds)
    if algorithm == "greedy":
        return _bounded(problem, greedy_cover(problem, priority))
    if algorithm == "evolutionary":
        base = cheapest_cover(problem, max_states=max_states, seconds=seconds / 2)
        return evolutionary_cover(problem, base, seconds=seconds / 2)
    raise ValueError(f"no search algorithm {algorithm!r}: choose one of {', '.join(ALGORITHMS)}")


def certified(problem: Problem, solution: Solution, seconds: float = 5.0) -> Certificate:
    """The certificate of ``solution``, with the proof of the highest bound that is found in about ``seconds``.

    If one linear program does not prove enough, an enumeration may, and else a proof by cases. Guessed costs count with
    their lower bounds.
    """
    deadline = time.monotonic() + seconds
    problem = at_least(problem)
    known = certificate_of(problem, solution, repaired(problem, potentials_of(problem)))
    if known.proved or seconds <= 0.0:
        return known
    known = certificate_of(problem, solution, lp_proof(problem, seconds))
    bound = min(solution.lower_bound, solution.seconds - solution.tie_seconds)
    if known.proved or known.proved_seconds >= bound or time.monotonic() > deadline:
        return known
    claim = Enumeration(bound, lp_potentials(problem, max(0.1, deadline - time.monotonic())))
    if why_not_enumerated(problem, claim) is None:
        return certificate_of(problem, solution, enumeration=claim)
    if (left := deadline - time.monotonic()) <= 0.0:
        return known
    branches = branched(problem, bound, left)
    by_cases = certificate_of(problem, solution, branches=branches)
    return by_cases if by_cases.proved_seconds > known.proved_seconds else known


def quick(problem: Problem) -> Solution:
    """:func:`solve` where a plan is needed again and again, and the last search has the time to prove one."""
    if problem.has_transitions:
        near = _without_transitions(problem, _QUICK_SECONDS / 4)
        if near is not None and near.gap <= _NEAR:
            return near
    return _auto(problem, _SHORT, _QUICK_SECONDS)


def _auto(problem: Problem, max_states: int, seconds: float) -> Solution:
    deadline = time.monotonic() + seconds
    first = None
    if problem.has_transitions:
        # The state has the backends of all live values then, and most such problems have too many states.
        first = _with_transitions(problem, seconds / 4)
        if first is not None and first.gap <= _NEAR:
            return first
    try:
        found = cheapest_cover(problem, max_states=min(max_states, _SHORT), seconds=seconds / 4)
    except NoCover as error:
        return first or _second_opinion(problem, deadline - time.monotonic(), error)
    if first is not None:
        found = _best_of(found, first)
    if not found.is_closed and (left := deadline - time.monotonic()) > 0.0:
        found = _best_of(found, _with_potentials(problem, max_states, left / 3))
    if not found.is_closed and (left := deadline - time.monotonic()) > 0.0:
        found = _best_of(found, milp_cover(problem, left, start=found))
    return found


def _without_transitions(problem: Problem, seconds: float) -> Solution | None:
    """The cheapest plan without transitions, at its cost with them: a plan near the cheapest where they cost little."""
    try:
        found = cheapest_cover(replace(problem, transitions={}), max_states=_SHORT, seconds=seconds)
    except NoCover:
        return None
    return solution_of(problem, found.chosen, found.algorithm, found.lower_bound, found.visited)


def _with_transitions(problem: Problem, seconds: float) -> Solution | None:
    """The plan of integer programming, or a plan that is near; None if neither is found in time."""
    near = _without_transitions(problem, seconds / 2)
    try:
        found = milp_cover(problem, seconds / 2, start=near)
    except NotInTime:
        return near
    return found if near is None else _best_of(found, near)


def _with_potentials(problem: Problem, max_states: int, seconds: float) -> Solution:
    """The exact search with the best potentials, with which it visits a fraction of the states."""
    potentials = lp_potentials(problem, seconds / 2)
    return cheapest_cover(problem, max_states=max_states, seconds=seconds / 2, potentials=potentials)


def _best_of(one: Solution, other: Solution) -> Solution:
    """The cheaper plan, or the first one if both cost the same, with the better bound of the two."""
    better = min(one, other, key=lambda solution: solution.seconds)
    bound = min(max(one.lower_bound, other.lower_bound), better.seconds)
    return replace(better, lower_bound=bound, visited=one.visited + other.visited)


def _second_opinion(problem: Problem, seconds: float, error: NoCover) -> Solution:
    """Integer programming, after the exact search has raised ``error``.

    The exact search also raises NoCover if its budget ends before its first plan; integer programming shows which it
    is.
    """
    try:
        return milp_cover(problem, seconds)
    except (NoCover, NotInTime):
        raise error from None


def _bounded(problem: Problem, solution: Solution) -> Solution:
    bound = repaired(problem, potentials_of(problem)).seconds
    return replace(solution, lower_bound=min(max(0.0, bound), solution.seconds))
