"""Building the translated form of a call: the same operator with some attributes or operands replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, relax
from tvm.relax import Expr


def changed(call: relax.Call, args: Sequence[Expr], **attrs: Any) -> relax.Call:
    """The call on other operands and with other attributes; its type is inferred when it is bound."""
    return relax.Call(call.op, list(args), with_attrs(call.attrs, **attrs), call.ty_args)


def with_attrs(attrs: ir.Attrs | None, **new: Any) -> ir.Attrs | None:
    """A copy of the attributes of an operator with some of them replaced."""
    if not new or attrs is None:
        return attrs
    info = type(attrs).__tvm_ffi_type_info__
    fields = {field.name: getattr(attrs, field.name) for field in info.fields}
    return ir.make_node(info.type_key, **(fields | new))


def axes_of(value: Any, rank: int) -> list[int] | None:
    """An attribute that names axes, as non-negative ints; None where it means all or none."""
    if value is None:
        return None
    axes = value if isinstance(value, Sequence) else [value]
    return [int(axis) % rank for axis in axes]
