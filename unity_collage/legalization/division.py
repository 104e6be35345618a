"""Quotients and remainders of integers: by zero both are 0, and the lowest number divided by -1 wraps around.

Processors trap on both, which ends the process. TVM's kernels are kept for divisors that are known to be others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import ir, relax, te, tirx, topi

from .numbers import number_in
from .stock import Legalization, legalized_by_tvm

_topi: Any = topi
"""Its stubs have few of its functions."""


def is_safe_division(call: relax.Call) -> bool:
    """Whether a quotient or remainder traps for no operands: of floats, or by a constant without 0 and -1."""
    divisor = call.args[1]
    if not _is_integer(call):
        return True
    return isinstance(divisor, ir.GenericConst) and not np.isin(divisor.value.numpy(), (0, -1)).any()


def _is_integer(value: relax.Expr) -> bool:
    return isinstance(value.ty, relax.TensorType) and "int" in str(value.ty.dtype)


def _guarded(name: str, operator: Callable[[Any, Any], te.Tensor], is_quotient: bool) -> Legalization:
    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if is_safe_division(call):
            return legalized_by_tvm(builder, call)
        numbers = [number_in(arg) for arg in call.args]
        if all(number is not None for number in numbers):
            numbers[0] = None

        def compute(*tensors: te.Tensor) -> te.Tensor:
            left = iter(tensors)
            dividend, divisor = (next(left) if number is None else number for number in numbers)
            found = operator(dividend, _each(divisor, _safe))
            return _topi.multiply(found, _each(divisor, _factor)) if is_quotient else found

        given = [arg for arg, number in zip(call.args, numbers, strict=True) if number is None]
        return builder.call_te(compute, *given, primfunc_name_hint=name)

    return legalize


def _each(divisor: te.Tensor | ir.Expr, function: Callable[[ir.Expr], ir.Expr]) -> te.Tensor | ir.Expr:
    """``function`` of the elements of a tensor, or of a number."""
    if not isinstance(divisor, te.Tensor):
        return function(divisor)
    return te.compute(divisor.shape, lambda *at: function(divisor(*at)))


def _safe(divisor: ir.Expr) -> ir.Expr:
    """1 in place of the divisors that trap, by which every remainder is 0."""
    zero, one = _numbers(divisor)
    unsafe = divisor.equal(zero)
    if not _is_unsigned(divisor):
        unsafe = tirx.any(unsafe, divisor.equal(zero - one))
    return tirx.Select(unsafe, one, divisor)


def _factor(divisor: ir.Expr) -> ir.Expr:
    """What the quotient by :func:`_safe` is multiplied by: 0 for 0, -1 for -1, and 1 for all others."""
    zero, one = _numbers(divisor)
    others = one if _is_unsigned(divisor) else tirx.Select(divisor.equal(zero - one), zero - one, one)
    return tirx.Select(divisor.equal(zero), zero, others)


def _numbers(like: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
    dtype = str(like.expr_ty().dtype)
    return tirx.const(0, dtype), tirx.const(1, dtype)


def _is_unsigned(value: ir.Expr) -> bool:
    return str(value.expr_ty().dtype).startswith("u")


LEGALIZATIONS: dict[str, Legalization] = {
    f"relax.{name}": _guarded(name, getattr(_topi, name), is_quotient)
    for name, is_quotient in (("divide", True), ("floor_divide", True), ("floor_mod", False), ("mod", False))
}
