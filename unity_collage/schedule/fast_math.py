"""Rewrites of expressions: transcendental functions (by ``formulas``), powers, SiLU, casts of bfloat16, extrema."""

from __future__ import annotations

from math import inf
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.tirx.stmt import Stmt

from .extrema import keeping_nan
from .formulas import FORMULAS, let
from .stage import Expr, Func, nodes, op_name

_MAX_QUARTERS = 16
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min)
_STEPS = (*_ARITHMETIC, tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)


def rewritten(func: Func) -> Func:
    """``func`` with these expressions replaced; other functions and other types are left unchanged."""
    maps = ((Call, _replacement), (tirx.Mul, _over_denominator), (tirx.BufferStore, _with_casts_by_bits))
    kept = keeping_nan(func)
    body = tvm_ffi.structural_map(kept.body, maps)
    return kept if body.same_as(kept.body) else kept.with_body(body)


def _with_casts_by_bits(store: tirx.BufferStore) -> Stmt:
    """A store of a value that binds variables: casts rewritten by :func:`_converted`, and no step in bfloat16."""
    if not nodes(store.value, tirx.Let):
        return store
    return tvm_ffi.structural_map(store, ((tirx.Cast, _converted), *((kind, _wide) for kind in _STEPS)))


def _wide(step: Any) -> Expr:
    """A step of arithmetic or comparison in bfloat16 -> in float32, and rounded as :func:`_converted` does.

    A product of quantised values reads variables. TVM's vectoriser visits the operands of a product twice. It takes
    what the first visit has changed in place for another value of the same variable, and fails.
    """
    if isinstance(step, tirx.Mul) and any(_rounds_in_let(operand) for operand in (step.a, step.b)):
        return let(step.a, lambda a: let(step.b, lambda b: a * b))
    if str(step.a.expr_ty().dtype) != "bfloat16":
        return step
    wide = type(step)(_as_float32(step.a), _as_float32(step.b))
    return _converted(tirx.Cast("bfloat16", wide)) if isinstance(step, _ARITHMETIC) else wide


def _rounds_in_let(value: Expr) -> bool:
    """Whether a value binds variables, and rounds to integers, as quantising does."""
    return bool(nodes(value, tirx.Let)) and any(op_name(call) == "nearbyint" for call in nodes(value, Call))


def _as_float32(value: Expr) -> Expr:
    if isinstance(value, tirx.FloatImm):
        return tirx.const(value.value, "float32")
    return _converted(tirx.Cast("float32", value))


def _converted(cast: tirx.Cast) -> Expr:
    """A cast between float32 and bfloat16 by bit operations: the upper half of a float32 is a bfloat16.

    TVM does the same, except inside a Let, where it takes the bits for an integer. It also repeats the operand three
    times, so that the variables of a Let in it are bound three times. Rounding is to nearest, ties to even. A NaN stays
    a NaN, unless its payload is only in the lower half. A cast to integers gets an operand without bounds.
    """
    types = (str(cast.value.expr_ty().dtype), str(cast.expr_ty().dtype))
    if types[0] == "float32" and "int" in types[1]:
        return tirx.Cast(types[1], _without_bounds(cast.value))
    if types == ("bfloat16", "float32"):
        bits = tirx.Cast("uint32", tirx.reinterpret("uint16", cast.value))
        return tirx.reinterpret("float32", tirx.shift_left(bits, _u32(16)))
    if types != ("float32", "bfloat16"):
        return cast

    def upper_half(bits: Expr) -> Expr:
        odd = tirx.bitwise_and(tirx.shift_right(bits, _u32(16)), _u32(1))
        return tirx.shift_right(bits + (odd + _u32(0x7FFF)), _u32(16))

    bits = let(tirx.reinterpret("uint32", cast.value), upper_half)
    return tirx.reinterpret("bfloat16", tirx.Cast("uint16", bits))


def _without_bounds(value: Expr) -> Expr:
    """A float32 for which TVM's analysis computes no bounds.

    It would compute bounds for the integers inside a formula. Inside a condition it would compute other bounds for
    the same integers, and fail because they differ. LLVM removes both conversions.
    """
    return tirx.reinterpret("float32", tirx.reinterpret("int32", value)) if nodes(value, tirx.Let) else value


def _u32(value: int) -> Expr:
    return tirx.const(value, "uint32")


def _replacement(call: Call) -> Expr:
    name = op_name(call)
    if name not in ("pow", *FORMULAS) or str(call.args[0].expr_ty().dtype) != "float32":
        return call
    return _power(call) if name == "pow" else FORMULAS[name](call.args[0])


def _over_denominator(product: tirx.Mul) -> Expr:
    """x * (1 / d) -> x / d, where d binds variables, as the denominator of sigmoid does: SiLU saves a division.

    Other quotients are kept: if a quotient is the same for many elements, LLVM computes it only once.
    """
    value, quotient = product.a, product.b
    if not isinstance(quotient, tirx.Div) or not nodes(quotient.b, tirx.Let):
        return product
    one = isinstance(quotient.a, tirx.FloatImm) and quotient.a.value == 1.0
    return value / quotient.b if one else product


def _power(call: Call) -> Expr:
    """x^(k/4) for a small constant k by square roots; other powers are returned unchanged.

    Where there is a root, the power of -infinity is that of infinity, and the power of -0 that of 0.
    """
    base, exponent = call.args
    quarters = float(exponent.value) * 4 if isinstance(exponent, tirx.FloatImm) else 0.5
    if not 0 < abs(quarters) <= _MAX_QUARTERS or quarters != int(quarters):
        return call
    whole, rest = divmod(int(abs(quarters)), 4)
    infinity, below = (tirx.const(value, "float32") for value in (inf, -inf))

    def product(x: Expr) -> Expr:
        root = tirx.sqrt(tirx.Select(x.equal(below), infinity, x))
        factors = [x] * whole + [root] * (rest // 2) + [tirx.sqrt(root)] * (rest % 2)
        result = factors[0]
        for factor in factors[1:]:
            result = result * factor
        result = tirx.abs(result) if rest else result
        return result if quarters > 0 else tirx.const(1.0, "float32") / result

    return let(base, product)
