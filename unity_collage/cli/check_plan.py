"""The plans in a file, and the verdicts of the checker of plans."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tvm import relax

from ..annotations import CANDIDATES, COSTS
from ..errors import CollageError
from ..inspection.plan_files import SUFFIXES, Functions, functions_of, plans_of
from ..passes.search_partition import checked_for, stated_problem
from ..plan.check import Finding, checked
from ..plan.check_ranges import checked_range
from ..plan.plan import Plan
from ..search import Problem


def is_file_of_plans(name: str) -> bool:
    """Whether ``name`` is of a file with plans, rather than of a backend."""
    return Path(name).suffix in SUFFIXES or ("." in Path(name).name and Path(name).is_file())


def findings(path: str, annotated: str | None = None) -> Iterator[tuple[str, Finding]]:
    """For each plan in a file, the name of its function and the checker's verdict.

    ``annotated``: a module as text with the functions that were searched and their ``collage.costs``. With it the
    search problem of each plan is built again from these. Raises CollageError for a file that cannot be read or has
    no plans.
    """
    plans, searched = plans_of(path)
    if annotated is not None:
        searched = functions_of(annotated)
    if not plans:
        raise CollageError(
            f"{path} has no plan: no function in it was partitioned by costs; compile without --no-measure"
        )
    found = {name: _found(name, plan, searched, annotated) for name, plan in plans.items()}
    fails = {name: not finding.holds for name, finding in found.items()}

    def stated(name: str) -> Problem | None:
        func = _searched(name, searched, annotated)
        return None if func is None else stated_problem(func)

    for name, plan in plans.items():
        if plan.range is not None and not fails[name]:
            found[name] = checked_range(plans, name, fails, stated)
    yield from found.items()


def _found(name: str, plan: Plan, searched: Functions, annotated: str | None) -> Finding:
    """The checker's verdict on one plan without its module."""
    if plan.variants and plan.certificate is None:  # there was no search for a function that only chooses
        return checked(plan)
    func = _searched(name, searched, annotated)
    return checked(plan) if func is None else checked_for(func, plan)


def _searched(name: str, searched: Functions, annotated: str | None) -> relax.Function | None:
    """The function that was searched, if it is at hand; raises CollageError where the annotated module lacks it."""
    func = searched.get(name)
    if func is None or not CANDIDATES.on(func) or not COSTS.on(func):
        if annotated is not None:
            raise CollageError(f"{annotated} has no function {name} with candidates and costs")
        return None
    return func
