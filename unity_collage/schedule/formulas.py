"""Transcendental functions of float32 as polynomials, which are vectorised; calls of libm are not.

The largest errors over all of float32, without denormal results:

============  ==========================  =================================================
function      error                       formula
============  ==========================  =================================================
exp           1.0e-7 relative             2^n (1 + r + r^2 P4(r)), |r| <= ln(2)/2 in two parts
                                          (the argument reduction of Cody and Waite)
tanh          3.0e-7 relative             x P5(x^2) / Q4(x^2), |x| cut at 9.04
erf           3.0e-7 relative             x P5(x^2) / Q5(x^2), |x| cut at 3.92
sigmoid       3.0e-7 relative             1 / (1 + exp(-x)); 0 or 1 where exp(-x) leaves float32
sinh, cosh    1.8e-7 relative             exp(|x|/2) twice, halved; below 1 sinh is its series
log           8.0e-8 relative             n ln(2) + z - z^2/2 + z^3 P8(z), z + 1 from sqrt(1/2) to sqrt(2)
atan          2.0e-7 relative             x + x^3 P3(x^2), |x| <= tan(pi/8) by the sum of two angles
asin, acos    2.6e-7 relative             x + x^3 P4(x^2), |x| <= 1/2 by the half of an angle
x^(k/4)       2.0e-7 relative             products of x, sqrt(x) and sqrt(sqrt(x))
============  ==========================  =================================================

The coefficients of the first four are our own minimax fits. They are made by Lawson's iteration of weighted least
squares (with Sanathanan and Koerner's linearisation for the quotients). Those of log, atan and asin are from Moshier's
Cephes library, 1992. NaN stays NaN. exp returns 0 or infinity where the exact result leaves the normal range of
float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan, pi

from tvm import tirx

from .stage import Expr

_EXP = (
    0.4999999403953552,
    0.1666651964187622,
    0.04166839271783829,
    0.008368780836462975,
    0.0013814462581649423,
)
_TANH_P = (1.0, 0.13680380582809448, 0.0038689107168465853, 2.8019241653964855e-05, 3.061342113142018e-08,
           -1.2224580722697276e-11)  # fmt: skip
_TANH_Q = (1.0, 0.4701371192932129, 0.027247972786426544, 0.00039396598003804684, 1.2881906741313287e-06)
_ERF_P = (1.1283791065216064, 0.19040894508361816, 0.05274900794029236, 0.0037657127249985933,
          0.00028488298994489014, 2.0500422124314355e-06)  # fmt: skip
_ERF_Q = (1.0, 0.5020782947540283, 0.11411009728908539, 0.014969408512115479, 0.0011625553015619516,
          3.809126792475581e-05)  # fmt: skip
_TANH_IS_ONE = 9.04
"""From here on tanh rounds to 1, and so does the quotient at this number: x * (1 + tanh(x)) is 0 below the negative of
it."""
_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_ROUNDER = 12582912.0
"""1.5 * 2^23: the sum of it and a small float has the nearest integer in its low bits."""
_LOWEST, _HIGHEST = -87.336544, 88.72283
"""Below the first argument exp is denormal, above the second it is infinite."""
_LOG = (
    3.3333331174e-1,
    -2.4999993993e-1,
    2.0000714765e-1,
    -1.6668057665e-1,
    1.4249322787e-1,
    -1.2420140846e-1,
    1.1676998740e-1,
    -1.1514610310e-1,
    7.0376836292e-2,
)
_ATAN = (-3.33329491539e-1, 1.99777106478e-1, -1.38776856032e-1, 8.05374449538e-2)
_ASIN = (1.6666752422e-1, 7.4953002686e-2, 4.5470025998e-2, 2.4181311049e-2, 4.2163199048e-2)
_SINH = (1 / 6, 1 / 120, 1 / 5040, 1 / 362880)
_SMALLEST, _LARGEST = 1.17549435e-38, 3.4028234e38
"""The smallest and the largest positive normal number of float32."""
_ROOT_OF_HALF_BITS = 0x3F3504F3


def _f32(value: float) -> Expr:
    return tirx.const(value, "float32")


def _i32(value: int) -> Expr:
    return tirx.const(value, "int32")


def let(value: Expr, body: Callable[[Expr], Expr]) -> Expr:
    """``body(value)`` with the value computed once."""
    var = tirx.Var("t", value.ty)
    return tirx.Let(var, value, body(var))


def _horner(coefficients: Sequence[float], x: Expr) -> Expr:
    result = _f32(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + _f32(coefficient)
    return result


def _exp(x: Expr) -> Expr:
    def of_argument(x: Expr) -> Expr:
        # This order of operands propagates NaN: a comparison with NaN is false and selects the second operand.
        clamped = tirx.max(_f32(_LOWEST), tirx.min(_f32(_HIGHEST), x))
        inside = let(clamped, _exp_inside)
        bounded = tirx.Select(x < _f32(_LOWEST), _f32(0.0), inside)
        # The product is infinity, or NaN if x is: `inside` may make a number of it.
        return tirx.Select(x <= _f32(_HIGHEST), bounded, x * tirx.infinity("float32"))

    return let(x, of_argument)


def _exp_inside(x: Expr) -> Expr:
    """exp of a number from ``_LOWEST`` to ``_HIGHEST``: the power of two is added to the bits of the exponent.

    The sum of the bits of NaN and others may be a number.
    """

    def of_rounded(rounded: Expr) -> Expr:
        count = rounded - _f32(_ROUNDER)
        return let(
            count, lambda n: let(x - n * _f32(_LN2_HIGH), lambda r: of_rest(r - n * _f32(_LN2_LOW), rounded))
        )

    def of_rest(rest: Expr, rounded: Expr) -> Expr:
        mantissa = let(rest, lambda r: _horner((1.0, 1.0, *_EXP), r))
        exponent = tirx.shift_left(tirx.reinterpret("int32", rounded), tirx.const(23, "int32"))
        return tirx.reinterpret("float32", tirx.reinterpret("int32", mantissa) + exponent)

    return let(x * _f32(_LOG2_E) + _f32(_ROUNDER), of_rounded)


def _quotient(p: Sequence[float], q: Sequence[float], limit: float) -> Callable[[Expr], Expr]:
    """An odd function that is constant beyond ``limit``."""

    def of_argument(x: Expr) -> Expr:
        clamped = tirx.max(_f32(-limit), tirx.min(_f32(limit), x))
        return let(clamped, lambda c: let(c * c, lambda z: c * _horner(p, z) / _horner(q, z)))

    return of_argument


def _sigmoid(x: Expr) -> Expr:
    """1 / (1 + exp(-x)), with x clamped to where exp(-x) is normal: beyond it the result is 1, or exactly 0.

    SiLU multiplies it by x, which may be as large as any float32, or infinite.
    """

    def of_argument(x: Expr) -> Expr:
        clamped = tirx.max(_f32(_LOWEST), tirx.min(_f32(-_LOWEST), x))
        inside = _f32(1.0) / (_f32(1.0) + let(_f32(0.0) - clamped, _exp_inside))
        bounded = tirx.Select(x < _f32(_LOWEST), _f32(0.0), inside)
        return tirx.Select(_isnan(x), x, bounded)

    return let(x, of_argument)


def _with_sign(magnitude: Expr, of: Expr) -> Expr:
    """``magnitude``, which is not negative, with the sign of ``of``."""
    sign = tirx.bitwise_and(tirx.reinterpret("uint32", of), tirx.const(0x80000000, "uint32"))
    return tirx.reinterpret("float32", tirx.bitwise_or(tirx.reinterpret("uint32", magnitude), sign))


def _magnitude_bits(x: Expr) -> Expr:
    return tirx.bitwise_and(tirx.reinterpret("uint32", x), tirx.const(0x7FFFFFFF, "uint32"))


def _magnitude(x: Expr) -> Expr:
    return tirx.reinterpret("float32", _magnitude_bits(x))


def _isnan(x: Expr) -> Expr:
    """Whether ``x`` is NaN, by its bits: TVM simplifies ``x != x`` to false."""
    return _magnitude_bits(x) > tirx.const(0x7F800000, "uint32")


def _log(x: Expr) -> Expr:
    def of_argument(x: Expr) -> Expr:
        is_denormal = x < _f32(_SMALLEST)
        bits = tirx.reinterpret("int32", tirx.Select(is_denormal, x * _f32(2.0**23), x))
        inside = let(bits, lambda bits: _log_of_bits(bits, is_denormal))
        ends = tirx.Select(tirx.EQ(x, _f32(0.0)), _f32(-inf), _f32(nan))
        bounded = tirx.Select(x > _f32(0.0), inside, ends)
        return tirx.Select(x > _f32(_LARGEST), x, bounded)

    return let(x, of_argument)


def _log_of_bits(bits: Expr, is_denormal: Expr) -> Expr:
    """log of the positive number with these ``bits``; a denormal number has been multiplied by 2^23."""

    def of_exponent(exponent: Expr) -> Expr:
        mantissa = tirx.reinterpret("float32", bits - tirx.shift_left(exponent, _i32(23)))
        count = tirx.Cast("float32", tirx.Select(is_denormal, exponent - _i32(23), exponent))
        return let(count, lambda n: let(mantissa - _f32(1.0), lambda z: of_rest(z, n)))

    def of_rest(z: Expr, n: Expr) -> Expr:
        bent = z * z * z * _horner(_LOG, z) + n * _f32(_LN2_LOW) - _f32(0.5) * z * z
        return z + bent + n * _f32(_LN2_HIGH)

    return let(tirx.shift_right(bits - _i32(_ROOT_OF_HALF_BITS), _i32(23)), of_exponent)


def _atan(x: Expr) -> Expr:
    """atan(a) = pi/2 - atan(1/a) = pi/4 + atan((a - 1) / (a + 1))."""

    def of_magnitude(a: Expr) -> Expr:
        is_far, is_near = a > _f32(2.414213562373095), a <= _f32(0.4142135623730950)
        over = tirx.Select(is_far, _f32(-1.0), tirx.Select(is_near, a, a - _f32(1.0)))
        under = tirx.Select(is_far, a, tirx.Select(is_near, _f32(1.0), a + _f32(1.0)))
        base = tirx.Select(is_far, _f32(pi / 2), tirx.Select(is_near, _f32(0.0), _f32(pi / 4)))
        return let(over / under, lambda t: base + _odd(_ATAN, t))

    return let(x, lambda x: _with_sign(let(_magnitude(x), of_magnitude), x))


def _asin(x: Expr) -> Expr:
    def of_magnitude(a: Expr) -> Expr:
        return let(
            _small_angle(a),
            lambda angle: tirx.Select(a > _f32(0.5), _f32(pi / 2) - _f32(2.0) * angle, angle),
        )

    return let(x, lambda x: _with_sign(let(_magnitude(x), of_magnitude), x))


def _acos(x: Expr) -> Expr:
    def of_angle(x: Expr, a: Expr, angle: Expr) -> Expr:
        far = tirx.Select(x > _f32(0.0), _f32(2.0) * angle, _f32(pi) - _f32(2.0) * angle)
        near = _f32(pi / 2) - tirx.Select(x > _f32(0.0), angle, _f32(0.0) - angle)
        return tirx.Select(a > _f32(0.5), far, near)

    def of_magnitude(x: Expr, a: Expr) -> Expr:
        return let(_small_angle(a), lambda angle: of_angle(x, a, angle))

    return let(x, lambda x: let(_magnitude(x), lambda a: of_magnitude(x, a)))


def _small_angle(a: Expr) -> Expr:
    """asin(a) up to 1/2; above it asin(sqrt((1 - a) / 2)), which is acos(a) / 2. NaN above 1."""
    is_far = a > _f32(0.5)
    square = tirx.Select(is_far, _f32(0.5) - _f32(0.5) * a, a * a)

    def of_square(z: Expr) -> Expr:
        return let(tirx.Select(is_far, tirx.sqrt(z), a), lambda s: s + s * z * _horner(_ASIN, z))

    return let(square, of_square)


def _odd(coefficients: Sequence[float], x: Expr) -> Expr:
    """x + x^3 P(x^2)."""
    return x + x * (x * x) * _horner(coefficients, x * x)


def _halves(a: Expr, body: Callable[[Expr, Expr], Expr]) -> Expr:
    """``body`` of exp(a) / 2 and exp(-a) / 2, for ``a`` not negative. exp(a) / 2 is finite wherever sinh(a) is."""
    root = let(tirx.min(_f32(60.0), _f32(0.5) * a), _exp)
    return let(root, lambda e: body(_f32(0.5) * e * e, _f32(0.5) / e / e))


def _sinh(x: Expr) -> Expr:
    def of_magnitude(a: Expr) -> Expr:
        far = _halves(a, lambda up, down: up - down)
        return tirx.Select(a < _f32(1.0), _odd(_SINH, a), far)

    return let(x, lambda x: _with_sign(let(_magnitude(x), of_magnitude), x))


def _cosh(x: Expr) -> Expr:
    return let(_magnitude(x), lambda a: _halves(a, lambda up, down: up + down))


FORMULAS: dict[str, Callable[[Expr], Expr]] = {
    "acos": _acos,
    "asin": _asin,
    "atan": _atan,
    "cosh": _cosh,
    "erf": _quotient(_ERF_P, _ERF_Q, 3.92),
    "exp": _exp,
    "isnan": _isnan,
    "log": _log,
    "sigmoid": _sigmoid,
    "sinh": _sinh,
    "tanh": _quotient(_TANH_P, _TANH_Q, _TANH_IS_ONE),
}
"""By the name of TVM's operator, the function from an argument of type float32 to the formula."""
