"""Element-wise operators, and whether one makes a tensor smaller."""

from __future__ import annotations

import math
from typing import Any

from tvm import ir, relax
from tvm_ffi import structural_equal

ELEMENT_WISE = frozenset(
    f"relax.{name}"
    for name in (
        *(
            "abs",
            "add",
            "astype",
            "ceil",
            "clip",
            "cos",
            "divide",
            "erf",
            "exp",
            "floor",
            "log",
            "maximum",
            "minimum",
        ),
        *(
            "multiply",
            "negative",
            "nn.gelu",
            "nn.gelu_tanh",
            "nn.leakyrelu",
            "nn.relu",
            "nn.silu",
            "power",
            "round",
        ),
        *("rsqrt", "sigmoid", "sign", "sin", "sqrt", "square", "subtract", "tanh"),
    )
)
"""Operators that a copy may be moved over: cheap on every device, and each element reads one element of each operand.
"""


def at_most(first: ir.Type, second: ir.Type) -> bool:
    """Whether a tensor of the first type has at most the bytes of one of the second."""
    assert isinstance(first, relax.TensorType) and isinstance(second, relax.TensorType)
    if first.shape is None or second.shape is None:
        return False
    narrow = _bits(first) <= _bits(second)
    if structural_equal(first.shape, second.shape):
        return narrow
    sizes = [_elements(ty) for ty in (first, second)]
    small, large = sizes
    return small is not None and large is not None and small * _bits(first) <= large * _bits(second)


def _elements(ty: relax.TensorType) -> int | None:
    shape: Any = ty.shape
    if not isinstance(shape, relax.ShapeExpr):
        return None
    values: list[Any] = [getattr(extent, "value", None) for extent in shape.values]
    return None if any(not isinstance(value, int) for value in values) else math.prod(values)


def _bits(ty: relax.TensorType) -> int:
    digits = "".join(c for c in str(ty.dtype) if c.isdigit() or c == "x").partition("x")[0]
    return int(digits or 8)
