"""The cheapest plan by integer programming (HiGHS), with cycles excluded as they occur.

If the chosen kernels wait for each other in a cycle, a row excludes choosing all of them, and the program is solved
again: lazy constraints, as for subtours in the travelling salesman problem (Dantzig, Fulkerson and Johnson, 1954). Each
optimum without some of these rows is a lower bound, so the first optimum without a cycle is a cheapest plan.
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
"""The relative gap up to which a plan is taken for optimal, since HiGHS computes bounds in floating point."""


class NotInTime(TimeoutError):
    """No valid plan was found in time. The TimeoutError of a signal handler of the user is another one."""


def milp_cover(problem: Problem, seconds: float = 60.0, start: Solution | None = None) -> Solution:
    """A cheapest valid plan with its bound; if the time ends, the best plan known, such as ``start`` or the greedy one.

    Raises NoCover, and NotInTime if no valid plan was found in time.
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
        chosen = chosen_in(plan, outcome.values) if outcome.values else []
        cycles = _cycles(plan, chosen)
        if outcome.values and not cycles:
            best = _better(best, solution_of(problem, chosen, "milp"))
        if not cycles or time.monotonic() > deadline:
            return _answer(best, bound, visited, seconds)
        for cycle in cycles:
            plan.model.row(-float("inf"), [(column, 1.0) for column in cycle], len(cycle) - 1.0)


def _greedy(problem: Problem) -> Solution | None:
    """A plan to begin with, or None: the greedy search may fail although a plan exists."""
    try:
        return greedy_cover(problem)
    except NoCover:
        return None


def _better(known: Solution | None, found: Solution) -> Solution:
    return known if known is not None and known.seconds <= found.seconds else found


def _answer(best: Solution | None, bound: float, visited: int, seconds: float) -> Solution:
    if best is None:
        raise NotInTime(f"no valid plan found within {seconds} s")
    near = best.seconds - bound <= _TOLERANCE * best.seconds
    lower_bound = best.seconds if near else bound
    return Solution(best.chosen, best.left_behind, best.seconds, lower_bound, "milp", visited)


def _cycles(plan: PlanModel, chosen: list[Option]) -> list[list[int]]:
    """For each cycle of the plan the columns of its units, which must not all be taken."""
    units = units_of(plan.problem, chosen, left_behind(plan.problem, chosen))
    return [[_column(plan, units[at]) for at in cycle] for cycle in cycles_of(units, dependencies(units))]


def _column(plan: PlanModel, unit: PlanUnit) -> int:
    return plan.left[unit.first] if unit.option is None else plan.columns[unit.option.id]


def _in_no_option(plan: PlanModel) -> Iterator[int]:
    """Nodes that are in no option and not free."""
    makable = plan.problem.free
    for option in plan.options.values():
        makable |= option.inside
    yield from members(plan.problem.everything & ~makable)


def _unmade(plan: PlanModel, deadline: float) -> int:
    """A node that cannot be covered, from the program that minimises the number of uncovered nodes."""
    relaxed = Model([0.0] * len(plan.model.costs), list(plan.model.upper), list(plan.model.integer), [])
    missing = {node: relaxed.column(1.0, integer=True) for node in range(len(plan.problem))}
    for number, (lower, upper, terms) in enumerate(plan.model.rows):
        node = plan.cover_rows.get(number)
        relaxed.rows.append((lower, upper, terms if node is None else [*terms, (missing[node], 1.0)]))
    outcome = minimise(relaxed, max(1.0, deadline - time.monotonic()))
    return next(
        (node for node, column in missing.items() if outcome.values and outcome.values[column] > 0.5), 0
    )
