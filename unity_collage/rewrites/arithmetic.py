"""arithmetic: one way to write a sum, a product, a difference, a power.

Normal form: the constant is the right operand; ``x - c`` is ``x + (-c)``; ``x / c`` is ``x * (1 / c)`` where that
is exact; constants in a row are one; ``x * x`` and ``x ** 2`` are ``square(x)``; ``x + x`` is ``x * 2``.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from .constants import constant
from .rule import Rule
from .scope import Expr, Scope, dtype_of, is_float, op

_COMMUTATIVE = ("relax.add", "relax.multiply", "relax.maximum", "relax.minimum")
_POWERS = {2.0: op.square, 0.5: op.sqrt, -0.5: op.rsqrt}


def _constant_right(call: Expr, scope: Scope) -> Expr | None:
    """c + x -> x + c, for all commutative operators."""
    left, right = call.args
    if scope.array(left) is None or scope.array(right) is not None:
        return None
    return relax.Call(call.op, [right, left], call.attrs)


def _subtract(call: Expr, scope: Scope) -> Expr | None:
    """x - c -> x + (-c)."""
    array = scope.array(call.args[1])
    signed = dtype_of(call).startswith(("float", "bfloat", "int"))
    return op.add(call.args[0], constant(-array)) if array is not None and signed else None


def _divide(call: Expr, scope: Scope) -> Expr | None:
    """x / c -> x * (1 / c), where each 1 / c is exact: powers of two."""
    array = scope.array(call.args[1])
    if array is None or not is_float(call) or not _powers_of_two(array):
        return None
    return op.multiply(call.args[0], constant((1 / array).astype(array.dtype)))


def _powers_of_two(array: np.ndarray) -> bool:
    """Whether all are powers of two small enough for the reciprocal to be a normal number."""
    mantissa, exponent = np.frexp(array.astype("float64"))
    return bool(np.all(np.abs(mantissa) == 0.5) and np.all(np.abs(exponent) < 14))


def _merge(call: Expr, scope: Scope) -> Expr | None:
    """(x + a) + b -> x + (a + b), and the same for products, if nobody else reads x + a."""
    outer = scope.array(call.args[1])
    inner = scope.own_call(call.args[0], call.op.name)
    first = None if inner is None else scope.array(inner.args[1])
    if outer is None or inner is None or first is None or not is_float(call):
        return None
    merged = first + outer if call.op.name == "relax.add" else first * outer
    if merged.size > max(first.size, outer.size) or not np.all(np.isfinite(merged)):
        return None
    return relax.Call(call.op, [inner.args[0], constant(merged.astype(outer.dtype))], call.attrs)


def _square(call: Expr, scope: Scope) -> Expr | None:
    """x * x -> square(x)."""
    left, right = call.args
    same = isinstance(left, relax.Var) and left.same_as(right) and is_float(call)
    return op.square(left) if same else None


def _power(call: Expr, scope: Scope) -> Expr | None:
    """x ** 2, x ** 0.5, x ** -0.5 -> square, sqrt, rsqrt."""
    exponent = scope.scalar(call.args[1])
    if exponent not in _POWERS or not is_float(call) or call.args[1].ty.ndim > call.args[0].ty.ndim:
        return None
    return _POWERS[exponent](call.args[0])


def _double(call: Expr, scope: Scope) -> Expr | None:
    """x + x -> x * 2, which is as exact and reads one tensor."""
    left, right = call.args
    if not isinstance(left, relax.Var) or not left.same_as(right) or not is_float(call):
        return None
    return op.multiply(left, relax.const(2.0, dtype_of(call)))


def _reciprocal_root(call: Expr, scope: Scope) -> Expr | None:
    """1 / sqrt(x) -> rsqrt(x)."""
    root = scope.own_call(call.args[1], "relax.sqrt")
    one = scope.scalar(call.args[0]) == 1.0 and call.args[0].ty.ndim <= call.args[1].ty.ndim
    return op.rsqrt(root.args[0]) if root is not None and one else None


CONSTANT_RIGHT = Rule("constant_right", _COMMUTATIVE, _constant_right)
SUBTRACT_CONSTANT = Rule("subtract_constant", ("relax.subtract",), _subtract)
DIVIDE_EXACTLY = Rule("divide_exactly", ("relax.divide",), _divide)
MERGE_CONSTANTS = Rule("merge_constants", ("relax.add", "relax.multiply"), _merge)
SQUARE_FORM = Rule("square_form", ("relax.multiply",), _square)
POWER_FORM = Rule("power_form", ("relax.power",), _power)
DOUBLE_FORM = Rule("double_form", ("relax.add",), _double)
RSQRT_FORM = Rule("rsqrt_form", ("relax.divide",), _reciprocal_root)
