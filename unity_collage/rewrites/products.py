"""Reading arithmetic that was taken apart: an expression as a product of factors, or as a polynomial."""

from __future__ import annotations

from tvm import relax

from .scope import Call, Expr, Scope, op_name
from .why_not import number_text

_DEPTH = 8
"""How far down an expression is read: more than any activation needs."""

Polynomial = dict[int, float]
"""Coefficients by exponent."""


def factors(expr: Expr, scope: Scope, root: bool = True, depth: int = _DEPTH) -> tuple[float, list[Expr]]:
    """``expr`` as a number times some factors, whichever way the products were associated.

    Only products without other readers are opened, so that replacing all of them repeats no work.
    """
    ops = ("relax.multiply", "relax.divide")
    call = scope.call(expr, *ops) if root else scope.own_call(expr, *ops)
    if call is None or depth == 0:
        number = scope.scalar(expr)
        return (1.0, [expr]) if number is None else (number, [])
    left, right = call.args
    if op_name(call) == "relax.divide":
        divisor = scope.scalar(right)
        if not divisor:
            return 1.0, [expr]
        number, terms = factors(left, scope, False, depth - 1)
        return number / divisor, terms
    first, terms = factors(left, scope, False, depth - 1)
    second, more = factors(right, scope, False, depth - 1)
    return first * second, terms + more


def polynomial(expr: Expr, x: Expr, scope: Scope, depth: int = _DEPTH) -> Polynomial | None:
    """``expr`` as a polynomial in ``x`` with numbers for coefficients, or None if it is something else."""
    if expr.same_as(x):
        return {1: 1.0}
    number = scope.scalar(expr)
    if number is not None:
        return {0: number}
    call = scope.value(expr)
    if depth == 0 or not isinstance(call, relax.Call) or len(call.args) not in (1, 2):
        return None
    parts = [polynomial(arg, x, scope, depth - 1) for arg in call.args]
    if any(part is None for part in parts):
        return None
    return _combined(call, [part for part in parts if part is not None])


def _combined(call: Call, parts: list[Polynomial]) -> Polynomial | None:
    name = getattr(call.op, "name", "")
    if name == "relax.square":
        return _product(parts[0], parts[0])
    if name == "relax.multiply":
        return _product(*parts)
    if name == "relax.add":
        return _sum(*parts)
    if name == "relax.subtract":
        return _sum(parts[0], _product(parts[1], {0: -1.0}))
    divisor = parts[-1].get(0, 0.0) if list(parts[-1]) == [0] else 0.0
    if name == "relax.divide" and divisor:
        return _product(parts[0], {0: 1.0 / divisor})
    if name == "relax.power" and list(parts[1]) == [0] and parts[1][0] in (2.0, 3.0):
        squared = _product(parts[0], parts[0])
        return squared if parts[1][0] == 2.0 else _product(squared, parts[0])
    return None


def polynomial_text(found: Polynomial) -> str:
    """``0.5 x^2 + 3``, the highest power first."""
    return " + ".join(_term_text(found[power], power) for power in sorted(found, reverse=True))


def _term_text(coefficient: float, power: int) -> str:
    factor = "" if coefficient == 1 and power else number_text(coefficient)
    unknown = {0: "", 1: "x"}.get(power, f"x^{power}")
    return f"{factor} {unknown}".strip()


def _sum(left: Polynomial, right: Polynomial) -> Polynomial:
    return {power: left.get(power, 0.0) + right.get(power, 0.0) for power in sorted({*left, *right})}


def _product(left: Polynomial, right: Polynomial) -> Polynomial:
    out: Polynomial = {}
    for i, a in left.items():
        for j, b in right.items():
            out[i + j] = out.get(i + j, 0.0) + a * b
    return out
