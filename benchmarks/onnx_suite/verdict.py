"""The verdict on one case of the suite."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import unity_collage as uc
from unity_collage.backends import select
from unity_collage.cost.model import CostModel

from .cases import Case, operators
from .exact import is_nearer

PASSED, REFUSED, WRONG, CRASHED = "passed", "refused", "wrong", "crashed"

NEARER = "nearer to the results in double precision than the expected ones are"
"""The reason of a case that passes though it is not within its tolerances: these are below the rounding of the
reference, which rounds to 16 bits after each step, or transforms in single precision."""

_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a case, and why."""

    name: str
    kind: str
    operators: tuple[str, ...]
    outcome: str
    reason: str = ""


def kernel_backends() -> list[str]:
    """The backends that make kernels: other runtimes would compute what our importer refuses."""
    return [backend.name for backend in select(None, uc.host_target())]


def verdict(case: Case, costs: CostModel, backends: Sequence[str] | None = None) -> Verdict:
    """Compile a case by ``costs``, run it, and compare each result by the case's own tolerances."""
    found = Verdict(case.name, case.kind, tuple(operators(case)), PASSED)
    try:
        program = uc.compile(case.model(), backends=backends or kernel_backends(), estimator=costs)
    except uc.CollageError as error:
        return replace(found, outcome=REFUSED, reason=str(error))
    except Exception as error:
        return replace(found, outcome=CRASHED, reason=_last_line(error))
    try:
        reason = why_wrong(program, case)
    except Exception as error:  # a program that was compiled has to run
        return replace(found, outcome=CRASHED, reason=_last_line(error))
    if reason is None or reason == NEARER:
        return replace(found, reason=reason or "")
    return replace(found, outcome=WRONG, reason=reason)


def why_wrong(program: uc.Program, case: Case) -> str | None:
    """Why a program does not compute what a case expects; None where it does.

    ``NEARER`` where it is off by more than the case allows because the expected numbers themselves are.
    """
    nearer = None
    for inputs, expected in case.data():
        results = flat(program(*inputs))
        if is_random(case):
            again = flat(program(*inputs))
            reason = why_not_alike(results, expected) or why_not_equal(results, again, 0.0, 0.0)
        else:
            reason = why_not_equal(results, expected, case.rtol, case.atol)
        may_be_nearer = not is_random(case) and why_not_alike(results, expected) is None
        if reason is not None and may_be_nearer and is_nearer(case, inputs, results, expected):
            nearer = NEARER
        elif reason is not None:
            return reason
    return nearer


def _last_line(error: Exception) -> str:
    lines = traceback.format_exception_only(error)[-1].strip().splitlines()
    return lines[-1][:300] if lines else type(error).__name__


def is_random(case: Case) -> bool:
    """Whether the results of a case are random: then the standard defines no numbers."""
    nodes = case.model().graph.node
    return any(node.op_type in _RANDOM for node in nodes) or "training_dropout" in case.name


def flat(result: Any) -> list[np.ndarray]:
    """The arrays of a program's result."""
    if hasattr(result, "numpy"):
        return [result.numpy()]
    return [array for part in result for array in flat(part)]


def why_not_alike(results: Sequence[np.ndarray], expected: Sequence[Any]) -> str | None:
    """Why results do not have the number, shapes and types that are expected; None where they have."""
    if len(results) != len(expected):
        return f"{len(results)} results, should be {len(expected)}"
    for number, (got, want) in enumerate(zip(results, expected, strict=True)):
        want = np.asarray(want)
        if got.dtype != want.dtype:
            return f"result {number} is {got.dtype}, should be {want.dtype}"
        if got.shape != want.shape:
            return f"result {number} is {got.shape}, should be {want.shape}"
    return None


def why_not_equal(
    results: Sequence[np.ndarray], expected: Sequence[Any], rtol: float, atol: float
) -> str | None:
    """Why results are not what is expected within the tolerances; None where they are."""
    if (reason := why_not_alike(results, expected)) is not None:
        return reason
    for number, (got, want) in enumerate(zip(results, expected, strict=True)):
        want = np.asarray(want)
        if want.dtype.kind in "biu":
            wrong = got != want
        else:  # numpy's own types, and those of ml_dtypes
            a, b = got.astype(np.float64), want.astype(np.float64)
            wrong = ~np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
        if np.any(wrong):
            first = tuple(int(i) for i in np.argwhere(wrong)[0])
            return f"result {number}: {np.sum(wrong)} of {wrong.size} wrong, {got[first]!r} should be {want[first]!r}"
    return None
