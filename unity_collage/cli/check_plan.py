"""The plans in a file, and what the checker of plans says of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS, PLAN
from ..errors import CollageError, first_line
from ..lowering.library_file import opened
from ..lowering.seal import facts_in
from ..passes.search_partition import stated_problem
from ..plan.check import Finding, checked
from ..plan.instance import unpacked
from ..plan.plan import Plan
from ..program.facts import Facts, plans_in
from ..search import Problem

SUFFIXES = (".so", ".json", ".py", ".txt")
"""Of a saved program, of a report, and of a module as text."""

Functions = Mapping[str, relax.Function]


def is_file_of_plans(name: str) -> bool:
    """Whether ``name`` is of a file with plans, rather than of a backend."""
    return Path(name).suffix in SUFFIXES or ("." in Path(name).name and Path(name).is_file())


def findings(path: str, annotated: str | None = None) -> Iterator[tuple[str, Finding]]:
    """For each plan in a file, the name of its function and what the checker says.

    ``annotated``: a module as text with the functions that were searched and their ``collage.costs``. Then the problem
    that a plan answers is made anew from there. Raises CollageError for a file that cannot be read or has no plans.
    """
    plans, searched = _plans_of(path)
    if annotated is not None:
        searched = _functions(annotated)
    if not plans:
        raise CollageError(
            f"{path} has no plan: no function of it was partitioned by costs, as compile does without --no-measure"
        )
    for name, plan in plans.items():
        yield name, checked(plan, _stated(name, plan, searched, annotated))


def _stated(name: str, plan: Plan, searched: Functions, annotated: str | None) -> Problem | None:
    func = searched.get(name)
    if func is None or not CANDIDATES.on(func) or not COSTS.on(func):
        if annotated is not None:
            raise CollageError(f"{annotated} has no function {name} with candidates and costs")
        return None
    return stated_problem(func, unpacked(plan.problem).redundant if plan.problem else True)


def _plans_of(path: str) -> tuple[dict[str, Plan], Functions]:
    """The plans in a file by function; of a module also its functions."""
    if not Path(path).is_file():
        raise CollageError(f"{path} is not a file")
    if Path(path).suffix == ".json":
        return _reported(path), {}
    with Path(path).open("rb") as file:
        is_library = file.read(4) == b"\x7fELF"
    if not is_library:
        functions = _functions(path)
        return {name: PLAN.read(func) for name, func in functions.items() if PLAN.on(func)}, functions
    with opened(path) as file:
        facts: Facts = facts_in(file)
    return plans_in(facts), {}


def _reported(path: str) -> dict[str, Plan]:
    """The plans in a JSON file: that of ``--report``, or one plan or several by name."""
    try:
        data: Any = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise CollageError(f"{path} is not JSON: {first_line(error)}") from error
    if not isinstance(data, dict):
        raise CollageError(f"{path} has no plans by function: compile --report plan.json writes such a file")
    plans = cast("dict[str, Any]", data)
    if "kernels" in plans or "certificate" in plans:
        plans = {"plan": plans}
    if not all(isinstance(plan, dict) for plan in plans.values()):
        raise CollageError(f"{path} has no plans by function: compile --report plan.json writes such a file")
    return {name: PLAN.decoded(plan) for name, plan in plans.items()}


def _functions(path: str) -> Functions:
    """The Relax functions of a module as text."""
    try:
        module: Any = tvm.script.from_source(Path(path).read_text(encoding="utf-8"))
    except Exception as error:  # the parser fails in many ways: the error becomes the reason
        raise CollageError(
            f"{path} is not a module as text, as mod.script(show_meta=True) writes it: {first_line(error)}"
        ) from error
    if not isinstance(module, IRModule):
        raise CollageError(f"{path} is not a module as text: mod.script(show_meta=True) writes one")
    return {
        gvar.name_hint: func for gvar, func in module.functions_items() if isinstance(func, relax.Function)
    }
