"""Element-wise operators: unary, binary, comparison, logical, bitwise, casts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unity_collage.reference.functions import BINARY, UNARY
from unity_collage.reference.values import Call, Operator, Value, dtype_of, plain


def clip(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """``min(max(x, low), high)``; bounds outside of the range of an integer dtype are moved into it."""
    if np.issubdtype(x.dtype, np.integer):
        limits = np.iinfo(x.dtype)
        low, high = (int(min(max(bound, limits.min), limits.max)) for bound in (low, high))
    return np.minimum(np.maximum(x, low), high)


def _cast(call: Call, x: np.ndarray) -> np.ndarray:
    """A cast to the dtype of the attribute; floats are truncated to integers."""
    return x.astype(dtype_of(call.attrs.dtype))


def _identity(x: Value, *_rest: Value) -> Value:
    return x


_TERNARY: dict[str, Callable[..., np.ndarray]] = {
    "clip": clip,
    "ewise_fma": lambda x, y, z: x * y + z,
    "where": np.where,
}

_IDENTITY = (
    "builtin.stop_lift_params",
    "hint_on_device",
    "memory.ensure_zero_offset",
    "to_vdevice",
)

OPERATORS: dict[str, Operator] = {
    **{f"relax.{name}": plain(function) for name, function in (UNARY | BINARY | _TERNARY).items()},
    **{f"relax.{name}": plain(_identity) for name in _IDENTITY},
    "relax.astype": Operator(_cast),
    "relax.wrap_param": Operator(_cast),
}
