"""Transcendental functions of float32 as polynomials, which run in vectors; libm runs element by element.

Largest errors, over all of float32 outside of the denormal results:

=========  ==========================  =================================================
function   error                       formula
=========  ==========================  =================================================
exp        1.0e-7 relative             2^n (1 + r + r^2 P4(r)), |r| <= ln(2)/2 in two parts
                                       (the argument reduction of Cody and Waite)
tanh       3.0e-7 relative             x P5(x^2) / Q4(x^2), |x| cut at 9
erf        3.0e-7 relative             x P5(x^2) / Q5(x^2), |x| cut at 3.92
sigmoid    3.0e-7 relative             1 / (1 + exp(-x)), |x| cut where exp(-x) leaves float32
x^(k/4)    2.0e-7 relative             products of x, sqrt(x) and sqrt(sqrt(x))
=========  ==========================  =================================================

The coefficients are minimax fits of ours by Lawson's iteration of weighted least squares (for the
quotients with Sanathanan and Koerner's linearisation). NaN stays NaN; exp gives 0 and infinity where
the exact result leaves float32's normal range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.tirx.stmt import Stmt

from .stage import Expr, Func, nodes, op_name

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
_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_ROUNDER = 12582912.0
"""1.5 * 2^23: adding it to a small float leaves the nearest integer in the low bits."""
_LOWEST, _HIGHEST = -87.336544, 88.72283
"""exp below the first is denormal, above the second infinite."""
_MAX_QUARTERS = 16


def rewritten(func: Func) -> Func:
    """``func`` with the calls above replaced; others, and other types, are left."""
    maps = ((Call, _replacement), (tirx.Mul, _over_denominator), (tirx.BufferStore, _with_casts_by_bits))
    body = tvm_ffi.structural_map(func.body, maps)
    return func if body.same_as(func.body) else func.with_body(body)


def _with_casts_by_bits(store: Stmt) -> Stmt:
    """A store whose value binds variables, with its casts as :func:`_converted` writes them."""
    return tvm_ffi.structural_map(store, (tirx.Cast, _converted)) if nodes(store.value, tirx.Let) else store


def _converted(cast: Expr) -> Expr:
    """Casts between float32 and bfloat16 by the bits: the upper half of a float32 is a bfloat16.

    TVM does the same, but not within a Let, where it takes the bits for an integer; and it writes what is rounded
    three times, so that variables of a Let in it are bound three times. Rounded is to the nearest, of two the one
    whose last bit is 0; a NaN stays one unless only its lower half says so.
    """
    types = (str(cast.value.ty.dtype), str(cast.ty.dtype))
    if types == ("bfloat16", "float32"):
        bits = tirx.Cast("uint32", tirx.reinterpret("uint16", cast.value))
        return tirx.reinterpret("float32", tirx.shift_left(bits, _u32(16)))
    if types != ("float32", "bfloat16"):
        return cast

    def upper_half(bits: Expr) -> Expr:
        odd = tirx.bitwise_and(tirx.shift_right(bits, _u32(16)), _u32(1))
        return tirx.shift_right(bits + (odd + _u32(0x7FFF)), _u32(16))

    bits = _let(tirx.reinterpret("uint32", cast.value), upper_half)
    return tirx.reinterpret("bfloat16", tirx.Cast("uint16", bits))


def _u32(value: int) -> Expr:
    return tirx.const(value, "uint32")


def _replacement(call: Expr) -> Expr:
    if op_name(call) not in ("pow", *_FORMULAS) or str(call.ty.dtype) != "float32":
        return call
    name = op_name(call)
    if name == "pow":
        return _power(call)
    formula = _FORMULAS.get(name)
    return call if formula is None else formula(call.args[0])


def _f32(value: float) -> Expr:
    return tirx.const(value, "float32")


def _let(value: Expr, body: Callable[[Expr], Expr]) -> Expr:
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
        # The order of operands keeps NaN: each comparison with it is false and gives the second one.
        clamped = tirx.max(_f32(_LOWEST), tirx.min(_f32(_HIGHEST), x))
        inside = _let(clamped, _exp_inside)
        bounded = tirx.Select(x < _f32(_LOWEST), _f32(0.0), inside)
        return tirx.Select(x > _f32(_HIGHEST), tirx.infinity("float32"), bounded)

    return _let(x, of_argument)


def _exp_inside(x: Expr) -> Expr:
    """exp of ``_LOWEST`` to ``_HIGHEST``, a normal number: the power of two is added to the exponent's bits."""

    def of_rounded(rounded: Expr) -> Expr:
        count = rounded - _f32(_ROUNDER)
        return _let(
            count, lambda n: _let(x - n * _f32(_LN2_HIGH), lambda r: of_rest(r - n * _f32(_LN2_LOW), rounded))
        )

    def of_rest(rest: Expr, rounded: Expr) -> Expr:
        mantissa = _let(rest, lambda r: _horner((1.0, 1.0, *_EXP), r))
        exponent = tirx.shift_left(tirx.reinterpret("int32", rounded), tirx.const(23, "int32"))
        return tirx.reinterpret("float32", tirx.reinterpret("int32", mantissa) + exponent)

    return _let(x * _f32(_LOG2_E) + _f32(_ROUNDER), of_rounded)


def _quotient(p: Sequence[float], q: Sequence[float], limit: float) -> Callable[[Expr], Expr]:
    """An odd function that is constant beyond ``limit``."""

    def of_argument(x: Expr) -> Expr:
        clamped = tirx.max(_f32(-limit), tirx.min(_f32(limit), x))
        return _let(clamped, lambda c: _let(c * c, lambda z: c * _horner(p, z) / _horner(q, z)))

    return of_argument


def _sigmoid(x: Expr) -> Expr:
    """1 / (1 + exp(-x)) with |x| cut to where exp(-x) is normal: beyond it the result is 1 or, within 1e-38, 0."""
    clamped = tirx.max(_f32(_LOWEST), tirx.min(_f32(-_LOWEST), x))
    return _f32(1.0) / (_f32(1.0) + _let(_f32(0.0) - clamped, _exp_inside))


def _over_denominator(product: Expr) -> Expr:
    """x * sigmoid(y) as x over the sigmoid's denominator: SiLU needs no quotient of its own.

    Other quotients stay: where one is the same for many elements LLVM computes it once.
    """
    value, quotient = product.a, product.b
    if not isinstance(quotient, tirx.Div) or not nodes(quotient.b, tirx.Let):
        return product
    one = isinstance(quotient.a, tirx.FloatImm) and quotient.a.value == 1.0
    return value / quotient.b if one else product


def _power(call: Expr) -> Expr:
    """x^(k/4) for a small constant k, by square roots; otherwise the call itself."""
    base, exponent = call.args
    quarters = float(exponent.value) * 4 if isinstance(exponent, tirx.FloatImm) else 0.5
    if quarters != int(quarters) or not 0 < abs(quarters) <= _MAX_QUARTERS:
        return call
    whole, rest = divmod(int(abs(quarters)), 4)

    def product(x: Expr) -> Expr:
        root = tirx.sqrt(x)
        factors = [x] * whole + [root] * (rest // 2) + [tirx.sqrt(root)] * (rest % 2)
        result = factors[0]
        for factor in factors[1:]:
            result = result * factor
        return result if quarters > 0 else _f32(1.0) / result

    return _let(base, product)


_FORMULAS: dict[str, Callable[[Expr], Expr]] = {
    "exp": _exp,
    "tanh": _quotient(_TANH_P, _TANH_Q, 9.0),
    "erf": _quotient(_ERF_P, _ERF_Q, 3.92),
    "sigmoid": _sigmoid,
}
