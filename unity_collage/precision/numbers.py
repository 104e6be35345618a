"""Whether constants can be stored in a narrow type, and how."""

from __future__ import annotations

from functools import cache

import numpy as np
from tvm import ir, relax


def narrow_constant(constant: ir.GenericConst, dtype: str) -> ir.GenericConst:
    """A constant rounded to ``dtype``; finite numbers stay finite."""
    numbers = constant.value.numpy()
    largest, _ = limits(dtype)
    inside = np.where(np.isfinite(numbers), np.clip(numbers, -largest, largest), numbers)
    return relax.const(inside.astype(_kind(dtype)), dtype)


def is_number(constant: ir.GenericConst) -> bool:
    """Whether a constant has one element."""
    return constant.value.numpy().size == 1


def is_too_large(constant: ir.GenericConst, dtype: str) -> bool:
    """Whether a finite number of a constant is beyond the range of ``dtype``."""
    return _magnitude(constant) > limits(dtype)[0]


def is_too_small(constant: ir.GenericConst, dtype: str) -> bool:
    """Whether all numbers of a constant are so near zero that ``dtype`` has fewer digits for them."""
    return 0 < _magnitude(constant) < limits(dtype)[1]


@cache
def limits(dtype: str) -> tuple[float, float]:
    """The largest finite and the smallest normal number of a type."""
    import ml_dtypes  # numpy has no bfloat16 of its own

    info = ml_dtypes.finfo(_kind(dtype))
    return float(info.max), float(info.smallest_normal)


def _magnitude(constant: ir.GenericConst) -> float:
    numbers = constant.value.numpy()
    return float(np.max(np.abs(numbers), where=np.isfinite(numbers), initial=0.0))


def _kind(dtype: str) -> np.dtype:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, dtype, dtype))
