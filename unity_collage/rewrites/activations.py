"""activations: GELU, SiLU, sigmoid and the hard ones, put together from their parts; PReLU with one slope.

Normal form: ``nn.gelu``, ``nn.gelu_tanh``, ``nn.silu``, ``sigmoid``, ``nn.leakyrelu``. Relax has no operator for the
hard ones: hard-sigmoid is ``clip(x * a + b, 0, 1)`` and hard-swish ``x * clip(x * a + b, 0, 1)``.
"""

from __future__ import annotations

from math import isclose, pi, sqrt

from tvm import relax

from .clip import bounds_of
from .products import factors, polynomial
from .rule import Rule
from .scope import Expr, Scope, dtype_of, is_float, op

_GELU = {"relax.erf": {1: sqrt(0.5)}, "relax.tanh": {1: sqrt(2 / pi), 3: 0.044715 * sqrt(2 / pi)}}
"""What GELU's inner function is applied to, as a polynomial of x."""

_MADE_OF = {"relax.erf": op.nn.gelu, "relax.tanh": op.nn.gelu_tanh}


def _close(value: float, wanted: float, expr: Expr) -> bool:
    """Equal within the rounding of constants written in the dtype of ``expr``."""
    tolerance = {"float16": 2e-3, "bfloat16": 8e-3}.get(dtype_of(expr), 1e-5)
    return isclose(value, wanted, rel_tol=tolerance)


def _gelu(call: Expr, scope: Scope) -> Expr | None:
    """0.5 * x * (1 + erf(x / sqrt(2))) -> gelu(x), tanh's form -> gelu_tanh(x); factors in any order."""
    coefficient, terms = factors(call, scope)
    if len(terms) != 2 or not is_float(call):
        return None
    for x, bracket in (terms, terms[::-1]):
        made = _one_plus(bracket, x, scope)
        if made is not None and _close(coefficient * made[0], 0.5, call):
            return _MADE_OF[made[1]](x)
    return None


def _one_plus(bracket: Expr, x: Expr, scope: Scope) -> tuple[float, str] | None:
    """``c * (1 + f(p(x)))`` as c and the name of f, if f and p are those of a GELU."""
    outer = scope.own_call(bracket, "relax.add")
    number = None if outer is None else scope.scalar(outer.args[1])
    if outer is None or not number or not scope.used_once(outer.args[0]):
        return None
    coefficient, terms = factors(outer.args[0], scope, root=False)
    inner = scope.own_call(terms[0], *_GELU) if len(terms) == 1 else None
    if inner is None or not _close(coefficient, number, bracket):
        return None
    name = inner.op.name
    found = polynomial(inner.args[0], x, scope)
    wanted = _GELU[name]
    if found is None or found.keys() != wanted.keys():
        return None
    if not all(_close(found[power], wanted[power], x) for power in wanted):
        return None
    return number, name


def _silu(call: Expr, scope: Scope) -> Expr | None:
    """x * sigmoid(x) -> silu(x)."""
    for x, gate in (call.args, call.args[::-1]):
        inner = scope.own_call(gate, "relax.sigmoid")
        if inner is not None and inner.args[0].same_as(x):
            return op.nn.silu(x)
    return None


def _sigmoid(call: Expr, scope: Scope) -> Expr | None:
    """1 / (1 + exp(-x)) -> sigmoid(x)."""
    bottom = scope.own_call(call.args[1], "relax.add")
    if bottom is None or scope.scalar(call.args[0]) != 1.0 or scope.scalar(bottom.args[1]) != 1.0:
        return None
    power = scope.own_call(bottom.args[0], "relax.exp")
    minus = None if power is None else scope.own_call(power.args[0], "relax.negative")
    return None if minus is None or call.ty.ndim != minus.ty.ndim else op.sigmoid(minus.args[0])


def _hard_sigmoid(call: Expr, scope: Scope) -> Expr | None:
    """clip(x + 3, 0, 6) / 6 -> clip(x * (1 / 6) + 0.5, 0, 1)."""
    coefficient, terms = factors(call, scope)
    return _unit_clip(terms[0], coefficient, scope) if len(terms) == 1 else None


def _hard_swish(call: Expr, scope: Scope) -> Expr | None:
    """x * clip(x + 3, 0, 6) / 6, in any order of the factors -> x * clip(x * (1 / 6) + 0.5, 0, 1)."""
    coefficient, terms = factors(call, scope)
    if len(terms) != 2:
        return None
    for x, gate in (terms, terms[::-1]):
        clipped = scope.own_call(gate, "relax.clip")
        found = None if clipped is None else polynomial(clipped.args[0], x, scope)
        if found is not None and found.keys() == {0, 1}:
            unit = _unit_clip(gate, coefficient, scope)
            return None if unit is None else op.multiply(x, unit)
    return None


def _unit_clip(expr: Expr, factor: float, scope: Scope) -> Expr | None:
    """``clip(z, 0, h) * factor`` as ``clip(z * factor, 0, 1)``, where ``h * factor`` is 1 and h is not."""
    clipped = scope.own_call(expr, "relax.clip")
    bounds = bounds_of(clipped)
    if clipped is None or bounds is None or bounds[0] != 0.0 or not is_float(expr):
        return None
    if factor == 1.0 or not _close(bounds[1] * factor, 1.0, expr):
        return None
    return op.clip(_scaled(clipped.args[0], factor, scope), 0.0, 1.0)


def _scaled(expr: Expr, factor: float, scope: Scope) -> Expr:
    """``expr * factor``, with the factor before a summand that is a number."""
    scale = relax.const(factor, dtype_of(expr))
    summed = scope.own_call(expr, "relax.add")
    number = None if summed is None else scope.scalar(summed.args[1])
    if summed is None or number is None:
        return op.multiply(expr, scale)
    return op.add(op.multiply(summed.args[0], scale), relax.const(number * factor, dtype_of(expr)))


def _one_slope(call: Expr, scope: Scope) -> Expr | None:
    """prelu(x, [0.1, ..., 0.1]) -> leakyrelu(x, 0.1), which products take into their kernels.

    ONNX's importer gives a slope of one element to an axis of many, which TVM does not legalize.
    """
    slopes = scope.array(call.args[1])
    if slopes is None or not slopes.size or not (slopes == slopes.flat[0]).all():
        return None
    return op.nn.leakyrelu(call.args[0], float(slopes.flat[0]))


GELU_FORM = Rule("gelu_form", ("relax.multiply", "relax.divide"), _gelu)
SILU_FORM = Rule("silu_form", ("relax.multiply",), _silu)
SIGMOID_FORM = Rule("sigmoid_form", ("relax.divide",), _sigmoid)
HARD_SIGMOID_FORM = Rule("hard_sigmoid_form", ("relax.multiply", "relax.divide"), _hard_sigmoid)
HARD_SWISH_FORM = Rule("hard_swish_form", ("relax.multiply", "relax.divide"), _hard_swish)
ONE_SLOPE_FORM = Rule("one_slope_form", ("relax.nn.prelu",), _one_slope)
