"""exceptional: arithmetic that TVM's simplifier gets wrong for NaN, infinity and rounding.

It computes with real numbers: ``x == x`` is true, ``x - x`` and ``x * 0`` are 0, ``(x + y) - y`` is ``x``, and
``x / 0`` ends the build.

Normal form: a comparison that only NaN decides is ``isnan``; a difference that would cancel adds the negative; no
operand of a multiply or divide is the number 0.
"""

from __future__ import annotations

import math

import numpy as np

from .constants import constant
from .rewrite import Rewrite
from .scope import Call, Expr, Scope, dtype_of, is_float, op, op_name, static_shape


def _equal_to_itself(call: Call, scope: Scope) -> Expr | None:
    """x == x -> not isnan(x); x != x -> isnan(x)."""
    left, right = call.args
    if not is_float(left) or not left.same_as(right):
        return None
    asked = op.isnan(left)
    return asked if op_name(call) == "relax.not_equal" else op.logical_not(asked)


def _cancelling(call: Call, scope: Scope) -> Expr | None:
    """x - x, (x + y) - y, x - (x + y) -> a sum with -1 times what is subtracted."""
    left, right = call.args
    if not is_float(call) or not (_has(left, right, scope) or _has(right, left, scope)):
        return None
    return op.add(left, _negative(right))


def _has(whole: Expr, part: Expr, scope: Scope) -> bool:
    """Whether ``whole`` is ``part``, or a sum with it."""
    added = scope.call(whole, "relax.add")
    return whole.same_as(part) or (added is not None and any(arg.same_as(part) for arg in added.args))


def _negative(x: Expr) -> Expr:
    return op.multiply(x, constant(np.array(-1), dtype_of(x)))


def _times_zero(call: Call, scope: Scope) -> Expr | None:
    """x * 0 -> x + -1 * x."""
    x, by = call.args
    if not is_float(call) or not _is_zero(by, scope) or static_shape(x) is None:
        return None
    return op.add(x, _negative(x)) if static_shape(x) == static_shape(call) else None


def _divided(call: Call, scope: Scope) -> Expr | None:
    """x / 0 -> x * infinity; 0 / x -> 0 where abs(x) > 0, else NaN."""
    left, right = call.args
    dtype = dtype_of(call)
    if not is_float(call):
        return None
    if (zero := _zero(right, scope)) is not None:
        infinite = np.full(static_shape(right) or (), math.copysign(math.inf, zero))
        return op.multiply(left, constant(infinite, dtype))
    if not _is_zero(left, scope) or static_shape(right) is None or static_shape(right) != static_shape(call):
        return None
    is_number = op.greater(op.abs(right), constant(np.array(0), dtype))
    return op.where(is_number, constant(np.array(0), dtype), constant(np.array(np.nan), dtype))


def _is_zero(expr: Expr, scope: Scope) -> bool:
    return _zero(expr, scope) is not None


def _zero(expr: Expr, scope: Scope) -> float | None:
    """The signed 0 that fills a constant, or None if the constant has other elements."""
    number = scope.scalar(expr)
    return number if number == 0 else None


EQUAL_TO_ITSELF = Rewrite("equal_to_itself", ("relax.equal", "relax.not_equal"), _equal_to_itself)
CANCELLING = Rewrite("cancelling", ("relax.subtract",), _cancelling)
TIMES_ZERO = Rewrite("times_zero", ("relax.multiply",), _times_zero)
DIVIDED_ZERO = Rewrite("divided_zero", ("relax.divide",), _divided)
