"""Which integer types may have large numbers among the inputs of a function, so that each right kernel agrees."""

from __future__ import annotations

from collections.abc import Iterator

from tvm import relax

from ..graph.calls import calls, op_name, operators
from ..graph.shapes import dtype_of
from .index_bounds import INDEXING

INEXACT = 2**24 + 1
"""The smallest whole number that float32 does not have."""

_UNDEFINED_FOR_BYTES = INDEXING | {
    "call",
    "relax.call_tir",
    "relax.dynamic_strided_slice",
    "relax.left_shift",
    "relax.power",
    "relax.right_shift",
}
"""Operators for which a large byte may be an index or a shift beyond the end, or that may compute in floats."""

_EXACT = frozenset(
    f"relax.{name}"
    for name in (
        "abs", "add", "argmax", "argmin", "astype", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor",
        "broadcast_to", "clip", "concat", "divide", "equal", "expand_dims", "flatten", "flip", "floor_divide",
        "floor_mod", "greater", "greater_equal", "less", "less_equal", "logical_and", "logical_not", "logical_or",
        "logical_xor", "max", "maximum", "min", "minimum", "mod", "negative", "nn.pad", "nn.relu", "not_equal",
        "permute_dims", "repeat", "reshape", "sign", "split", "squeeze", "stack", "strided_slice", "subtract", "tile",
        "where",
    )
)  # fmt: skip
"""Operators that do not overflow for numbers of 25 bits; a sum at most doubles them."""

_MOST_SUMS = 6
"""With more sums in a row numbers of 25 bits may overflow 32 bits."""


def large_integers(func: relax.Function) -> frozenset[int]:
    """The sizes in bytes of the integer types that may have large inputs: bytes the ends of their range, and types of
    32 and 64 bits ``INEXACT``.
    """
    if any(_is_cast_to_integers(call) for call in calls(func)):
        return frozenset()
    names = operators(func)
    may_be_bytes = not names & _UNDEFINED_FOR_BYTES and not any(".image." in name for name in names)
    return frozenset([*([1] if may_be_bytes else []), *([4, 8] if _is_exact(func) else [])])


def _is_cast_to_integers(call: relax.Call) -> bool:
    """Whether floats become integers: what is out of range then is undefined."""
    return (
        op_name(call) == "relax.astype"
        and _is_float(dtype_of(call.args[0]))
        and not _is_float(dtype_of(call))
    )


def _is_float(dtype: str) -> bool:
    return "float" in dtype


def _is_exact(func: relax.Function) -> bool:
    """Whether numbers of 25 bits overflow nowhere in ``func``, not in float16 either."""
    if not operators(func) <= _EXACT or "float16" in _result_types(func):
        return False
    return sum(op_name(call) in ("relax.add", "relax.subtract") for call in calls(func)) <= _MOST_SUMS


def _result_types(func: relax.Function) -> Iterator[str]:
    for call in calls(func):
        fields = call.ty.fields if isinstance(call.ty, relax.TupleType) else [call.ty]
        yield from (dtype_of(field) for field in fields)
