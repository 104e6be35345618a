"""The cheapest plan by integer programming (HiGHS), with cycles forbidden as they turn up.

A cycle among chosen kernels is cut off (not all of them together), and the program is solved again. Each relaxed
optimum is a lower bound, so the first one without a cycle is optimal.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from ..index_set import members
from .greedy import greedy_cover
from .linear import Model, minimise
from .milp_model import PlanModel, chosen_in, plan_model, point_of
from .plans import PlanUnit, cycles_of, dependencies, left_behind, solution_of, units_of
from .problem import NoCover, Option, Problem, Solution

_TOLERANCE = 1e-6
"""HiGHS proves in floating point: a plan that is so near to its bound, as a part of the cost, is optimal to it."""


def milp_cover(problem: Problem, seconds: float = 60.0, start: Solution | None = None) -> Solution:
    """A cheapest valid plan, or with too little time the best known one, ``start`` or greedy's, and its bound.

    Raises NoCover, and TimeoutError if no valid plan was found in time.
    """
    deadline = time.monotonic() + seconds
    best = start or _greedy(problem)
    plan = plan_model(problem)
    for index in _in_no_option(plan):
        raise NoCover(index)
    bound, visited = 0.0, 0
    while True:
        point = point_of(plan, best.chosen, best.left_behind) if best else None
        outcome = minimise(plan.model, deadline - time.monotonic(), point)
        visited += outcome.visited
        if outcome.status == "infeasible":
            raise NoCover(_unmade(plan, deadline))
        bound = max(bound, outcome.bound)
        chosen = chosen_in(plan, outcome.values)
        cycles = _cycles(plan, chosen) if outcome.values else []
        if outcome.values and not cycles:
            best = _better(best, solution_of(problem, chosen, "milp"))
        if not cycles or time.monotonic() > deadline:
            return _answer(best, bound, visited, seconds)
        for cycle in cycles:
            plan.model.row(-float("inf"), [(column, 1.0) for column in cycle], len(cycle) - 1.0)


def _greedy(problem: Problem) -> Solution | None:
    """A plan to begin with. That greedy finds none does not mean that there is none."""
    try:
        return greedy_cover(problem)
    except NoCover:
        return None


def _better(known: Solution | None, found: Solution) -> Solution:
    return known if known is not None and known.seconds <= found.seconds else found


def _answer(best: Solution | None, bound: float, visited: int, seconds: float) -> Solution:
    if best is None:
        raise TimeoutError(f"no valid plan found within {seconds} s")
    near = best.seconds - bound <= _TOLERANCE * best.seconds
    lower_bound = best.seconds if near else bound
    return Solution(best.chosen, best.left_behind, best.seconds, lower_bound, "milp", visited)


def _cycles(plan: PlanModel, chosen: list[Option]) -> list[list[int]]:
    """Columns that cannot all be taken, cycle by cycle."""
    units = units_of(plan.problem, chosen, left_behind(plan.problem, chosen))
    return [[_column(plan, units[at]) for at in cycle] for cycle in cycles_of(units, dependencies(units))]


def _column(plan: PlanModel, unit: PlanUnit) -> int:
    return plan.left[unit.first] if unit.option is None else plan.columns[unit.option.id]


def _in_no_option(plan: PlanModel) -> Iterator[int]:
    """Nodes that nothing can make."""
    makable = plan.problem.free
    for option in plan.options.values():
        makable |= option.inside
    yield from members(plan.problem.everything & ~makable)


def _unmade(plan: PlanModel, deadline: float) -> int:
    """A node that is not made where as few as possible of those that must be are not."""
    relaxed = Model([0.0] * len(plan.model.costs), list(plan.model.upper), list(plan.model.integer), [])
    missing = {node: relaxed.column(1.0, integer=True) for node in range(len(plan.problem))}
    for number, (lower, upper, terms) in enumerate(plan.model.rows):
        node = plan.cover_rows.get(number)
        relaxed.rows.append((lower, upper, terms if node is None else [*terms, (missing[node], 1.0)]))
    outcome = minimise(relaxed, max(1.0, deadline - time.monotonic()))
    return next(
        (node for node, column in missing.items() if outcome.values and outcome.values[column] > 0.5), 0
    )
