"""The plans of candidate programs: ours, and those that a user could choose instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tvm import relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS
from ..graph import DataflowGraph
from ..index_set import EMPTY
from ..plan.candidate import VIEW
from ..plan.problem import problem_of
from ..search import NoCover, Problem, Solution, quick
from ..search.auto import solve
from ..search.ties import with_ties_broken

Choice = dict[str, tuple[int, ...]]
"""Ids of the chosen candidates, by the name of their function."""

OURS = "collage"
GREEDY = "greedy"


def problems_of(mod: IRModule) -> dict[str, Problem]:
    """The search problem of each function with costs, by the name of the function."""
    found: dict[str, Problem] = {}
    for gvar, func in mod.functions_items():
        if isinstance(func, relax.Function) and COSTS.on(func):
            graph = DataflowGraph(func)
            found[gvar.name_hint] = problem_of(graph, CANDIDATES.read(func), COSTS.read(func))
    return found


def choices(problems: Mapping[str, Problem], priority: Sequence[str]) -> Iterator[tuple[str, Choice, float]]:
    """Our plan, then the greedy one and that of each backend alone, if they exist and differ from earlier ones.

    Each with its name and its seconds by the costs of its kernels.
    """
    seen: list[Choice] = []
    for name in (OURS, GREEDY, *priority):
        try:
            found = {function: _solved(name, problem, priority) for function, problem in problems.items()}
        except NoCover:
            continue
        plan = {function: ids_of(solution) for function, solution in found.items()}
        if plan not in seen:
            seen.append(plan)
            yield name, plan, sum(solution.seconds for solution in found.values())


def ids_of(solution: Solution) -> tuple[int, ...]:
    """The ids of the chosen candidates in ascending order, so that equal plans are equal values."""
    return tuple(sorted(option.id for option in solution.chosen))


def _solved(name: str, problem: Problem, priority: Sequence[str]) -> Solution:
    if name == OURS:
        return with_ties_broken(problem, solve(problem), priority)
    if name == GREEDY:
        return solve(problem, "greedy", priority=priority)
    return quick(alone(problem, name))


def alone(problem: Problem, backend: str) -> Problem:
    """``problem`` for ``backend`` alone: TVM gets what it does not take, and other backends get nothing."""
    own = tuple(option for option in problem.options if option.backend == backend)
    views = tuple(option for option in problem.options if option.backend == VIEW)
    taken = EMPTY
    for option in own:
        taken |= option.inside
    rest = tuple(o for o in problem.options if o.backend == "tvm" and not o.inside & taken)
    return replace(problem, options=own + views if backend == "tvm" else own + rest + views)
