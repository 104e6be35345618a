"""The plans in a file, and the verdicts of the checker of plans."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..errors import CollageError, is_file
from ..inspection.plan_files import SUFFIXES, plans_of
from ..inspection.statement import Statement
from ..plan.check import Finding
from ..plan.check_ranges import checked_range
from ..plan.plan import Plan


def is_file_of_plans(name: str) -> bool:
    """Whether ``name`` is of a file with plans, rather than of a backend."""
    return Path(name).suffix in SUFFIXES or ("." in Path(name).name and is_file(name))


def findings(path: str, stated: Statement | None = None) -> Iterator[tuple[str, Finding]]:
    """For each plan in a file, the name of its function and the checker's verdict.

    ``stated``: the functions that were searched. With them the search problem of each plan is built again, or its
    candidates are compared. Raises CollageError for a file that cannot be read or has no plans.
    """
    plans, own = plans_of(path)
    if not plans:
        raise CollageError(
            f"{path} has no plan: no function in it was partitioned by costs; compile without --no-measure"
        )
    statement = stated or Statement(own)
    found = {name: statement.checked(name, plan) for name, plan in plans.items()}
    fails = {name: not finding.holds for name, finding in found.items()}
    for name, plan in plans.items():
        if plan.range is not None and not fails[name]:
            found[name] = checked_range(plans, name, fails, statement.problem)
            if found[name].holds and (reason := _why_other_candidates(plan, statement)):
                found[name] = Finding(False, f"does not hold: {reason}")
    yield from found.items()


def _why_other_candidates(plan: Plan, statement: Statement) -> str | None:
    """Why static plans that a range names are of other candidates than those that are stated, or None."""
    claimed = plan.range.sizes if plan.range is not None else ()
    reasons = (statement.why_other_candidates(each.variant, each.problem) for each in claimed if each.problem)
    return next(filter(None, reasons), None)
