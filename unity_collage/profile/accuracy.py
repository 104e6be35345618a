"""The deviation of a program's results from the model computed in float32 by numpy, on random inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm

from .. import reference
from ..errors import CollageError
from ..frontend.models import Model, import_model
from ..frontend.sizes import Shapes
from ..measure.inputs import random_inputs
from ..program import Program
from ..rules.base import why_not_static


@dataclass(frozen=True, slots=True)
class Deviation:
    """The deviation of one result from its reference; all three numbers are without a unit."""

    largest: float
    """The largest error of an element, over the largest magnitude in the reference."""
    relative: float
    """The length of the difference over the length of the reference, as vectors (relative L2 error)."""
    cosine: float
    """The cosine of the angle between the two vectors: 1 when they point the same way."""

    def __str__(self) -> str:
        return f"relative error {self.relative:.1e}, largest {self.largest:.1e} of the range, cosine {self.cosine:.6f}"


def deviations(
    program: Program,
    model: Model,
    seed: int = 0,
    *,
    shapes: Shapes | None = None,
    dims: Mapping[str, int] | None = None,
) -> list[Deviation]:
    """The deviation of each result of ``program``, which was compiled from ``model``; tuples are flattened.

    Raises CollageError with the reason where numpy cannot compute the model.
    """
    mod = import_model(model, shapes=shapes, dims=dims).mod
    main = mod["main"]
    reason = next((r for param in main.params if (r := why_not_static(param))), None)
    if reason is not None:
        raise CollageError(f"random inputs cannot be made: {reason}")
    inputs = random_inputs(main, seed)
    try:
        expected = reference.run(main, inputs, mod)
    except reference.Unsupported as error:
        raise CollageError(f"numpy cannot compute the model: {error}") from error
    got = _flat(program(*inputs))
    return [deviation(value, right) for value, right in zip(got, expected, strict=True)]


def deviation(value: np.ndarray, right: np.ndarray) -> Deviation:
    """The deviation of a tensor from another of its shape; equal tensors deviate by 0, even if they are zeros."""
    value, right = value.astype(np.float64).ravel(), right.astype(np.float64).ravel()
    difference, length = value - right, float(np.linalg.norm(right))
    lengths = length * float(np.linalg.norm(value))
    if not np.any(difference):
        return Deviation(0.0, 0.0, 1.0)
    return Deviation(
        _ratio(float(np.max(np.abs(difference))), float(np.max(np.abs(right)))),
        _ratio(float(np.linalg.norm(difference)), length),
        float(value @ right) / lengths if lengths else 0.0,
    )


def _ratio(error: float, scale: float) -> float:
    return error / scale if scale else float("inf")


def _flat(result: Any) -> list[np.ndarray]:
    """The arrays of a tensor or of nested tuples of them."""
    if isinstance(result, tvm.runtime.Tensor):
        return [result.numpy()]
    return [array for part in result for array in _flat(part)]
