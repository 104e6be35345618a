"""The plans in a file, and what the checker of plans says of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..annotations import CANDIDATES, COSTS
from ..errors import CollageError
from ..inspection.plan_files import SUFFIXES, Functions, functions_of, plans_of
from ..passes.search_partition import stated_problem
from ..plan.check import Finding, checked
from ..plan.instance import unpacked
from ..plan.plan import Plan
from ..search import Problem


def is_file_of_plans(name: str) -> bool:
    """Whether ``name`` is of a file with plans, rather than of a backend."""
    return Path(name).suffix in SUFFIXES or ("." in Path(name).name and Path(name).is_file())


def findings(path: str, annotated: str | None = None) -> Iterator[tuple[str, Finding]]:
    """For each plan in a file, the name of its function and what the checker says.

    ``annotated``: a module as text with the functions that were searched and their ``collage.costs``. Then the problem
    that a plan answers is made anew from there. Raises CollageError for a file that cannot be read or has no plans.
    """
    plans, searched = plans_of(path)
    if annotated is not None:
        searched = functions_of(annotated)
    if not plans:
        raise CollageError(f"{path} has no plan: no function of it was partitioned by costs")
    for name, plan in plans.items():
        yield name, checked(plan, _stated(name, plan, searched, annotated))


def _stated(name: str, plan: Plan, searched: Functions, annotated: str | None) -> Problem | None:
    func = searched.get(name)
    if func is None or not CANDIDATES.on(func) or not COSTS.on(func):
        if annotated is not None:
            raise CollageError(f"{annotated} has no function {name} with candidates and costs")
        return None
    return stated_problem(func, unpacked(plan.problem).redundant if plan.problem else True)
