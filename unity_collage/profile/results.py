"""How far the results of two programs are apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def most_apart(results: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> float:
    """The largest difference of any result from that of the reference, over the reference's range.

    Infinite where shapes, or the places of numbers that are not finite, differ.
    """
    return max((_relative(a, b) for a, b in zip(results, right, strict=True)), default=0.0)


def _relative(value: np.ndarray, right: np.ndarray) -> float:
    if value.shape != right.shape:
        return float("inf")
    value, right = value.astype(np.float64), right.astype(np.float64)
    finite = np.isfinite(right)
    if not np.array_equal(np.isfinite(value), finite):
        return float("inf")
    scale = max(float(np.max(np.abs(right), initial=0.0, where=finite)), 1e-30)
    with np.errstate(invalid="ignore"):  # the difference of two infinities
        return float(np.max(np.abs(value - right), initial=0.0, where=finite)) / scale
