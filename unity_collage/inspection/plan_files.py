"""The plans in a file: a saved program, a report as JSON, or a module as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..annotations import PLAN
from ..errors import CollageError, first_line, is_file, not_a_file, text_in
from ..lowering.library_file import opened
from ..lowering.seal import facts_in
from ..plan.plan import Plan
from ..program.facts import Facts, plans_in

_LIBRARY = ".so"

SUFFIXES = (_LIBRARY, ".json", ".py", ".txt")
"""The suffixes of a saved program, of a report, and of a module as text."""

Functions = Mapping[str, relax.Function]


def plans_of(path: str) -> tuple[dict[str, Plan], Functions]:
    """The plans in a file by function; of a module as text also its functions.

    Raises CollageError for a file that is missing, or that is none of these.
    """
    if not is_file(path):
        raise CollageError(not_a_file(path))
    if Path(path).suffix == ".json":
        return _reported(path), {}
    is_library = _begin_of(path) == b"\x7fELF"
    if not is_library and Path(path).suffix not in SUFFIXES:
        raise CollageError(
            f"{path} has no plan: name a saved program (.so), a report (.json), or a partitioned module (.py)"
        )
    if not is_library and Path(path).suffix == _LIBRARY:
        raise CollageError(f"{path} is not a saved program, or only a part of one")
    if not is_library:
        functions = functions_of(path)
        return {name: PLAN.read(func) for name, func in functions.items() if PLAN.on(func)}, functions
    with opened(path) as file:
        facts: Facts = facts_in(file)
    return plans_in(facts), {}


def _begin_of(path: str) -> bytes:
    """The first four bytes of a file."""
    try:
        with Path(path).open("rb") as file:
            return file.read(4)
    except OSError as error:
        raise CollageError(f"{path} cannot be read: {error.strerror}") from error


def _reported(path: str) -> dict[str, Plan]:
    """The plans in a JSON file: that of ``--report`` or of ``--json``, or one plan or several by name."""
    text = text_in(path, "a plan in JSON, as compile --report plan.json writes it")
    try:
        data: Any = json.loads(text)
    except ValueError as error:
        raise CollageError(f"{path} is not JSON: {first_line(error)}") from error
    if not isinstance(data, dict):
        raise CollageError(f"{path} has no plans by function: compile --report plan.json writes such a file")
    plans = cast("dict[str, Any]", data)
    if "kernels" in plans or "certificate" in plans:
        plans = {"plan": plans}
    elif isinstance(plans.get("plans"), dict) and "kernels" not in plans["plans"]:
        plans = plans["plans"]
    if not all(isinstance(plan, dict) for plan in plans.values()):
        raise CollageError(f"{path} has no plans by function: compile --report plan.json writes such a file")
    return {name: PLAN.decoded(plan) for name, plan in plans.items()}


def functions_of(path: str) -> Functions:
    """The Relax functions of a module as text."""
    expected = "a module as text, as mod.script(show_meta=True) writes it"
    text = text_in(path, expected)
    try:
        module: Any = tvm.script.from_source(text)
    except Exception as error:  # the parser fails in many ways: the error becomes the reason
        raise CollageError(f"{path} is not {expected}: {first_line(error)}") from error
    if not isinstance(module, IRModule):
        raise CollageError(f"{path} is not a module as text: mod.script(show_meta=True) writes one")
    return {
        gvar.name_hint: func for gvar, func in module.functions_items() if isinstance(func, relax.Function)
    }
