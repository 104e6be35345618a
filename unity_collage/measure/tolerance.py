"""How far a kernel's numbers may be from the reference, by its operators and types."""

from __future__ import annotations

from tvm import relax

from ..backends.native.labels import rounds_to_tf32
from ..graph.calls import calls, op_name, operators
from ..graph.shapes import dtype_of

_MOVING = frozenset(
    f"relax.{name}"
    for name in (
        "reshape", "permute_dims", "layout_transform", "expand_dims", "squeeze", "flatten", "broadcast_to",
        "concat", "split", "stack", "repeat", "tile", "flip", "take", "gather_elements", "gather_nd",
        "strided_slice", "where", "nn.pad", "nn.relu", "nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d",
        "maximum", "minimum", "max", "min", "clip", "negative", "abs", "sign",
    )
)  # fmt: skip
"""Operators whose results are elements of their operands, up to the sign: nothing is rounded."""

_ROUNDING = _MOVING | {"relax.add", "relax.subtract", "relax.multiply", "relax.astype"}
"""Operators that round each element once at most."""

_ALLOWED = {
    "float64": (1e-14, 1e-6),
    "float32": (5e-6, 1e-4),
    "float16": (5e-3, 1e-2),
    "bfloat16": (4e-2, 5e-2),
}
"""The largest error of an output as a part of its range: for a few roundings of each element, and for sums, quotients
and functions. Other types are exact.
"""

NARROW = frozenset({"float16", "bfloat16"})
"""Floats of 16 bits."""

_FLUSHED = 1e-38
"""Units that read bfloat16 flush denormal numbers, which are smaller than this, to zero."""


def tolerances(func: relax.Function) -> list[float]:
    """The largest error of each output of ``func``, as a part of the output's range.

    A kernel may round an inner value of a narrow type differently, or keep it in float32. The results then have the
    tolerance of the narrow type, whatever their own type is. TensorFloat-32 has as many bits of mantissa as float16.
    """
    names = operators(func)
    types = func.ret_ty.fields if isinstance(func.ret_ty, relax.TupleType) else [func.ret_ty]
    inside = [_tolerance(names, dtype) for dtype in _rounded_to(func)]
    return [
        max([_tolerance(names, dtype), *(inside if dtype in _ALLOWED else [])])
        for dtype in map(dtype_of, types)
    ]


def _rounded_to(func: relax.Function) -> list[str]:
    """The types that casts, PrimFuncs and factors of products inside a function are rounded to."""
    rounding = [call for call in calls(func) if op_name(call) in ("relax.astype", "relax.call_tir")]
    types = [
        ty
        for call in rounding
        for ty in (call.ty.fields if isinstance(call.ty, relax.TupleType) else [call.ty])
    ]
    rounded = [dtype for ty in types if (dtype := dtype_of(ty)) in _ALLOWED]
    return [*rounded, "float16"] if rounds_to_tf32(func) else rounded


def _tolerance(names: frozenset[str], dtype: str) -> float:
    few, many = _ALLOWED.get(dtype, (0.0, 0.0))
    if names <= _MOVING:
        return _FLUSHED if dtype == "bfloat16" else 0.0
    return few if names <= _ROUNDING else many
