"""Statements: the functions that plans are checked against, from a module as text or from a model."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm import relax

from ..annotations import CANDIDATES, COSTS
from ..backends.registry import excluding
from ..errors import CollageError
from ..graph import DataflowGraph
from ..passes.search_partition import checked_for, stated_problem
from ..plan.check import Finding, checked
from ..plan.check_function import why_another_function, why_other_candidates
from ..plan.instance import unpacked
from ..plan.plan import Plan
from ..search import Problem
from .plan_files import Functions, functions_of


@dataclass(frozen=True)
class Statement:
    """Functions with candidates, as they were before a search."""

    functions: Functions
    where: str = ""
    """The file that states them, for messages; empty: a function that is missing is not checked against anything."""
    has_costs: bool = True
    """Whether they have costs too; otherwise only their candidates are compared."""

    def checked(self, name: str, plan: Plan) -> Finding:
        """The verdict on the ``plan`` of the function ``name``; raises CollageError where that is not stated."""
        chooses = (
            plan.variants or plan.range is not None
        )  # there was no search for a function that only chooses
        if chooses and plan.certificate is None:
            return checked(plan)
        func = self._searched(name)
        if func is None:
            return checked(plan)
        return checked_for(func, plan) if self.has_costs else _with_candidates(func, plan)

    def problem(self, name: str) -> Problem | None:
        """The problem that the function ``name`` states; None where it states none."""
        func = self._searched(name)
        return stated_problem(func) if func is not None and self.has_costs else None

    def why_other_candidates(self, name: str, problem: str) -> str | None:
        """Why a ``problem`` as text is not about the candidates of the function ``name``, or None."""
        func = self._searched(name)
        if func is None or self.has_costs:
            return None
        reason = _why_other_candidates(unpacked(problem), func)
        return reason and f"the static plan of {name}: {reason}"

    def _searched(self, name: str) -> relax.Function | None:
        """The function that was searched; None where it is not stated and need not be."""
        func = self.functions.get(name)
        if func is not None and CANDIDATES.on(func) and (COSTS.on(func) or not self.has_costs):
            return func
        if not self.where:
            return None
        what = "candidates and costs" if self.has_costs else "candidates"
        raise CollageError(f"{self.where} has no function {name} with {what}")


def of_text(path: str) -> Statement:
    """What a module as text states; raises CollageError."""
    return Statement(functions_of(path), path)


def _with_candidates(func: relax.Function, plan: Plan) -> Finding:
    """The verdict on a plan whose costs are not known, with the candidates of its function."""
    finding = checked(plan)
    if not finding.holds or plan.certificate is None:
        return finding
    problem, candidates = unpacked(plan.problem), CANDIDATES.read(func)
    reason = why_another_function(plan, DataflowGraph(func), candidates)
    if reason := reason or _why_other_candidates(problem, func):
        return Finding(False, f"does not hold: {reason}")
    text = f"{finding.text}; its candidates are those of the model"
    there = {option.id for option in problem.options}
    if without := sum(candidate.id not in there for candidate in candidates):
        text += f", and it leaves out {without} for which it has no cost"
    if late := sum(option.is_open for option in problem.options):
        text += f"; {late} of them were not measured"
    return replace(finding, text=text)


def _why_other_candidates(problem: Problem, func: relax.Function) -> str | None:
    candidates = CANDIDATES.read(func)
    exclusions = excluding(candidate.backend for candidate in candidates)
    return why_other_candidates(problem, DataflowGraph(func), candidates, exclusions)
