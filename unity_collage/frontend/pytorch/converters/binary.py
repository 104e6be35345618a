"""Operators on two tensors, or a tensor and a number, with broadcasting and torch's promotion of dtypes."""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.relax import op

from ..context import CallRefused, Context, Converter, Converters, Value, dtype_of
from .elementwise import signbit

Expr = relax.Expr


def _arithmetic(make: Any) -> Converter:
    """``make`` of both operands in the dtype of the result."""
    return lambda cx, a, b, *_: make(cx.cast(a), cx.cast(b))


def _comparison(make: Any) -> Converter:
    """``make`` of both operands in their common dtype."""

    def convert(cx: Context, a: Value, b: Value) -> Expr:
        left, right = cx.promoted(a, b)
        if dtype_of(left) == "bool":
            left, right = cx.cast(left, "int8"), cx.cast(right, "int8")
        return make(left, right)

    return convert


def _sum(cx: Context, a: Value, b: Value, alpha: float = 1) -> Expr:
    if cx.dtype == "bool":
        return op.logical_or(cx.cast(a), cx.cast(b))
    return op.add(cx.cast(a), _times(cx, b, alpha))


def _difference(cx: Context, a: Value, b: Value, alpha: float = 1) -> Expr:
    return op.subtract(cx.cast(a), _times(cx, b, alpha))


def _times(cx: Context, value: Value, factor: float) -> Expr:
    if factor == 1:
        return cx.cast(value)
    if isinstance(value, (int, float)):
        return cx.cast(value * factor)
    return cx.emit(op.multiply(cx.cast(value), cx.cast(factor)))


def _product(cx: Context, a: Value, b: Value) -> Expr:
    make = op.logical_and if cx.dtype == "bool" else op.multiply
    return make(cx.cast(a), cx.cast(b))


def _quotient(cx: Context, a: Value, b: Value, rounding_mode: str | None = None) -> Expr:
    """Without a mode integers are divided as floats; with one the quotient is rounded down or towards zero."""
    if rounding_mode == "floor":
        return _floor_quotient(cx, a, b)
    left, right = cx.cast(a), cx.cast(b)
    if rounding_mode is None:
        return op.divide(left, right)
    if "float" in cx.dtype:
        return op.trunc(op.divide(left, right))
    # Relax divides integers towards zero.
    return op.divide(left, right)


def _floor_quotient(cx: Context, a: Value, b: Value) -> Expr:
    """floor(a / b) of the exact quotient, as Python and torch compute it: a / b may be rounded up to an integer.

    The exact remainder is subtracted first, then the quotient is nearly an integer (CPython's ``float_floor_div``).
    """
    left, right = cx.cast(a), cx.cast(b)
    if "float" not in cx.dtype:
        return op.floor_divide(left, right)
    rest, zero, one = cx.emit(op.mod(left, right)), cx.cast(0), cx.cast(1)
    quotient = cx.emit(op.divide(op.subtract(left, rest), right))
    below = cx.emit(op.where(_has_other_sign(rest, right, zero), op.subtract(quotient, one), quotient))
    whole = cx.emit(op.floor(below))
    rounded = op.where(op.greater(op.subtract(below, whole), cx.cast(0.5)), op.add(whole, one), whole)
    return op.where(op.equal(right, zero), op.divide(left, right), rounded)


def _has_other_sign(rest: Expr, divisor: Expr, zero: Expr) -> Expr:
    """Whether a remainder is not zero, and has another sign than the divisor."""
    return op.logical_and(
        op.not_equal(rest, zero), op.logical_xor(op.less(rest, zero), op.less(divisor, zero))
    )


def _remainder(cx: Context, a: Value, b: Value) -> Expr:
    """a - b floor(a / b): it has the sign of the divisor."""
    left, right = cx.cast(a), cx.cast(b)
    if "float" not in cx.dtype:
        return op.floor_mod(left, right)
    rest = cx.emit(op.mod(left, right))
    return op.where(_has_other_sign(rest, right, cx.cast(0)), op.add(rest, right), rest)


def _fmod(cx: Context, a: Value, b: Value) -> Expr:
    """a - b trunc(a / b), exactly: it has the sign of the dividend."""
    return op.mod(cx.cast(a), cx.cast(b))


def _power(cx: Context, base: Value, exponent: Value) -> Expr:
    if isinstance(exponent, (int, float)) and exponent == 1:
        return cx.cast(base)
    if isinstance(exponent, (int, float)) and exponent in _POWERS:
        return _POWERS[exponent](cx, cx.cast(base))
    if "float" not in cx.dtype:
        return _integer_power(cx, base, exponent)
    return op.power(cx.cast(base), cx.cast(exponent))


def _integer_power(cx: Context, base: Value, exponent: Value) -> Expr:
    """By repeated squaring, since powers of floats lose digits."""
    if not isinstance(exponent, int) or exponent < 0:
        raise CallRefused("it is a power of integers whose exponent is not a number from 0 on")
    total, square = cx.filled(cx.shape, 1), cx.cast(base)
    for bit in range(exponent.bit_length()):
        if exponent >> bit & 1:
            total = cx.emit(op.multiply(total, square))
        square = cx.emit(op.multiply(square, square))
    return total


def _copysign(cx: Context, a: Value, b: Value) -> Expr:
    """The size of ``a`` with the sign of ``b``."""
    size = cx.emit(op.abs(cx.cast(a)))
    return op.where(signbit(cx, cx.emit(cx.cast(b))), op.negative(size), size)


_POWERS: dict[float, Any] = {
    2: lambda cx, x: op.multiply(x, x),
    3: lambda cx, x: op.multiply(op.multiply(x, x), x),
    0.5: lambda cx, x: op.sqrt(x),
    -0.5: lambda cx, x: op.rsqrt(x),
    -1: lambda cx, x: op.divide(cx.cast(1), x),
}


def _atan2(cx: Context, y: Value, x: Value) -> Expr:
    return op.atan2(cx.cast(y), cx.cast(x))


def _logical(make: Any) -> Converter:
    """``make`` of whether the operands are not zero."""
    return lambda cx, a, b: make(*(cx.cast(value, "bool") for value in (a, b)))


def _bits(of_integers: Any, of_booleans: Any) -> Converter:
    def convert(cx: Context, a: Value, b: Value) -> Expr:
        make = of_booleans if cx.dtype == "bool" else of_integers
        return make(cx.cast(a), cx.cast(b))

    return convert


def _where(cx: Context, condition: Expr, a: Value, b: Value) -> Expr:
    return op.where(cx.cast(condition, "bool"), cx.cast(a), cx.cast(b))


def _extremum(make: Any) -> Converter:
    """A maximum or minimum; of booleans it is a logical operator."""

    def convert(cx: Context, a: Value, b: Value) -> Expr:
        if cx.dtype == "bool":
            return (op.logical_or if make is op.maximum else op.logical_and)(cx.cast(a), cx.cast(b))
        return make(cx.cast(a), cx.cast(b))

    return convert


def _extremum_of_numbers(make: Any) -> Converter:
    """A maximum or minimum in which NaN counts only beside another NaN."""
    plain = _extremum(make)

    def convert(cx: Context, a: Value, b: Value) -> Expr:
        if "float" not in cx.dtype:
            return plain(cx, a, b)
        left, right = cx.cast(a), cx.cast(b)
        return op.where(op.isnan(left), right, op.where(op.isnan(right), left, make(left, right)))

    return convert


def _hypot(cx: Context, a: Value, b: Value) -> Expr:
    """The larger of both times sqrt(1 + ratio^2): squares overflow. Infinite if one is, even beside NaN."""
    left, right = (cx.emit(op.abs(cx.cast(each))) for each in (a, b))
    larger, smaller = cx.emit(op.maximum(left, right)), op.minimum(left, right)
    divisor = op.where(op.equal(larger, cx.cast(0)), cx.cast(1), larger)
    ratio = cx.emit(op.divide(smaller, divisor))
    found = op.multiply(larger, op.sqrt(op.add(op.multiply(ratio, ratio), cx.cast(1))))
    is_infinite = op.logical_or(op.isinf(left), op.isinf(right))
    return op.where(is_infinite, cx.cast(float("inf")), found)


def _both(name: str, convert: Converter, *more: str) -> dict[str, Converter]:
    return {f"{name}.{overload}": convert for overload in ("Tensor", "Scalar", *more)}


_TESTS = {
    "eq": op.equal, "ne": op.not_equal, "lt": op.less, "le": op.less_equal, "gt": op.greater, "ge": op.greater_equal,
}  # fmt: skip

CONVERTERS: Converters = {
    **_both("add", _sum),
    **_both("sub", _difference),
    **_both(
        "rsub",
        lambda cx, a, b, alpha=1: (
            _difference(cx, b, a, 1) if alpha == 1 else op.subtract(cx.cast(b), _times(cx, a, alpha))
        ),
    ),
    **_both("mul", _product),
    **_both("div", _quotient, "Tensor_mode", "Scalar_mode"),
    **_both("remainder", _remainder, "Scalar_Tensor"),
    **_both("fmod", _fmod),
    **{
        name: convert
        for test, make in _TESTS.items()
        for name, convert in _both(test, _comparison(make)).items()
    },
    **_both("bitwise_and", _bits(op.bitwise_and, op.logical_and), "Scalar_Tensor"),
    **_both("bitwise_or", _bits(op.bitwise_or, op.logical_or), "Scalar_Tensor"),
    **_both("bitwise_xor", _bits(op.bitwise_xor, op.logical_xor), "Scalar_Tensor"),
    **_both("bitwise_left_shift", _arithmetic(op.left_shift), "Tensor_Scalar", "Scalar_Tensor"),
    **_both("bitwise_right_shift", _arithmetic(op.right_shift), "Tensor_Scalar", "Scalar_Tensor"),
    **_both("__lshift__", _arithmetic(op.left_shift)),
    **_both("__rshift__", _arithmetic(op.right_shift)),
    "floor_divide.default": _floor_quotient,
    "floor_divide.Scalar": _floor_quotient,
    "pow.Tensor_Tensor": _power,
    "pow.Tensor_Scalar": _power,
    "pow.Scalar": _power,
    "maximum.default": _extremum(op.maximum),
    "minimum.default": _extremum(op.minimum),
    "fmax.default": _extremum_of_numbers(op.maximum),
    "fmin.default": _extremum_of_numbers(op.minimum),
    "atan2.default": _atan2,
    **_both("copysign", _copysign),
    "hypot.default": _hypot,
    "logical_and.default": _logical(op.logical_and),
    "logical_or.default": _logical(op.logical_or),
    "logical_xor.default": _logical(op.logical_xor),
    "where.self": _where,
    "where.ScalarOther": _where,
    "where.ScalarSelf": _where,
    "where.Scalar": _where,
}
