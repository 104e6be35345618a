"""How far a kernel's numbers may be from the reference: by what it computes, and in which type."""

from __future__ import annotations

from tvm import relax

from ..graph.calls import calls, operators

_MOVING = frozenset(
    f"relax.{name}"
    for name in (
        "reshape", "permute_dims", "layout_transform", "expand_dims", "squeeze", "flatten", "broadcast_to",
        "concat", "split", "stack", "repeat", "tile", "flip", "take", "gather_elements", "gather_nd",
        "strided_slice", "where", "nn.pad", "nn.relu", "nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d",
        "maximum", "minimum", "max", "min", "clip", "negative", "abs", "sign",
    )
)  # fmt: skip
"""Their results are elements of their operands, or those without the sign: there is nothing to round."""

_ROUNDING = _MOVING | {"relax.add", "relax.subtract", "relax.multiply", "relax.astype"}
"""Each rounds once an element."""

_ALLOWED = {
    "float64": (1e-14, 1e-6),
    "float32": (5e-6, 1e-4),
    "float16": (5e-3, 1e-2),
    "bfloat16": (4e-2, 5e-2),
}
"""For a few roundings an element, and for sums, quotients and functions: the largest error of an output over its
range. Other types are exact."""

_FLUSHED = 1e-38
"""Units that read bfloat16 take denormal numbers, which are smaller than this, for zeros."""


def tolerances(func: relax.Function) -> list[float]:
    """The largest error of each output of ``func`` over the output's range.

    A value that is rounded to a narrow type inside may be rounded otherwise, or not at all: primitives keep what is
    between two of their operations in float32. Then results are as uncertain as that type, whatever theirs is.
    """
    names = operators(func)
    types = func.ret_ty.fields if isinstance(func.ret_ty, relax.TupleType) else [func.ret_ty]
    inside = [_tolerance(names, dtype) for dtype in _rounded_to(func)]
    return [
        max([_tolerance(names, str(ty.dtype)), *(inside if str(ty.dtype) in _ALLOWED else [])])
        for ty in types
    ]


def _rounded_to(func: relax.Function) -> list[str]:
    """The types of what casts make inside of a function."""
    casts = [call for call in calls(func) if call.op.name == "relax.astype"]
    return [dtype for call in casts if (dtype := str(call.ty.dtype)) in _ALLOWED]


def _tolerance(names: frozenset[str], dtype: str) -> float:
    few, many = _ALLOWED.get(dtype, (0.0, 0.0))
    if names <= _MOVING:
        return _FLUSHED if dtype == "bfloat16" else 0.0
    return few if names <= _ROUNDING else many
