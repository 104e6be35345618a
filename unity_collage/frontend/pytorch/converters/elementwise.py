"""Operators that compute each element of their result from one element of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from math import factorial, inf, log, pi
from typing import Any

from tvm import relax
from tvm.relax import op

from ..context import CallRefused, Context, Converter, Converters, Value, dtype_of, rank_of, shape_of

Expr = relax.Expr


def _of(make: Any) -> Converter:
    """``make`` of the operand in the dtype of the result, since torch computes square roots of integers in floats."""
    return lambda cx, x, *_: make(cx.cast(x))


def _of_floats(make: Any) -> Converter:
    """``make`` of floats; integers do not change."""
    return lambda cx, x, *_: make(x) if _is_float(x) else x


def _question(make: Any, of_integers: bool) -> Converter:
    """A predicate of floats with a known result for integers."""

    def convert(cx: Context, x: Expr) -> Expr:
        return make(x) if _is_float(x) else op.full(cx.shape, relax.const(of_integers, "bool"), "bool")

    return convert


def _is_float(x: Expr) -> bool:
    return "float" in dtype_of(x)


def _scaled_log(base: float) -> Converter:
    """The logarithm to a base, through float64: else that of 8192 to the base 2 would be below 13."""
    return lambda cx, x: _in_float64(cx, x, lambda wide: op.divide(op.log(wide), _float64(log(base))))


def _exp2(cx: Context, x: Expr) -> Expr:
    """2^x, through float64, so that it is exact for integers."""
    return _in_float64(cx, x, lambda wide: op.exp(op.multiply(wide, _float64(log(2)))))


def _in_float64(cx: Context, x: Expr, make: Callable[[Expr], Expr]) -> Expr:
    return cx.cast(cx.emit(make(cx.cast(x, "float64"))))


def _float64(value: float) -> Expr:
    return relax.const(value, "float64")


def _log1p(cx: Context, x: Expr) -> Expr:
    """By its series near zero, where 1 + x loses digits; the first term left out is below a rounding error."""
    x = cx.cast(x)
    terms = 14 if cx.dtype == "float64" else 6
    series = _polynomial(cx, x, [0, *((-1) ** (n + 1) / n for n in range(1, terms))])
    return op.where(_is_small(cx, x, 1 / 16), series, op.log(op.add(x, cx.cast(1))))


def _expm1(cx: Context, x: Expr) -> Expr:
    """By its series near zero, where exp(x) - 1 loses digits; the first term left out is below a rounding error."""
    x = cx.cast(x)
    terms = 11 if cx.dtype == "float64" else 6
    series = _polynomial(cx, x, [0, *(1 / factorial(n) for n in range(1, terms))])
    return op.where(_is_small(cx, x, 1 / 8), series, op.subtract(op.exp(x), cx.cast(1)))


def _polynomial(cx: Context, x: Expr, coefficients: list[float]) -> Expr:
    """By Horner's rule; the first coefficient is that of 1."""
    total = cx.cast(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = op.multiply(total, x)
        total = op.add(total, cx.cast(coefficient)) if coefficient else total
    return total


def _is_small(cx: Context, x: Expr, bound: float) -> Expr:
    return op.less(op.abs(x), cx.cast(bound))


def _not(cx: Context, x: Expr) -> Expr:
    return op.logical_not(x) if dtype_of(x) == "bool" else op.bitwise_not(x)


def _logical_not(cx: Context, x: Expr) -> Expr:
    return op.logical_not(x) if dtype_of(x) == "bool" else op.equal(x, cx.cast(0, dtype_of(x)))


def _round(cx: Context, x: Expr, decimals: int = 0) -> Expr:
    if not _is_float(x):
        return x
    if not decimals:
        return op.round(x)
    factor = cx.cast(10.0 ** abs(decimals))
    before, after = (op.multiply, op.divide) if decimals > 0 else (op.divide, op.multiply)
    return after(op.round(before(x, factor)), factor)


def _sign(cx: Context, x: Expr) -> Expr:
    if dtype_of(x) == "bool":
        return x
    zero = cx.cast(0)
    return op.subtract(*(op.astype(test(x, zero), dtype_of(x)) for test in (op.greater, op.less)))


def signbit(cx: Context, x: Expr) -> Expr:
    """Zeros have a sign, too: that of their reciprocal."""
    zero = cx.cast(0, dtype_of(x))
    if not _is_float(x):
        return op.less(x, zero)
    reciprocal = op.divide(cx.cast(1, dtype_of(x)), x)
    return op.where(op.equal(x, zero), op.less(reciprocal, zero), op.less(x, zero))


def _relu(cx: Context, x: Expr) -> Expr:
    return op.nn.relu(x) if _is_float(x) else op.maximum(x, cx.cast(0))


def _clip(cx: Context, x: Value, low: Value, high: Value) -> Expr:
    """Bounds are numbers, tensors or None; where they cross, the upper one holds."""
    x = cx.cast(x)
    if _is_float(x) and all(bound is None or isinstance(bound, (int, float)) for bound in (low, high)):
        first, last = -inf if low is None else low, inf if high is None else high
        return op.clip(x, min(first, last), last)
    x = x if low is None else op.maximum(x, cx.cast(low))
    return x if high is None else op.minimum(x, cx.cast(high))


def _unit(cx: Context, x: Expr) -> Expr:
    """clip(x / 6 + 1 / 2, 0, 1)."""
    return op.clip(op.add(op.multiply(x, cx.cast(1 / 6)), cx.cast(0.5)), 0.0, 1.0)


def _gelu(cx: Context, x: Expr, approximate: str) -> Expr:
    return op.nn.gelu_tanh(x) if approximate == "tanh" else op.nn.gelu(x)


def _elu(cx: Context, x: Expr, alpha: float, scale: float, input_scale: float) -> Expr:
    """scale x for x > 0, else scale alpha (exp(input_scale x) - 1)."""
    inner = x if input_scale == 1 else cx.emit(op.multiply(x, cx.cast(input_scale)))
    below = op.multiply(_expm1(cx, inner), cx.cast(scale * alpha))
    above = x if scale == 1 else op.multiply(x, cx.cast(scale))
    return op.where(op.greater(x, cx.cast(0)), above, below)


def _softplus(cx: Context, x: Expr, beta: float, threshold: float) -> Expr:
    """log(1 + exp(beta x)) / beta, or x where beta x is above the threshold."""
    scaled = op.multiply(x, cx.cast(beta))
    soft = _log_of_one_and_exp(cx, scaled)
    return op.where(op.greater(scaled, cx.cast(threshold)), x, op.multiply(soft, cx.cast(1 / beta)))


def _log_of_one_and_exp(cx: Context, x: Expr) -> Expr:
    """log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)), which does not overflow."""
    rest = _log1p(cx, cx.emit(op.exp(op.negative(op.abs(x)))))
    return op.add(op.maximum(x, cx.cast(0)), rest)


def _log_sigmoid(cx: Context, x: Expr) -> Expr:
    return op.negative(_log_of_one_and_exp(cx, cx.emit(op.negative(x))))


def _prelu(cx: Context, x: Expr, slope: Expr) -> Expr:
    """A slope for each channel, which is axis 1, or one for all; relax's PReLU wants a slope for each."""
    rank, sizes = rank_of(x), shape_of(slope)
    width = sizes[0] if sizes else 1
    shaped = op.reshape(slope, [width if axis == 1 else 1 for axis in range(max(rank, 1))] if rank else [])
    if len(sizes) > 1:  # _prelu_kernel has a slope that broadcasts already
        shaped = slope
    return op.where(op.greater(x, cx.cast(0)), x, op.multiply(x, shaped))


def _erfc(cx: Context, x: Expr) -> Expr:
    return op.subtract(cx.cast(1), op.erf(cx.cast(x)))


def _degrees(factor: float) -> Converter:
    return lambda cx, x: op.multiply(cx.cast(x), cx.cast(factor))


def _refusal(what: str) -> Converter:
    def convert(*_: Value) -> Expr:
        raise CallRefused(what)

    return convert


_RANDOM = (
    "rand.default", "rand_like.default", "randn.default", "randn_like.default", "randint.default", "randint.low",
    "randint_like.default", "randperm.default", "bernoulli.default", "bernoulli.p", "multinomial.default",
    "normal_functional.default", "normal.Tensor_Tensor", "uniform.default", "exponential.default", "poisson.default",
    "native_dropout.default", "rrelu_with_noise.default",
)  # fmt: skip

CONVERTERS: Converters = {
    **{
        f"{name}.default": _of(getattr(op, name))
        for name in (
            "acos",
            "acosh",
            "asin",
            "asinh",
            "atan",
            "atanh",
            "cos",
            "cosh",
            "erf",
            "exp",
            "log",
            "rsqrt",
            "sigmoid",
            "sin",
            "sinh",
            "sqrt",
            "tan",
            "tanh",
            "abs",
        )
    },
    **{f"{name}.default": _of_floats(getattr(op, name)) for name in ("ceil", "floor", "trunc")},
    **{name: _refusal("its results are random") for name in _RANDOM},
    "neg.default": _of(op.negative),
    "sgn.default": _sign,
    "sign.default": _sign,
    "signbit.default": signbit,
    "positive.default": _of(lambda x: x),
    "reciprocal.default": lambda cx, x: op.divide(cx.cast(1), cx.cast(x)),
    "log2.default": _scaled_log(2),
    "log10.default": _scaled_log(10),
    "log1p.default": _log1p,
    "expm1.default": _expm1,
    "exp2.default": _exp2,
    "erfc.default": _erfc,
    "rad2deg.default": _degrees(180 / pi),
    "deg2rad.default": _degrees(pi / 180),
    "isnan.default": _question(op.isnan, False),
    "isinf.default": _question(op.isinf, False),
    "isfinite.default": _question(op.isfinite, True),
    "bitwise_not.default": _not,
    "logical_not.default": _logical_not,
    "round.default": _round,
    "round.decimals": _round,
    "relu.default": _relu,
    "relu6.default": lambda cx, x: op.clip(x, 0.0, 6.0),
    "hardtanh.default": _clip,
    "clamp.default": _clip,
    "clamp.Tensor": _clip,
    "clamp_min.default": lambda cx, x, low: _clip(cx, x, low, None),
    "clamp_min.Tensor": lambda cx, x, low: _clip(cx, x, low, None),
    "clamp_max.default": lambda cx, x, high: _clip(cx, x, None, high),
    "clamp_max.Tensor": lambda cx, x, high: _clip(cx, x, None, high),
    "hardsigmoid.default": _unit,
    "hardswish.default": lambda cx, x: op.multiply(x, _unit(cx, x)),
    "gelu.default": _gelu,
    "silu.default": lambda cx, x: op.nn.silu(x),
    "elu.default": _elu,
    "softplus.default": _softplus,
    "log_sigmoid.default": _log_sigmoid,
    "leaky_relu.default": lambda cx, x, slope: op.nn.leakyrelu(x, slope),
    "prelu.default": _prelu,
    "_prelu_kernel.default": _prelu,
}
