"""activations: SiLU, sigmoid and the hard ones, put together from their parts; PReLU with one slope.

Normal form: ``nn.silu``, ``sigmoid``, ``nn.leakyrelu``. Relax has no operator for the hard ones: hard-sigmoid is
``clip(x * a + b, 0, 1)`` and hard-swish ``x * clip(x * a + b, 0, 1)``.
"""

from __future__ import annotations

from math import inf

from tvm import relax

from .clip import bounds_of
from .gelu import close
from .products import factors, polynomial, polynomial_text
from .rewrite import Rewrite
from .scope import Call, Expr, Scope, dtype_of, is_float, op, rank_of
from .why_not import WhyNot, first_of, is_no, number_text


def _silu(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """x * sigmoid(x) -> silu(x)."""
    return first_of(_gated(x, gate, scope) for x, gate in (call.args, call.args[::-1]))


def _gated(x: Expr, gate: Expr, scope: Scope) -> Expr | WhyNot | None:
    """``x * gate`` as a SiLU; a sigmoid of something not computed from ``x`` is a gate of another kind."""
    inner = scope.call(gate, "relax.sigmoid")
    if inner is None:
        return None
    if not inner.args[0].same_as(x):
        found = polynomial(inner.args[0], x, scope, depth=2)
        if found is None or max(found) != 1:
            return None
        return WhyNot(f"sigmoid is applied to {polynomial_text(found)}, not to x", 2)
    shared = scope.why_not_own(gate)
    return op.nn.silu(x) if shared is None else WhyNot(shared, 2)


def _sigmoid(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """1 / (1 + exp(-x)) -> sigmoid(x)."""
    bottom = scope.call(call.args[1], "relax.add")
    power = None if bottom is None else scope.call(bottom.args[0], "relax.exp")
    if bottom is None or power is None:
        return None
    minus = scope.own(power.args[0], "relax.negative", matched=4)
    if is_no(minus):
        return minus or WhyNot(f"exp is applied to {scope.title(power.args[0])}, not to a negative", 3)
    why = _why_not_sigmoid(call, bottom, minus, scope)
    return op.sigmoid(minus.args[0]) if why is None else WhyNot(why, 4)


def _why_not_sigmoid(call: Call, bottom: Call, minus: Call, scope: Scope) -> str | None:
    """Why ``a / (exp(-x) + b)`` is not a sigmoid."""
    if scope.scalar(call.args[0]) != 1.0:
        return f"the numerator is {_operand_text(call.args[0], scope)}, not the number 1"
    if scope.scalar(bottom.args[1]) != 1.0:
        return f"exp is added to {_operand_text(bottom.args[1], scope)}, not to the number 1"
    if rank_of(call) != rank_of(minus):
        return f"the numerator makes {rank_of(call)} axes of {rank_of(minus)}"
    return scope.why_not_own(call.args[1]) or scope.why_not_own(bottom.args[0])


def _operand_text(expr: Expr, scope: Scope) -> str:
    """A number, or the name of a tensor."""
    number = scope.scalar(expr)
    return scope.title(expr) if number is None else number_text(number)


def _hard_sigmoid(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """clip(x + 3, 0, 6) / 6 -> clip(x * (1 / 6) + 0.5, 0, 1)."""
    coefficient, terms = factors(call, scope)
    if len(terms) != 1 or _has_more_axes(call, terms):
        return None
    return _unit_clip(terms[0], coefficient, scope)


def _hard_swish(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """x * clip(x + 3, 0, 6) / 6, in any order of the factors -> x * clip(x * (1 / 6) + 0.5, 0, 1)."""
    coefficient, terms = factors(call, scope)
    if len(terms) != 2 or _has_more_axes(call, terms):
        return None
    return first_of(_hard_gated(x, gate, coefficient, scope) for x, gate in (terms, terms[::-1]))


def _has_more_axes(call: Call, terms: list[Expr]) -> bool:
    """Whether a number among the factors of ``call`` has more axes than the tensors ``terms``."""
    return rank_of(call) != max(map(rank_of, terms))


def _hard_gated(x: Expr, gate: Expr, factor: float, scope: Scope) -> Expr | WhyNot | None:
    """``x * gate * factor`` as a hard-swish."""
    clipped = scope.call(gate, "relax.clip")
    unit = None if clipped is None else _unit_clip(gate, factor, scope)
    if clipped is None or unit is None:
        return None
    found = polynomial(clipped.args[0], x, scope)
    if found is not None and found.keys() == {0, 1}:
        return unit if isinstance(unit, WhyNot) else op.multiply(x, unit)
    if isinstance(unit, WhyNot):
        return None
    shown = scope.title(clipped.args[0]) if found is None else polynomial_text(found)
    return WhyNot(f"clip is applied to {shown}, not to a x + b where x is {scope.title(x)}", 2)


def _unit_clip(expr: Expr, factor: float, scope: Scope) -> Expr | WhyNot | None:
    """``clip(z, 0, h) * factor`` as ``clip(z * factor, 0, 1)``, where ``h * factor`` is 1 and h is not."""
    clipped = scope.call(expr, "relax.clip")
    bounds = bounds_of(clipped)
    if clipped is None or bounds is None or (factor == 1.0 and bounds[1] == 1.0):
        return None
    low, high = bounds
    is_unit = factor > 0.0 and factor != 1.0 and close(high * factor, 1.0, expr)
    if low != 0.0:
        return WhyNot(f"the lower bound of clip is {number_text(low)}, not 0", 2) if is_unit else None
    if not is_unit:
        return _why_no_unit(high, factor)
    if not is_float(expr):
        return WhyNot(f"clip is of {dtype_of(expr)}, not of a floating point type", 2)
    why = scope.why_not_own(expr) or scope.why_exact(expr)
    if why is not None:
        return WhyNot(why, 2)
    return op.clip(_scaled(clipped.args[0], factor, scope), 0.0, 1.0)


def _why_no_unit(high: float, factor: float) -> WhyNot | None:
    """Why a clip from 0 to ``high`` is not from 0 to 1 behind a ``factor``; None where it has no upper bound."""
    if high == inf or high <= 0.0:
        return None
    needed = f"not {number_text(1 / high)}, one over its upper bound"
    return WhyNot(f"the factor behind clip is {number_text(factor)}, {needed}", 2)


def _scaled(expr: Expr, factor: float, scope: Scope) -> Expr:
    """``expr * factor``, with the factor before a summand that is a number."""
    scale = relax.const(factor, dtype_of(expr))
    summed = scope.own_call(expr, "relax.add")
    number = None if summed is None else scope.scalar(summed.args[1])
    if summed is None or number is None or rank_of(summed.args[0]) != rank_of(expr):
        return op.multiply(expr, scale)
    return op.add(op.multiply(summed.args[0], scale), relax.const(number * factor, dtype_of(expr)))


def _one_slope(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """prelu(x, [0.1, ..., 0.1]) -> leakyrelu(x, 0.1), which can be fused into the kernels of products.

    ONNX's importer gives a slope of one element to an axis of many, which TVM does not legalize.
    """
    slopes = scope.array(call.args[1])
    if slopes is None or not slopes.size:
        return WhyNot(f"the slopes of prelu are {scope.title(call.args[1])}, not constants")
    if not (slopes == slopes.flat[0]).all():
        low, high = number_text(slopes.min()), number_text(slopes.max())
        return WhyNot(f"the slopes of prelu are from {low} to {high}, not one number")
    return op.nn.leakyrelu(call.args[0], float(slopes.flat[0]))


SILU_FORM = Rewrite("silu_form", ("relax.multiply",), _silu)
SIGMOID_FORM = Rewrite("sigmoid_form", ("relax.divide",), _sigmoid)
HARD_SIGMOID_FORM = Rewrite("hard_sigmoid_form", ("relax.multiply", "relax.divide"), _hard_sigmoid)
HARD_SWISH_FORM = Rewrite("hard_swish_form", ("relax.multiply", "relax.divide"), _hard_swish)
ONE_SLOPE_FORM = Rewrite("one_slope_form", ("relax.nn.prelu",), _one_slope)
