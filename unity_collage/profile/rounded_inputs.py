"""How much results change if inputs are changed about as much as rounding changes values inside a program.

Steps make rounding visible: where a model quantises, a value next to a step falls to one side of it or to the other.
Two right programs for such a model then differ by whole steps, and so does one program on inputs that nearly agree.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .exceptional import InputSets

ROUNDING = 1e-5
"""The part by which each input is changed: a tenth of what a kernel of float32 may be off."""

_DRAWS = 8
_SEED = 0


def rounded_sets(sets: InputSets) -> Iterator[list[list[np.ndarray]]]:
    """``sets`` several times, each with every float changed by ``ROUNDING`` of itself, up or down by chance.

    Nothing comes if no input has floats of 32 or 64 bits; for narrower ones, so small a change is none.
    """
    if not any(_changes(value) for inputs in sets for value in inputs):
        return
    rng = np.random.default_rng(_SEED)
    for _ in range(_DRAWS):
        yield [[_changed(value, rng) for value in inputs] for inputs in sets]


def _changes(value: np.ndarray) -> bool:
    return value.dtype in (np.float32, np.float64) and value.size > 0


def _changed(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if not _changes(value):
        return value
    signs = rng.integers(0, 2, value.shape, dtype=np.int8) * 2 - 1
    return (value * (1 + ROUNDING * signs)).astype(value.dtype)
