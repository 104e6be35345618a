"""attention: the factor 1 / sqrt(d) has one place.

Normal form: no factor at all where a constant weight before the product can take it, else
``multiply(matmul(q, k), number)`` on the product, where a BLAS has alpha and oneDNN a post-op.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from .affine import LINEAR_OPS, linear_of
from .constants import constant
from .rule import Rule
from .scope import Call, Expr, Scope, dtype_of, is_float, op

_VIEWS = ("relax.reshape", "relax.permute_dims")


def _absorb(call: Expr, scope: Scope) -> Expr | None:
    """reshape(x @ w + b) * s -> reshape(x @ (w * s) + b * s), through permutations and a product (q @ k) * s too."""
    factor = scope.scalar(call.args[1])
    if not factor or not is_float(call) or call.args[1].ty.ndim > call.args[0].ty.ndim:
        return None
    factor = 1 / factor if call.op.name == "relax.divide" else factor
    return _absorbed(call.args[0], factor, scope)


def _absorbed(expr: Expr, factor: float, scope: Scope) -> Expr | None:
    """``expr * factor`` with the factor in constant weights upstream that nothing else depends on."""
    call = scope.own_call(expr, *_VIEWS, "relax.add", *LINEAR_OPS)
    if call is None:
        return None
    if call.op.name == "relax.add":
        return _absorbed_sum(call, factor, scope)
    if call.op.name in _VIEWS:
        inner = _absorbed(call.args[0], factor, scope)
        return None if inner is None else relax.Call(call.op, [inner, *call.args[1:]], call.attrs)
    linear = linear_of(call, scope)
    if linear is not None:
        return linear.scaled(np.full(linear.channels, factor))
    return _absorbed_product(call, factor, scope)


def _absorbed_sum(call: Call, factor: float, scope: Scope) -> Expr | None:
    summand = scope.array(call.args[1])
    inner = None if summand is None else _absorbed(call.args[0], factor, scope)
    if inner is None or summand is None:
        return None
    return op.add(inner, constant((summand * factor).astype(summand.dtype)))


def _absorbed_product(call: Call, factor: float, scope: Scope) -> Expr | None:
    """The factor in what makes one of the operands of a product of two activations."""
    if call.op.name != "relax.matmul":
        return None
    for side in (0, 1):
        operand = _absorbed(call.args[side], factor, scope)
        if operand is not None:
            args = [operand if i == side else arg for i, arg in enumerate(call.args)]
            return relax.Call(call.op, args, call.attrs)
    return None


def _after_product(call: Expr, scope: Scope) -> Expr | None:
    """(q * s) @ k -> (q @ k) * s, for a number s, through views of the operand."""
    for side in (0, 1):
        found = _without_factor(call.args[side], scope)
        if found is not None and is_float(call):
            args = [found[0] if i == side else arg for i, arg in enumerate(call.args)]
            product = relax.Call(call.op, args, call.attrs)
            return op.multiply(product, relax.const(found[1], dtype_of(call)))
    return None


def _without_factor(expr: Expr, scope: Scope) -> tuple[Expr, float] | None:
    """What ``expr`` is a view of some number times, and the number."""
    call = scope.own_call(expr, *_VIEWS, "relax.multiply", "relax.divide")
    if call is None:
        return None
    if call.op.name in _VIEWS:
        inner = _without_factor(call.args[0], scope)
        return (
            None if inner is None else (relax.Call(call.op, [inner[0], *call.args[1:]], call.attrs), inner[1])
        )
    number = scope.scalar(call.args[1])
    if not number or call.args[1].ty.ndim > call.args[0].ty.ndim:
        return None
    return call.args[0], 1 / number if call.op.name == "relax.divide" else number


def _divided_product(call: Expr, scope: Scope) -> Expr | None:
    """(q @ k) / s -> (q @ k) * (1 / s), for a number s."""
    number = scope.scalar(call.args[1])
    product = scope.own_call(call.args[0], "relax.matmul")
    if product is None or not number or not is_float(call) or call.args[1].ty.ndim > call.args[0].ty.ndim:
        return None
    return op.multiply(call.args[0], relax.const(1 / number, dtype_of(call)))


ABSORB_FACTOR = Rule("absorb_factor", ("relax.multiply", "relax.divide"), _absorb)
FACTOR_AFTER_PRODUCT = Rule("factor_after_product", ("relax.matmul",), _after_product)
PRODUCT_DIVIDED = Rule("product_divided", ("relax.divide",), _divided_product)
