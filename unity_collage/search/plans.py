"""Plans made of chosen options: whether they can be put in an order, their order, and their cost."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from math import fsum

from ..index_set import EMPTY, IndexSet, first_inside, members
from .problem import Option, Problem, Solution


@dataclass(frozen=True, slots=True)
class PlanUnit:
    """An element of a plan: a chosen option, or a node that is left behind."""

    option: Option | None
    first: int
    inputs: IndexSet
    outputs: IndexSet


def is_usable(problem: Problem, option: Option) -> bool:
    """Whether an option can be in a valid plan: it writes its last node, and hides nodes only if that is allowed."""
    outputs = problem.outputs(option)
    if not outputs >> (option.inside.bit_length() - 1) & 1:
        return False
    return problem.redundant or outputs == problem.outputs(Option(option.id, option.inside, option.seconds))


def left_behind(problem: Problem, chosen: Sequence[Option]) -> IndexSet:
    """The nodes that a plan of ``chosen`` leaves behind: values that are wanted and that no option writes."""
    wanted, written = problem.wanted, EMPTY
    for option in chosen:
        wanted |= problem.inputs(option.inside)
        written |= problem.outputs(option)
    left = waiting = wanted & ~written
    while waiting:
        last = waiting.bit_length() - 1
        waiting ^= 1 << last
        more = problem.inputs(1 << last) & ~written & ~left
        left |= more
        waiting |= more
    return left


def units_of(problem: Problem, chosen: Sequence[Option], left: IndexSet) -> list[PlanUnit]:
    """The elements of the plan of ``chosen`` that leaves ``left`` behind."""
    kernels = [
        PlanUnit(o, first_inside(o.inside), problem.inputs(o.inside), problem.outputs(o)) for o in chosen
    ]
    behind = [PlanUnit(None, index, problem.inputs(1 << index), 1 << index) for index in members(left)]
    return kernels + behind


def dependencies(units: Sequence[PlanUnit]) -> list[list[int]]:
    """For each unit, the positions of the units that write the values it reads."""
    writer = {index: position for position, unit in enumerate(units) for index in members(unit.outputs)}
    return [sorted({writer[index] for index in members(unit.inputs)}) for unit in units]


def order_of(units: Sequence[PlanUnit], needs: Sequence[Sequence[int]]) -> list[int]:
    """The positions of the units in topological order, those with smaller first nodes earlier where that is possible.

    Units that wait for a cycle are missing.
    """
    sorter = TopologicalSorter(dict(enumerate(needs)))
    with suppress(CycleError):  # units that do not wait for a cycle are still ordered
        sorter.prepare()
    order: list[int] = []
    ready: list[tuple[int, int]] = []
    while sorter.is_active():
        for position in sorter.get_ready():
            heapq.heappush(ready, (units[position].first, position))
        if not ready:
            break
        _, position = heapq.heappop(ready)
        order.append(position)
        sorter.done(position)
    return order


def cycles_of(units: Sequence[PlanUnit], needs: Sequence[Sequence[int]]) -> list[list[int]]:
    """Disjoint cycles of units that wait for each other, at least one if there are any.

    From each unit that cannot run, a path follows one unmet dependency after the other until it meets a visited unit.
    """
    stuck = set(range(len(units))) - set(order_of(units, needs))
    found: list[list[int]] = []
    visited: set[int] = set()
    for start in sorted(stuck):
        path: list[int] = []
        position = start
        while position not in visited:
            visited.add(position)
            path.append(position)
            position = next(needed for needed in needs[position] if needed in stuck)
        if position in path:
            found.append(path[path.index(position) :])
    return found


def plan_seconds(problem: Problem, units: Sequence[PlanUnit], needs: Sequence[Sequence[int]]) -> float:
    """The seconds of costs, launches and transitions of ``units``, which must have an order."""
    chosen = [unit.option for unit in units if unit.option is not None]
    costs = [problem.cost(option) for option in chosen]
    return fsum(costs + _transitions(problem, units, needs)) if problem.transitions else fsum(costs)


def _transitions(problem: Problem, units: Sequence[PlanUnit], needs: Sequence[Sequence[int]]) -> list[float]:
    sides = {index: unit.option.sides for unit in units if unit.option for index in members(unit.outputs)}
    behind: dict[int, frozenset[int]] = {index: frozenset((index,)) for index in sides}
    for position in order_of(units, needs):
        unit = units[position]
        if unit.option is None:
            behind[unit.first] = frozenset[int]().union(*(behind[index] for index in members(unit.inputs)))
    reads = {
        (origin, side)
        for unit in units
        if unit.option is not None
        for index in members(unit.inputs)
        for origin in behind[index]
        for side in unit.option.sides
    }
    return [problem.crossing(sides[origin], reader, origin) for origin, reader in sorted(reads)]


def solution_of(
    problem: Problem, chosen: Sequence[Option], algorithm: str, lower_bound: float = 0.0, visited: int = 0
) -> Solution:
    """The solution of ``chosen``, which must be a valid plan, in running order and with its cost."""
    left = left_behind(problem, chosen)
    units = units_of(problem, chosen, left)
    needs = dependencies(units)
    ordered = tuple(o for position in order_of(units, needs) if (o := units[position].option) is not None)
    seconds = plan_seconds(problem, units, needs)
    return Solution(ordered, left, seconds, min(lower_bound, seconds), algorithm, visited)
