"""The values and operators of the numpy reference, with their dtypes and axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm.ir import Call

from unity_collage.errors import CollageError

Value = Any
"""An ``np.ndarray`` for a tensor, a tuple for a tuple or a shape, a Python scalar for a prim value."""

Sizes = Mapping[Any, int]
"""The size of each symbolic variable."""


class Unsupported(CollageError):
    """numpy cannot evaluate an operator; the text is the reason."""


def _able(_call: Call) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Operator:
    """How numpy computes one Relax operator, and which forms of it are declined."""

    compute: Callable[..., Value]
    """A function of the call, for its attributes, and of one value for each argument."""
    why_not: Callable[[Call], str | None] = _able


def plain(function: Callable[..., Value]) -> Operator:
    """An operator without attributes, as a function of the values alone."""
    return Operator(lambda _call, *values: function(*values))


def whole_numbers(array: Any) -> tuple[int, ...]:
    """An attribute or a one-dimensional tensor of integers, as Python integers."""
    return tuple(int(number) for number in array)


def dtype_of(ty: Any) -> np.dtype | None:
    """The numpy dtype of a tensor type or an FFI dtype; None where it is unknown."""
    if ty is None:
        return None
    name = str(getattr(ty, "dtype", ty))
    if name in ("", "void", "handle", "None"):
        return None
    if name.startswith(("bfloat", "float8_", "float6_", "float4_")):
        import ml_dtypes  # only these dtypes need it

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


def tensor_value(tensor: Any) -> np.ndarray:
    """A runtime tensor as a numpy array, without a copy if DLPack supports its dtype."""
    try:
        return np.from_dlpack(tensor)
    except (BufferError, TypeError, RuntimeError):
        return tensor.numpy()


def truncated_divide(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """``left / right``; of integers truncated towards zero, as in C, and 0 where the divisor is 0."""
    if not np.issubdtype(np.result_type(left, right), np.integer):
        return np.divide(left, right)
    quotient = np.floor_divide(left, right)
    inexact = (quotient * right != left) & (right != 0)
    return quotient + (inexact & ((left < 0) != (right < 0)))


def lowest(dtype: np.dtype) -> Any:
    """The smallest value of a dtype, with which a maximum begins."""
    if np.issubdtype(dtype, np.inexact):
        return -np.inf
    return np.iinfo(dtype).min if np.issubdtype(dtype, np.integer) else False


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes that an attribute names, as numbers from 0; all axes for None."""
    if axis is None:
        return tuple(range(ndim))
    names: Sequence[int] = [axis] if isinstance(axis, int) else axis
    return tuple(int(name) % ndim for name in names)
