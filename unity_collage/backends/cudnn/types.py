"""The element types that cuDNN's operations take. All of them compute in float32."""

from __future__ import annotations

from ..native.values import dtype_of, why_not_static

WIDE = "float32"
NARROW = frozenset({"float16", "bfloat16"})
TYPES = NARROW | {WIDE}


def why_not_operand(what: str, value: object, types: frozenset[str] = TYPES) -> str | None:
    """Why an operation cannot read a tensor, called ``what``, or None when it can."""
    dtype = dtype_of(value)
    if dtype not in types:
        return f"{what} is {dtype or 'of unknown dtype'}, cuDNN takes {' or '.join(sorted(types))}"
    return why_not_static(what, value)
