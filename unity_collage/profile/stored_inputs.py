"""Inputs of programs in numpy's files, which do not keep the types that numpy itself lacks, such as bfloat16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  # numpy knows bfloat16 and 8-bit floats from here
import numpy as np

from .exceptional import InputSets


def store(path: Path, sets: InputSets) -> None:
    """Write arrays, whose names in the file are their set, their place in it and their type."""
    named: dict[str, Any] = {
        f"{i} {k} {value.dtype.name}": _bits(value)
        for i, inputs in enumerate(sets)
        for k, value in enumerate(inputs)
    }
    np.savez(path, **named)


def stored(path: Path, count: int) -> list[list[np.ndarray]]:
    """The ``count`` sets of arrays that :func:`store` wrote."""
    sets: list[list[np.ndarray]] = [[] for _ in range(count)]
    with np.load(path) as file:
        for name in file.files:
            number, _, dtype = name.split()
            sets[int(number)].append(file[name].view(dtype))
    return sets


def _bits(value: np.ndarray) -> np.ndarray:
    return value.view(f"u{value.dtype.itemsize}") if value.dtype.kind == "V" else value
