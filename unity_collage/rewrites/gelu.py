"""gelu: recognised from erf or tanh, with its factors in any order.

Normal form: ``nn.gelu`` and ``nn.gelu_tanh`` (Hendrycks and Gimpel 2016, "Gaussian Error Linear Units").
"""

from __future__ import annotations

from math import isclose, pi, sqrt

from .products import factors, polynomial, polynomial_text
from .rewrite import Rewrite
from .scope import Call, Expr, Scope, dtype_of, is_float, op, op_name, rank_of
from .why_not import WhyNot, first_of, number_text

_GELU = {"relax.erf": {1: sqrt(0.5)}, "relax.tanh": {1: sqrt(2 / pi), 3: 0.044715 * sqrt(2 / pi)}}
"""The argument of GELU's inner function, as a polynomial of x."""

_MADE_OF = {"relax.erf": op.nn.gelu, "relax.tanh": op.nn.gelu_tanh}

_SHORT = {"relax.erf": "erf", "relax.tanh": "tanh"}

_STEPS = 6
"""From the factor down to its erf or tanh there are at most this many operators."""


def close(value: float, wanted: float, expr: Expr) -> bool:
    """Equal within the rounding of constants written in the dtype of ``expr``."""
    tolerance = {"float16": 2e-3, "bfloat16": 8e-3}.get(dtype_of(expr), 1e-5)
    return isclose(value, wanted, rel_tol=tolerance)


def _gelu(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """0.5 * x * (1 + erf(x / sqrt(2))) -> gelu(x), tanh's form -> gelu_tanh(x); factors in any order."""
    coefficient, terms = factors(call, scope)
    if len(terms) == 2:
        return first_of(
            _of_parts(call, coefficient, x, bracket, scope) for x, bracket in (terms, terms[::-1])
        )
    found = [_way_to_inner(term, scope) for term in terms] if len(terms) > 2 else []
    way = next((way for way in found if way is not None), None)
    if way is None:
        return None
    return WhyNot(f"{scope.title(way[-1])} is in a product of {len(terms)} tensors, not of two", len(way))


def _of_parts(call: Expr, coefficient: float, x: Expr, bracket: Expr, scope: Scope) -> Expr | WhyNot | None:
    """``coefficient * x * bracket`` as a GELU."""
    made = _one_plus(bracket, x, scope)
    if not isinstance(made, tuple):
        return made
    number, name = made
    factor = coefficient * number
    if not close(factor, 0.5, call):
        if factor == 1:
            return WhyNot(f"there is no factor behind {_SHORT[name]}, and 0.5 is needed", 4)
        return WhyNot(f"the factor behind {_SHORT[name]} is {number_text(factor)}, not 0.5", 5)
    if rank_of(call) != rank_of(x):
        return WhyNot(f"a number behind {_SHORT[name]} has {rank_of(call)} axes, more than the tensor", 5)
    if not is_float(call):
        return WhyNot(f"the product is {dtype_of(call)}, not a floating point type", 5)
    return _MADE_OF[name](x)


def _one_plus(bracket: Expr, x: Expr, scope: Scope) -> tuple[float, str] | WhyNot | None:
    """``c * (1 + f(p(x)))`` as c and the name of f, if f and p are those of a GELU."""
    outer = scope.own_call(bracket, "relax.add")
    number = None if outer is None else scope.scalar(outer.args[1])
    if outer is None or not number or not scope.used_once(outer.args[0]):
        return _why_no_sum(bracket, scope)
    coefficient, terms = factors(outer.args[0], scope, root=False)
    inner = scope.own_call(terms[0], *_GELU) if len(terms) == 1 else None
    if inner is None:
        return _why_no_sum(bracket, scope)
    name = op_name(inner)
    if not close(coefficient, number, bracket):
        product = f"{number_text(coefficient)} * {_SHORT[name]}"
        return WhyNot(f"{number_text(number)} is added to {product}, not {number_text(coefficient)}", 3)
    why = _why_not_inner(inner, x, scope)
    return (number, name) if why is None else WhyNot(why, 4)


def _why_no_sum(bracket: Expr, scope: Scope) -> WhyNot | None:
    """Why ``bracket``, where an erf or tanh is in a sum, is not that of a GELU."""
    way = _way_to_inner(bracket, scope)
    if way is None:
        return None
    shared = next(filter(None, map(scope.why_not_own, way)), None)
    return WhyNot(shared or f"{scope.title(way[-1])} is not in a sum with a number other than 0", len(way))


def _why_not_inner(inner: Call, x: Expr, scope: Scope) -> str | None:
    """Why an erf or tanh is not applied to what it is in the GELU of ``x``."""
    found, wanted, short = polynomial(inner.args[0], x, scope), _GELU[op_name(inner)], _SHORT[op_name(inner)]
    if found is None:
        return f"{short} is applied to {scope.title(inner.args[0])}, not to a polynomial of {scope.title(x)}"
    if found.keys() == wanted.keys() and all(close(found[power], wanted[power], x) for power in wanted):
        return None
    return f"{short} is applied to {polynomial_text(found)}, not to {polynomial_text(wanted)}"


def _way_to_inner(expr: Expr, scope: Scope) -> list[Expr] | None:
    """The values from ``expr`` down to an erf or tanh, by one sum and products with numbers; other readers or not."""
    way, sums = [], 0
    for _ in range(_STEPS):
        call = scope.call(expr, "relax.add", "relax.multiply", "relax.divide", *_GELU)
        if call is None:
            return None
        way.append(expr)
        if op_name(call) in _GELU:
            return way if sums == 1 else None
        sums += op_name(call) == "relax.add"
        tensors = [arg for arg in call.args if scope.scalar(arg) is None]
        if len(tensors) != 1 or (op_name(call) == "relax.divide" and not tensors[0].same_as(call.args[0])):
            return None
        expr = tensors[0]
    return None


GELU_FORM = Rewrite("gelu_form", ("relax.multiply", "relax.divide"), _gelu)
