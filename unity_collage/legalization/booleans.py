"""Comparisons and arithmetic of booleans, for which TVM's code generator has no instructions on CPUs.

As in numpy and PyTorch: ``add`` and ``maximum`` are "or", ``multiply`` and ``minimum`` are "and", and false is less
than true. Logical operators are computed on bytes too: TVM simplifies ``not (a < b)`` to ``a >= b`` and ``a < b or a
>= b`` to true, and both are wrong for NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, relax, te, tirx, topi

from .numbers import number_in
from .stock import Legalization, legalized_by_tvm

_OPERATORS: dict[str, Callable[[Any, Any], te.Tensor]] = {
    "add": topi.maximum,
    "equal": topi.equal,
    "greater": topi.greater,
    "greater_equal": topi.greater_equal,
    "less": topi.less,
    "less_equal": topi.less_equal,
    "logical_and": topi.minimum,
    "logical_or": topi.maximum,
    "maximum": topi.maximum,
    "minimum": topi.minimum,
    "multiply": topi.minimum,
}
"""On bytes that are 0 or 1."""


def _by_bytes(operator: Callable[[Any, Any], te.Tensor]) -> Legalization:
    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if not any(_is_boolean(arg) for arg in call.args):
            return legalized_by_tvm(builder, call)
        numbers = [number_in(arg) for arg in call.args]
        if all(number is not None for number in numbers):
            return legalized_by_tvm(builder, call)

        def compute(*tensors: te.Tensor) -> te.Tensor:
            left = iter(tensors)
            operands = [next(left) if number is None else number for number in numbers]
            return topi.cast(operator(*(_byte(operand) for operand in operands)), "bool")

        given = [arg for arg, number in zip(call.args, numbers, strict=True) if number is None]
        return builder.call_te(compute, *given)

    return legalize


def _is_boolean(value: relax.Expr) -> bool:
    return isinstance(value.ty, relax.TensorType) and str(value.ty.dtype) == "bool"


def _byte(operand: te.Tensor | ir.Expr) -> te.Tensor | ir.Expr:
    return topi.cast(operand, "int8") if isinstance(operand, te.Tensor) else tirx.Cast("int8", operand)


def _not(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """1 xor x, on bytes."""
    if not _is_boolean(call.args[0]):
        return legalized_by_tvm(builder, call)

    return builder.call_te(_opposite, call.args[0], primfunc_name_hint="logical_not")


def _opposite(data: te.Tensor) -> te.Tensor:
    flipped = topi.bitwise_xor(topi.cast(data, "int8"), tirx.const(1, "int8"))  # pyright: ignore
    return topi.cast(flipped, "bool")


def _differ(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Of floats the opposite of equal: TVM's instruction is false where one side is NaN."""
    if not any(_is_float(arg) for arg in call.args):
        return _by_bytes(topi.not_equal)(builder, call)

    def compute(left: te.Tensor, right: te.Tensor) -> te.Tensor:
        return _opposite(topi.equal(left, right))

    return builder.call_te(compute, *call.args, primfunc_name_hint="not_equal")


def _is_float(value: relax.Expr) -> bool:
    return isinstance(value.ty, relax.TensorType) and "float" in str(value.ty.dtype)


LEGALIZATIONS: dict[str, Legalization] = {
    **{f"relax.{name}": _by_bytes(operator) for name, operator in _OPERATORS.items()},
    "relax.logical_not": _not,
    "relax.not_equal": _differ,
}
