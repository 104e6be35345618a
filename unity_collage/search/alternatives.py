"""Alternatives to the kernels of a plan: the groups of choices that the evolutionary search combines."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..index_set import EMPTY, IndexSet, first_inside, is_subset, members
from .camps import are_compatible
from .evolutionary import EvolutionSettings, Genome, evolve, first_state
from .plans import dependencies, is_usable, left_behind, order_of, plan_seconds, solution_of, units_of
from .problem import Option, Problem, Solution

Parts = tuple[Option, ...]
"""Kernels that together replace one kernel."""


def evolutionary_cover(
    problem: Problem, base: Solution, settings: EvolutionSettings | None = None, seconds: float = 60.0
) -> Solution:
    """The best plan that the evolutionary search makes of alternatives to the kernels of ``base``, by additive cost.

    ``base`` itself is among the first genomes, so the result is never more expensive.
    """
    settings = settings or EvolutionSettings()
    deadline = time.monotonic() + seconds
    groups = alternatives(problem, base)
    sizes = [len(choices) for choices in groups]
    seeds = ((0,) * len(groups), tuple(_cheapest(problem, choices) for choices in groups))
    start = first_state(sizes, seeds, settings)
    state = evolve(
        sizes,
        lambda genome: seconds_of(problem, picked(groups, genome)),
        start,
        settings,
        deadline - time.monotonic(),
    )
    if state.best is None or state.best[1] >= base.seconds:
        return replace(base, algorithm="evolutionary", visited=len(state.known))
    chosen = picked(groups, state.best[0])
    return solution_of(problem, chosen, "evolutionary", base.lower_bound, len(state.known))


def alternatives(problem: Problem, solution: Solution, most: int = 12) -> tuple[tuple[Parts, ...], ...]:
    """For each chosen kernel up to ``most`` choices; the kernel itself comes first.

    Options with the same effect follow, such as those of other backends, then splits into smaller options and nodes
    left behind. Every combination is a valid plan if its kernels can be put in an order.
    """
    usable = [option for option in problem.options if is_usable(problem, option)]
    within: dict[int, list[Option]] = {index: [] for index in range(len(problem))}
    for option in usable:
        within[first_inside(option.inside)].append(option)
    shared = _shared(solution.chosen)
    groups: list[tuple[Parts, ...]] = []
    for chosen in solution.chosen:
        choices: list[Parts] = [(chosen,)]
        choices += (
            (option,)
            for option in within[first_inside(chosen.inside)]
            if option != chosen and option.inside == chosen.inside and option.hidden == chosen.hidden
        )
        if not chosen.inside & shared:
            choices += _splits(problem, chosen, within, most)
        groups.append(tuple(choices[:most]))
    return tuple(groups)


def picked(groups: Sequence[Sequence[Parts]], genome: Genome) -> list[Option]:
    """The kernels that ``genome`` encodes."""
    return [part for choices, number in zip(groups, genome, strict=True) for part in choices[number]]


def seconds_of(problem: Problem, chosen: Sequence[Option]) -> float | None:
    """The cost of the plan of these kernels; None if they cannot be put in an order, or exclude each other."""
    if not are_compatible(problem, frozenset(option.backend for option in chosen)):
        return None
    units = units_of(problem, chosen, left_behind(problem, chosen))
    needs = dependencies(units)
    return plan_seconds(problem, units, needs) if len(order_of(units, needs)) == len(units) else None


def _cheapest(problem: Problem, choices: Sequence[Parts]) -> int:
    costs = [sum(problem.cost(part) for part in parts) for parts in choices]
    return costs.index(min(costs))


def _shared(chosen: Sequence[Option]) -> IndexSet:
    """The nodes that several kernels compute."""
    once = twice = EMPTY
    for option in chosen:
        twice |= once & option.inside
        once |= option.inside
    return twice


def _splits(problem: Problem, whole: Option, within: dict[int, list[Option]], most: int) -> Iterator[Parts]:
    """The first ``most`` ways to replace ``whole`` by smaller options that can be put in an order."""
    alone = replace(problem, redundant=False)
    smaller = {
        index: [
            option
            for option in within[index]
            if option.inside != whole.inside
            and is_subset(option.inside, whole.inside)
            and is_usable(alone, option)
        ]
        for index in members(whole.inside)
    }
    found = 0
    for parts in _covers(problem, smaller, whole.inside, [32 * most]):
        if parts and _can_run(problem, parts, whole.inside):
            yield parts
            found += 1
        if found == most:
            return


def _covers(
    problem: Problem, smaller: dict[int, list[Option]], rest: IndexSet, steps: list[int]
) -> Iterator[Parts]:
    """Sets of disjoint options that cover ``rest``, without free nodes that are left behind.

    It is a depth-first exact cover: the first uncovered node is covered next. ``steps`` bounds the number of tries.
    """
    if not rest:
        yield ()
        return
    index = first_inside(rest)
    for option in smaller[index]:
        if is_subset(option.inside, rest) and steps[0] > 0:
            steps[0] -= 1
            for parts in _covers(problem, smaller, rest & ~option.inside, steps):
                yield (option, *parts)
    if problem.free >> index & 1 and steps[0] > 0:
        steps[0] -= 1
        yield from _covers(problem, smaller, rest & ~(1 << index), steps)


def _can_run(problem: Problem, parts: Parts, inside: IndexSet) -> bool:
    """Whether the parts, and the nodes inside that are left behind, can be put in an order."""
    left = inside
    for part in parts:
        left &= ~part.inside
    units = units_of(problem, parts, left)
    inner = [replace(unit, inputs=unit.inputs & inside) for unit in units]
    return len(order_of(inner, dependencies(inner))) == len(inner)
