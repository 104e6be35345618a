"""Cheapest cover by best-first search over covered sets, after the Collage RFC.

A state is the set of nodes covered so far. The next uncovered node in post-dfs order is covered by any option
that contains it and nothing covered yet, or left behind. The RFC's plain Dijkstra is sharpened by an admissible
bound (A*): each uncovered node costs at least its share of the cheapest option that contains it.

Convex options may still wait for each other (a->b, a->d, c->b, c->d with {a,d} and {c,b}), so a state also
carries the kernels that wait for a node not covered yet; an option that would have to wait for itself
through them is not taken. States with equal covered nodes and equal waiting kernels have equal futures.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from ..index_set import EMPTY, IndexSet, first_inside, first_outside, members, size
from .problem import NoCover, Option, Problem, Solution, uncoverable

_Waiting = tuple[tuple[IndexSet, IndexSet], ...]
"""(inside, inputs) of each kernel that waits, sorted."""


@dataclass(slots=True, eq=False)
class _State:
    covered: IndexSet
    waiting: _Waiting
    seconds: float
    bound: float
    """At least what covering the rest costs."""
    previous: _State | None
    step: Option | None
    """The option that led here; None: a node was left behind."""


def cheapest_cover(problem: Problem) -> Solution:
    """A provably cheapest acyclic cover of ``problem``; raises NoCover.

    Equal costs are resolved towards the option with the smaller id, so equal input gives equal output.
    """
    for index in uncoverable(problem):
        raise NoCover(index)
    shares = _shares(problem)
    by_first = _by_first(problem)
    start = _State(EMPTY, (), 0.0, sum(shares), None, None)
    best: dict[tuple[IndexSet, _Waiting], float] = {(EMPTY, ()): 0.0}
    queue: list[tuple[float, int, int, _State]] = [(start.bound, 0, 0, start)]
    visited = pushed = 0
    while queue:
        _, _, _, state = heapq.heappop(queue)
        if state.covered == problem.everything:
            return _solution(problem, state, visited)
        if state.seconds > best[state.covered, state.waiting]:
            continue
        visited += 1
        for following in _expand(problem, state, by_first, shares):
            key = (following.covered, following.waiting)
            known = best.get(key)
            if known is None or following.seconds < known:
                best[key] = following.seconds
                pushed += 1
                estimate = following.seconds + following.bound
                heapq.heappush(queue, (estimate, -size(following.covered), pushed, following))
    raise NoCover(first_outside(max(covered for covered, _ in best)))


def _shares(problem: Problem) -> list[float]:
    """For each node, the least that any cover pays for it: a cover's cost is the sum of its members' shares."""
    shares = [float("inf")] * len(problem)
    for option in problem.options:
        share = (option.seconds + problem.launch_seconds) / size(option.inside)
        for index in members(option.inside):
            shares[index] = min(shares[index], share)
    return [0.0 if problem.free >> index & 1 else share for index, share in enumerate(shares)]


def _by_first(problem: Problem) -> list[list[tuple[Option, IndexSet]]]:
    """Options with their inputs, by their first node."""
    buckets: list[list[tuple[Option, IndexSet]]] = [[] for _ in problem.sources]
    for option in sorted(problem.options, key=lambda option: option.id):
        buckets[first_inside(option.inside)].append((option, problem.inputs(option.inside)))
    return buckets


def _expand(
    problem: Problem, state: _State, by_first: list[list[tuple[Option, IndexSet]]], shares: list[float]
) -> Iterator[_State]:
    following = first_outside(state.covered)
    for option, inputs in by_first[following]:
        if option.inside & state.covered:
            continue
        waiting = _waiting(problem, state, option.inside, inputs)
        if waiting is None:
            continue
        spent = state.seconds + option.seconds + problem.launch_seconds
        saved = sum(shares[index] for index in members(option.inside))
        yield _State(state.covered | option.inside, waiting, spent, state.bound - saved, state, option)
    if problem.free >> following & 1:
        inside = 1 << following
        waiting = _waiting(problem, state, inside, problem.inputs(inside))
        if waiting is not None:
            yield _State(state.covered | inside, waiting, state.seconds, state.bound, state, None)


def _waiting(problem: Problem, state: _State, inside: IndexSet, inputs: IndexSet) -> _Waiting | None:
    """The kernels that wait once ``inside`` is taken too, or None if it would wait for itself."""
    if not state.waiting and not inputs & ~state.covered:
        return ()
    if _needs(problem, state, inputs) & inside:
        return None
    covered = state.covered | inside
    waiting = [*state.waiting, (inside, inputs)]
    while True:
        held = EMPTY
        for group, _ in waiting:
            held |= group
        still = [(group, read) for group, read in waiting if read & ~covered or read & held & ~group]
        if len(still) == len(waiting):
            return tuple(sorted(still))
        waiting = still


def _needs(problem: Problem, state: _State, inputs: IndexSet) -> IndexSet:
    """All that must be computed before ``inputs`` are there, through uncovered nodes and waiting kernels."""
    needs, grown = EMPTY, inputs
    while grown != needs:
        needs = grown
        for index in members(needs & ~state.covered):
            grown |= problem.upstream[index]
        for group, read in state.waiting:
            if group & grown:
                grown |= read
    return needs


def _solution(problem: Problem, state: _State, visited: int) -> Solution:
    chosen: list[Option] = []
    last: _State | None = state
    while last is not None:
        if last.step is not None:
            chosen.append(last.step)
        last = last.previous
    chosen.reverse()
    left = problem.everything
    for option in chosen:
        left &= ~option.inside
    return Solution(tuple(chosen), left, state.seconds, state.seconds, visited)
