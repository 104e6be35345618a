"""arithmetic: one way to write a sum, a product, a difference, a power.

Normal form: the constant is the right operand; ``x - c`` is ``x + (-c)``; ``x / c`` is ``x * (1 / c)`` where that
is exact; constants in a row are one where no result is rounded otherwise than by its own last bits; ``x * x`` and
``x ** 2`` are ``square(x)``; ``x + x`` is ``x * 2``.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from .constants import constant, limits_of
from .linear import is_of_product
from .rewrite import Rewrite
from .scope import Call, Expr, Scope, dtype_of, is_float, op, op_name, rank_of
from .why_not import WhyNot, number_text, shape_text

_COMMUTATIVE = ("relax.add", "relax.multiply", "relax.maximum", "relax.minimum")
_CANCELLED = 256.0
"""How many times smaller than its operands a sum of constants is that cancels."""
_POWERS = {2.0: op.square, 0.5: op.sqrt, -0.5: op.rsqrt}
_NOT_NEGATIVE = ("relax.abs", "relax.exp", "relax.square", "relax.variance")
_KEEPING_SIGN = (
    *("relax.add", "relax.astype", "relax.divide", "relax.max", "relax.maximum", "relax.mean", "relax.min"),
    *("relax.multiply", "relax.reshape", "relax.squeeze", "relax.sum"),
)
"""Operators without negative results, if their operands have none."""
_STEPS = 6
"""How many operators are looked through."""


def _constant_right(call: Call, scope: Scope) -> Expr | None:
    """c + x -> x + c, for all commutative operators."""
    left, right = call.args
    if scope.array(left) is None or scope.array(right) is not None:
        return None
    return relax.Call(call.op, [right, left], call.attrs)


def _subtract(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """x - c -> x + (-c)."""
    array = scope.array(call.args[1])
    if array is None:
        return None
    if not dtype_of(call).startswith(("float", "bfloat", "int")):
        return WhyNot(f"subtract is of {dtype_of(call)}, which has no negative numbers")
    return op.add(call.args[0], constant(-array))


def _divide(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """x / c -> x * (1 / c), where each 1 / c is exact: powers of two."""
    array = scope.array(call.args[1])
    if array is None:
        return None
    if not is_float(call):
        return _why_not_float(call)
    if not _powers_of_two(array):
        shown = number_text(float(array.reshape(()))) if array.size == 1 else "a constant"
        return WhyNot(f"divide divides by {shown}, not by powers of two alone, so the reciprocal is rounded")
    return op.multiply(call.args[0], constant((1 / array).astype(array.dtype)))


def _why_not_float(call: Call, matched: int = 1) -> WhyNot:
    name = op_name(call).removeprefix("relax.")
    return WhyNot(f"{name} is of {dtype_of(call)}, not of a floating point type", matched)


def _powers_of_two(array: np.ndarray) -> bool:
    """Whether all are powers of two small enough for the reciprocal to be a normal number."""
    mantissa, exponent = np.frexp(array.astype("float64"))
    return bool(np.all(np.abs(mantissa) == 0.5) and np.all(np.abs(exponent) < 14))


def _merge(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """(x + a) + b -> x + (a + b), and the same for products, if nothing else reads x + a."""
    outer = scope.array(call.args[1])
    inner = None if outer is None else scope.call(call.args[0], op_name(call))
    first = None if inner is None else scope.array(inner.args[1])
    if outer is None or inner is None or first is None:
        return None
    if not is_float(call):
        return _why_not_float(call, 2)
    why = scope.why_not_own(call.args[0]) or scope.why_exact(call.args[0])
    if why is not None:
        return WhyNot(why, 2)
    with np.errstate(all="ignore"):
        merged = first + outer if op_name(call) == "relax.add" else first * outer
    why = _why_not_merged(first, outer, merged)
    if why is None and op_name(call) == "relax.add":
        why = _why_not_summed(first, outer, is_of_product(inner.args[0], scope))
    elif why is None:
        why = _why_not_multiplied(first, outer, merged)
    if why is not None:
        return WhyNot(why, 2)
    return relax.Call(call.op, [inner.args[0], constant(merged.astype(outer.dtype))], call.attrs)


def _why_not_merged(first: np.ndarray, outer: np.ndarray, merged: np.ndarray) -> str | None:
    """Why two constants in a row are not merged."""
    if merged.size > max(first.size, outer.size):
        shapes = f"{shape_text(first.shape)} and {shape_text(outer.shape)}"
        return f"constants of the shapes {shapes} would become one of {merged.size} elements, which is larger"
    return None if np.all(np.isfinite(merged)) else "the two constants together are not finite"


def _why_not_summed(first: np.ndarray, outer: np.ndarray, of_product: bool) -> str | None:
    """Why x + (a + b) is not (x + a) + b but for its last bits.

    Constants that cancel round x: ``(x + 2^23) - 2^23`` is a whole number. Where a + b is rounded, an x near -a loses
    b. A product has lost as much: its own terms were rounded.
    """
    exact = first.astype(np.float64) + outer.astype(np.float64)
    if of_product:
        cancels = np.max(np.abs(exact)) * _CANCELLED < min(np.max(np.abs(first)), np.max(np.abs(outer)))
        return "the two constants cancel, and round what they are added to" if cancels else None
    if np.any(np.sign(first) * np.sign(outer) < 0):
        return "one constant is negative, the other is not, and the sum with the first is rounded"
    return None if np.all(exact == first + outer) else "the sum of the two constants is rounded"


def _why_not_multiplied(first: np.ndarray, outer: np.ndarray, merged: np.ndarray) -> str | None:
    """Why x * (a * b) is not (x * a) * b but for its last bits: x * a may overflow, and x * a * b not.

    And a * b may be denormal or 0, where x * a is neither.
    """
    one, other = np.abs(first.astype(np.float64)), np.abs(outer.astype(np.float64))
    along = ((one >= 1) & (other >= 1)) | ((one <= 1) & (other <= 1))
    if not np.all(along):
        return "the product with the first constant may overflow or vanish"
    small = np.abs(merged.astype(np.float64)) < limits_of(merged.dtype.name).tiny
    return (
        "the product of the two constants is too small for its type"
        if np.any(small & (one > 0) & (other > 0))
        else None
    )


def _square(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """x * x -> square(x)."""
    left, right = call.args
    if not isinstance(left, relax.Var) or not left.same_as(right):
        return None
    return op.square(left) if is_float(call) else _why_not_float(call)


def _power(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """x ** 2, x ** 0.5, x ** -0.5 -> square, sqrt, rsqrt.

    The root of -infinity is NaN, and its power infinity; the root of -0 is -0, and its power 0.
    """
    exponent = scope.scalar(call.args[1])
    if exponent is None:
        return None
    if exponent not in _POWERS:
        return WhyNot(f"the exponent of power is {number_text(exponent)}, not 2, 0.5 or -0.5")
    if rank_of(call.args[1]) > rank_of(call.args[0]):
        return WhyNot(f"the exponent of power has {rank_of(call.args[1])} axes, more than the tensor")
    if not is_float(call):
        return _why_not_float(call)
    if exponent != 2 and not _is_not_negative(call.args[0], scope):
        return WhyNot(f"{scope.title(call.args[0])} may be -0 or -infinity, whose powers are not their roots")
    return _POWERS[exponent](call.args[0])


def _is_not_negative(expr: Expr, scope: Scope, steps: int = _STEPS) -> bool:
    """Whether no element is below 0, nor -0: squares and the like, and sums and means of them with constants."""
    array = scope.array(expr)
    if array is not None:
        return not np.any(np.signbit(array))
    if scope.call(expr, *_NOT_NEGATIVE) is not None:
        return True
    call = scope.call(expr, *_KEEPING_SIGN)
    if call is None or not steps:
        return False
    tensors = [arg for arg in call.args if not isinstance(arg, relax.ShapeExpr)]
    is_square = op_name(call) == "relax.multiply" and tensors[0].same_as(tensors[1])
    return is_square or all(_is_not_negative(arg, scope, steps - 1) for arg in tensors)


def _double(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """x + x -> x * 2, which is equally exact and reads one tensor."""
    left, right = call.args
    if not isinstance(left, relax.Var) or not left.same_as(right):
        return None
    return op.multiply(left, relax.const(2.0, dtype_of(call))) if is_float(call) else _why_not_float(call)


def _reciprocal_root(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """1 / sqrt(x) -> rsqrt(x)."""
    root, numerator = scope.call(call.args[1], "relax.sqrt"), scope.scalar(call.args[0])
    if root is None or numerator is None:
        return None
    if numerator != 1.0:
        return WhyNot(f"{number_text(numerator)} is divided by sqrt, not 1", 2)
    if rank_of(call.args[0]) > rank_of(call.args[1]):
        return WhyNot(f"the numerator has {rank_of(call.args[0])} axes, more than the root", 2)
    why = scope.why_not_own(call.args[1]) or scope.why_exact(call.args[1])
    return op.rsqrt(root.args[0]) if why is None else WhyNot(why, 2)


CONSTANT_RIGHT = Rewrite("constant_right", _COMMUTATIVE, _constant_right)
SUBTRACT_CONSTANT = Rewrite("subtract_constant", ("relax.subtract",), _subtract)
DIVIDE_EXACTLY = Rewrite("divide_exactly", ("relax.divide",), _divide)
MERGE_CONSTANTS = Rewrite("merge_constants", ("relax.add", "relax.multiply"), _merge)
SQUARE_FORM = Rewrite("square_form", ("relax.multiply",), _square)
POWER_FORM = Rewrite("power_form", ("relax.power",), _power)
DOUBLE_FORM = Rewrite("double_form", ("relax.add",), _double)
RSQRT_FORM = Rewrite("rsqrt_form", ("relax.divide",), _reciprocal_root)
