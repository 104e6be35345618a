"""Whether a kernel's numbers are right: against a reference, or by the vote of several kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..database.rows import FailureKind
from .refusal import Refusal

Outputs = Sequence[np.ndarray]

_HUGE = 1 / 16
"""A result beyond this share of a type's largest number may also be infinite: another order of sums overflows."""


def why_wrong(
    got: Outputs, expected: Outputs, tolerances: Sequence[float], slack: Outputs | None = None
) -> Refusal | None:
    """Why ``got`` is wrong, or None when each error is within its tolerance, as a part of the output's range.

    ``slack``: how much farther from ``expected`` each element may be.
    """
    for number, (value, right, tolerance) in enumerate(zip(got, expected, tolerances, strict=True)):
        more = None if slack is None else slack[number]
        refusal = _why_wrong_output(f"output {number}", value, right, tolerance, more)
        if refusal is not None:
            return refusal
    return None


def elected(voters: Mapping[str, Outputs], tolerances: Sequence[float], trusted: str) -> str | None:
    """The kernel that most others agree with. In a tie a kernel that agrees with ``trusted`` wins.

    None if there is only one kernel: no other has confirmed its numbers.
    """
    if len(voters) < 2:
        return None

    def votes(name: str) -> tuple[int, bool]:
        agreeing = [o for o in voters if why_wrong(voters[o], voters[name], tolerances) is None]
        return len(agreeing), trusted in agreeing

    return max(voters, key=votes)


def _why_wrong_output(
    name: str, value: np.ndarray, right: np.ndarray, tolerance: float, slack: np.ndarray | None
) -> Refusal | None:
    limit = _largest(right) * _HUGE
    value, right = value.astype(np.float64), right.astype(np.float64)
    usual = np.abs(right) < limit
    if not np.all(np.isfinite(value) | ~usual):
        return Refusal(f"{name} is infinite or NaN where the reference is finite", FailureKind.NOT_FINITE)
    if not np.array_equal(_unusual(value, limit)[~usual], _unusual(right, limit)[~usual]):
        return Refusal(f"{name} is finite where the reference is infinite or NaN", FailureKind.WRONG_NUMBERS)
    value, right = np.where(usual, value, 0.0), np.where(usual, right, 0.0)
    scale = max(float(np.max(np.abs(right), initial=0.0)), 1e-30)
    distance = np.abs(value - right)
    if slack is not None:
        distance = distance - np.where(usual, slack, 0.0)
    error = float(np.max(distance, initial=0.0)) / scale
    if error > tolerance:
        return Refusal(
            f"{name} is off by {error:.1e} of its range (allowed {tolerance:.0e})", FailureKind.WRONG_NUMBERS
        )
    return None


def _unusual(value: np.ndarray, limit: float) -> np.ndarray:
    """2 for NaN, 1 and -1 for what is infinite or nearly so, 0 for all others."""
    return np.where(np.isnan(value), 2.0, np.sign(value) * (np.abs(value) >= limit / 16))


def _largest(right: np.ndarray) -> float:
    if right.dtype.kind in "iub":
        return np.inf
    import ml_dtypes  # knows bfloat16 and the like besides numpy's own

    return float(ml_dtypes.finfo(right.dtype).max)
