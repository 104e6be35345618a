"""attention: the factor 1 / sqrt(d) has one place.

Normal form: no factor at all where a constant weight before the product can take it. Elsewhere it is
``multiply(matmul(q, k), number)`` on the product, where a BLAS has alpha and oneDNN a post-op.
"""

from __future__ import annotations

from math import isfinite

import numpy as np
from tvm import relax

from .constants import constant, is_normal, multiplied
from .linear import LINEAR_OPS, VIEWS, is_of_product, linear_of, why_not_linear
from .rewrite import Rewrite
from .scope import Call, Expr, Scope, dtype_of, is_float, op, op_name, rank_of
from .why_not import WhyNot, first_of, is_no, number_text


def _absorb(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """reshape(x @ w + b) * s -> reshape(x @ (w * s) + b * s), through permutations and a product (q @ k) * s too."""
    factor = scope.scalar(call.args[1])
    if not factor:
        return None
    why = _why_no_number(call)
    if why is not None:
        return WhyNot(why) if is_of_product(call.args[0], scope) else None
    factor = 1 / factor if op_name(call) == "relax.divide" else factor
    if not factor or not isfinite(factor):
        return WhyNot("the factor is 0 or not finite") if is_of_product(call.args[0], scope) else None
    return _absorbed(call.args[0], factor, scope)


def _why_no_number(call: Call) -> str | None:
    """Why the factor or divisor of a product or quotient with one number cannot be moved."""
    if not is_float(call):
        return f"the product is {dtype_of(call)}, not a floating point type"
    widens = rank_of(call.args[1]) > rank_of(call.args[0])
    return f"the factor has {rank_of(call.args[1])} axes, more than what it multiplies" if widens else None


def _absorbed(expr: Expr, factor: float, scope: Scope) -> Expr | WhyNot | None:
    """``expr * factor`` with the factor in constant weights upstream that nothing else depends on."""
    call = scope.call(expr, *VIEWS, "relax.add", *LINEAR_OPS)
    if call is None:
        return None
    shared = scope.why_not_own(expr)
    if shared is not None:
        return WhyNot(shared) if is_of_product(expr, scope) else None
    if op_name(call) == "relax.add":
        return _absorbed_sum(call, factor, scope)
    if op_name(call) in VIEWS:
        inner = _absorbed(call.args[0], factor, scope)
        return inner if is_no(inner) else relax.Call(call.op, [inner, *call.args[1:]], call.attrs)
    linear = linear_of(call, scope)
    if linear is not None:
        scale = np.full(linear.channels, factor)
        why = linear.why_not_scaled(scale)
        return linear.scaled(scale) if why is None else WhyNot(why)
    return _absorbed_product(call, factor, scope)


def _absorbed_sum(call: Call, factor: float, scope: Scope) -> Expr | WhyNot | None:
    summand = scope.array(call.args[1])
    if summand is None:
        why = f"{scope.title(call.args[1])}, which add adds before the factor, is not constant"
        return WhyNot(why) if is_of_product(call.args[0], scope) else None
    scaled = multiplied(summand, factor)
    if scaled is None:
        why = f"{scope.title(call.args[1])} times the factor overflows"
        return WhyNot(why) if is_of_product(call.args[0], scope) else None
    inner = _absorbed(call.args[0], factor, scope)
    return inner if is_no(inner) else op.add(inner, constant(scaled))


def _absorbed_product(call: Call, factor: float, scope: Scope) -> Expr | WhyNot | None:
    """The factor moved into the computation of one operand of a product of two activations."""
    if op_name(call) != "relax.matmul":
        return WhyNot(why_not_linear(call, scope) or "")
    if dtype_of(call.args[0]) == "float16" and abs(factor) > 1:
        return WhyNot(f"an operand times the factor {number_text(factor)} may overflow in float16")
    found = first_of(_with_absorbed(call, side, factor, scope) for side in (0, 1))
    if found is None:
        return WhyNot("neither operand of matmul is made of constant weights by views and sums alone")
    return found


def _with_absorbed(call: Call, side: int, factor: float, scope: Scope) -> Expr | WhyNot | None:
    operand = _absorbed(call.args[side], factor, scope)
    if is_no(operand):
        return operand
    args = [operand if i == side else arg for i, arg in enumerate(call.args)]
    return relax.Call(call.op, args, call.attrs)


def _after_product(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """(q * s) @ k -> (q @ k) * s, for a number s, through views of the operand."""
    return first_of(_with_factor_behind(call, side, scope) for side in (0, 1))


def _with_factor_behind(call: Call, side: int, scope: Scope) -> Expr | WhyNot | None:
    found = _without_factor(call.args[side], scope)
    if not isinstance(found, tuple):
        return found
    why = _why_not_behind(call, found[1])
    if why is not None:
        return WhyNot(why, 2)
    args = [found[0] if i == side else arg for i, arg in enumerate(call.args)]
    product = relax.Call(call.op, args, call.attrs)
    return op.multiply(product, relax.const(found[1], dtype_of(call)))


def _why_not_behind(call: Call, factor: float) -> str | None:
    """Why a product cannot be multiplied by ``factor`` in place of an operand."""
    if not is_float(call) or not is_float(call.args[0]):
        return f"matmul makes {dtype_of(call)} of {dtype_of(call.args[0])}, not floating point types"
    if not is_normal(factor, dtype_of(call)):
        return f"the factor {number_text(factor)} is not a normal number of {dtype_of(call)}"
    if dtype_of(call) == "float16" and abs(factor) < 1:
        return f"without the factor {number_text(factor)} before it, the product may overflow in float16"
    return None


def _without_factor(expr: Expr, scope: Scope) -> tuple[Expr, float] | WhyNot | None:
    """The tensor and the number such that ``expr`` is a view of their product."""
    call = scope.call(expr, *VIEWS, "relax.multiply", "relax.divide")
    if call is None:
        return None
    if op_name(call) in VIEWS:
        found = _without_factor(call.args[0], scope)
        if not isinstance(found, tuple):
            return found
        inner, number = relax.Call(call.op, [found[0], *call.args[1:]], call.attrs), found[1]
    else:
        number = scope.scalar(call.args[1])
        if not number:
            return None
        if rank_of(call.args[1]) > rank_of(call.args[0]):
            return WhyNot(f"the factor has {rank_of(call.args[1])} axes, more than what it multiplies", 2)
        inner, number = call.args[0], 1 / number if op_name(call) == "relax.divide" else number
    shared = scope.why_not_own(expr)
    return (inner, number) if shared is None else WhyNot(shared, 2)


def _divided_product(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """(q @ k) / s -> (q @ k) * (1 / s), for a number s."""
    product, divisor = scope.call(call.args[0], "relax.matmul"), scope.array(call.args[1])
    if product is None or divisor is None:
        return None
    number = scope.scalar(call.args[1])
    if not number:
        shown = "0" if divisor.size == 1 else f"a constant of {divisor.size} elements"
        return WhyNot(f"the divisor of matmul is {shown}, not one number other than 0", 2)
    why = _why_no_number(call) or scope.why_not_own(call.args[0])
    if why is None and not is_normal(1 / number, dtype_of(call)):
        why = f"one over the divisor {number_text(number)} is not a normal number of {dtype_of(call)}"
    if why is not None:
        return WhyNot(why, 2)
    return op.multiply(call.args[0], relax.const(1 / number, dtype_of(call)))


ABSORB_FACTOR = Rewrite("absorb_factor", ("relax.multiply", "relax.divide"), _absorb)
FACTOR_AFTER_PRODUCT = Rewrite("factor_after_product", ("relax.matmul",), _after_product)
PRODUCT_DIVIDED = Rewrite("product_divided", ("relax.divide",), _divided_product)
