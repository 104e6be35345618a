"""Whether a program passes on NaN and infinity where another one does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

InputSets = Sequence[Sequence[np.ndarray]]
"""Inputs of a program, once for each of several sizes."""

_VALUES = {"NaN": np.nan, "infinity": np.inf, "-infinity": -np.inf}


def exceptional_sets(sets: InputSets) -> Iterator[tuple[str, list[list[np.ndarray]]]]:
    """The name of each exceptional value, and ``sets`` with it in the middle of each input of floats."""
    if not any(_takes_nan(value) for inputs in sets for value in inputs):
        return
    for name, value in _VALUES.items():
        yield name, [[_with(value, array) for array in inputs] for inputs in sets]


def loses(results: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> bool:
    """Whether some result is finite wherever the right one is not.

    Not by element: fast convolutions spread a NaN to their whole tile.
    """
    for value, expected in zip(results, right, strict=True):
        if _is_float(value) and _is_float(expected):
            passed = ~np.isfinite(expected.astype(np.float32))
            if passed.any() and np.isfinite(value.astype(np.float32)[passed]).all():
                return True
    return False


def _is_float(array: np.ndarray) -> bool:
    return "float" in array.dtype.name


def _takes_nan(array: np.ndarray) -> bool:
    return _is_float(array) and array.size > 0


def _with(value: float, array: np.ndarray) -> np.ndarray:
    if not _takes_nan(array):
        return array
    changed = array.copy()
    changed.flat[array.size // 2] = value
    return changed
