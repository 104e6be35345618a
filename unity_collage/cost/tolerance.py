"""How far a kernel's numbers may be from the reference: by what it computes, and in which type."""

from __future__ import annotations

from tvm import relax

from .calls import operators

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

_ROUNDING = _MOVING | {"relax.add", "relax.subtract", "relax.multiply"}
"""Each rounds once an element."""

_ALLOWED = {
    "float64": (1e-14, 1e-6),
    "float32": (5e-6, 1e-4),
    "float16": (5e-3, 1e-2),
    "bfloat16": (4e-2, 5e-2),
}
"""For a few roundings an element, and for sums, quotients and functions: the largest error of an output over its
range. Other types are exact."""


def tolerances(func: relax.Function) -> list[float]:
    """The largest error of each output of ``func`` over the output's range."""
    names = operators(func)
    types = func.ret_ty.fields if isinstance(func.ret_ty, relax.TupleType) else [func.ret_ty]
    return [_tolerance(names, str(ty.dtype)) for ty in types]


def _tolerance(names: frozenset[str], dtype: str) -> float:
    few, many = _ALLOWED.get(dtype, (0.0, 0.0))
    if names <= _MOVING:
        return 0.0
    return few if names <= _ROUNDING else many
