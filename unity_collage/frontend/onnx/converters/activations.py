"""Activation functions. Those that Relax has are single operators; the others are kernels of one loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isclose

from tvm import relax, tirx

from ..broadcasting import broadcast
from ..node import Converted, OnnxNode
from .pointwise import Element, dtype_of, number, pointwise, select, widened
from .precise import dtype_of as type_of
from .precise import narrowed
from .precise import widened as wide

_SELU = (1.67326319217681884765625, 1.05070102214813232421875)
"""The standard's alpha and gamma of Selu, which are those of Relax's operator."""


def _relu(node: OnnxNode) -> Converted:
    return relax.op.nn.relu(node[0])


def _leaky_relu(node: OnnxNode) -> Converted:
    return relax.op.nn.leakyrelu(node[0], float(node.attribute("alpha", 0.01)))


def _prelu(node: OnnxNode) -> Converted:
    """One known slope is a leaky ReLU; slopes along one axis are Relax's operator."""
    slopes, axis = node.numbers(1), _only_axis(node)
    if "float" not in node.dtype() or node.rank(1) > node.rank(0):
        return pointwise(node, "prelu", _below_zero, node[0], node[1])
    if slopes is not None and slopes.size and (slopes == slopes.flat[0]).all():
        return relax.op.nn.leakyrelu(node[0], float(slopes.flat[0]))
    if axis is not None:
        return relax.op.nn.prelu(node[0], node.reshaped(node[1], [node.shape()[axis]]), axis)
    return pointwise(node, "prelu", _below_zero, node[0], node[1])


def _only_axis(node: OnnxNode) -> int | None:
    """The axis of the tensor along which the slopes differ, if it is one; they have its size there."""
    shape, slopes = node.shape(0), node.shape(1)
    if len(slopes) > len(shape):
        return None
    slopes = [1] * (len(shape) - len(slopes)) + slopes
    axes = [n for n, size in enumerate(slopes) if not (isinstance(size, int) and size == 1)]
    if len(axes) != 1 or not isinstance(slopes[axes[0]], int) or slopes[axes[0]] != shape[axes[0]]:
        return None
    return axes[0]


def _below_zero(x: Element, slope: Element) -> Element:
    return select(x < number(0, dtype_of(x)), x * slope, x)


def _elu(node: OnnxNode) -> Converted:
    """x above zero, else alpha (exp(x) - 1)."""
    return _function(node, "elu", lambda x, alpha: select(_above(x), x, alpha * _exp_minus_1(x)), alpha=1.0)


def _celu(node: OnnxNode) -> Converted:
    """x above zero, else alpha (exp(x / alpha) - 1)."""
    return _function(
        node, "celu", lambda x, alpha: select(_above(x), x, alpha * _exp_minus_1(x / alpha)), alpha=1.0
    )


def _selu(node: OnnxNode) -> Converted:
    """gamma x above zero, else gamma alpha (exp(x) - 1)."""
    given = (node.attribute("alpha", _SELU[0]), node.attribute("gamma", _SELU[1]))
    if all(isclose(a, b, rel_tol=1e-6) for a, b in zip(given, _SELU, strict=True)):
        return relax.op.nn.selu(node[0])
    return _function(
        node,
        "selu",
        lambda x, alpha, gamma: gamma * select(_above(x), x, alpha * _exp_minus_1(x)),
        alpha=_SELU[0],
        gamma=_SELU[1],
    )


def _above(x: Element) -> Element:
    return x > number(0, dtype_of(x))


def _exp_minus_1(x: Element) -> Element:
    return tirx.exp(x) - number(1, dtype_of(x))


def _function(node: OnnxNode, name: str, function: Callable[..., Element], **defaults: float) -> relax.Expr:
    """A kernel of the operand and of attributes; their defaults are given."""
    values = [float(node.attribute(key, default)) for key, default in defaults.items()]
    wide_function = widened(lambda x: function(x, *(number(value, dtype_of(x)) for value in values)))
    return pointwise(node, name, wide_function, node[0])


def _thresholded_relu(node: OnnxNode) -> Converted:
    return _function(
        node, "thresholded_relu", lambda x, alpha: select(x > alpha, x, number(0, dtype_of(x))), alpha=1.0
    )


def _shrink(node: OnnxNode) -> Converted:
    """x moved by ``bias`` towards zero where it is beyond ``lambd``, else 0; integers are computed in float64."""
    low, bias = float(node.attribute("lambd", 0.5)), float(node.attribute("bias", 0.0))

    def shrunk(x: Element) -> Element:
        dtype = dtype_of(x)
        x = x if "float" in dtype else x.astype("float64")
        kind = dtype_of(x)
        moved = select(x > number(low, kind), x - number(bias, kind), number(0, kind))
        moved = select(x < number(-low, kind), x + number(bias, kind), moved)
        return moved.astype(dtype)

    return pointwise(node, "shrink", widened(shrunk), node[0])


def _hard_sigmoid(node: OnnxNode) -> Converted:
    return _unit_clip(node, node[0], node.attribute("alpha", 0.2), node.attribute("beta", 0.5))


def _hard_swish(node: OnnxNode) -> Converted:
    x = node[0]
    return relax.op.multiply(x, node.emit(_unit_clip(node, x, 1 / 6, 0.5)))


def _unit_clip(node: OnnxNode, x: relax.Expr, factor: float, summand: float) -> relax.Expr:
    """clip(x * factor + summand, 0, 1), the form that fuses as a hard sigmoid."""
    dtype = node.dtype()
    scaled = node.emit(relax.op.multiply(x, node.constant(factor, dtype)))
    return relax.op.clip(node.emit(relax.op.add(scaled, node.constant(summand, dtype))), 0.0, 1.0)


def _softplus(node: OnnxNode) -> Converted:
    return pointwise(node, "softplus", widened(softplus), node[0])


def softplus(x: Element) -> Element:
    """log(1 + exp(x)) as max(x, 0) + log(1 + exp(-|x|)), which neither overflows nor cancels."""
    zero = number(0, dtype_of(x))
    small = tirx.exp(zero - tirx.abs(x))
    return select(x < zero, 0, x) + (tirx.log1p(small) if dtype_of(x) == "float64" else _log_1_plus(small))


def _log_1_plus(u: Element) -> Element:
    """log(1 + u) for u from 0 to 1 as 2 atanh(s), s = u / (2 + u), by its series up to s^13.

    The rest is below the precision of float32. Vectorised code has no log1p.
    """
    s = u / (number(2, dtype_of(u)) + u)
    square = s * s
    series: Element = number(1 / 13, dtype_of(u))
    for power in (11, 9, 7, 5, 3, 1):
        series = series * square + number(1 / power, dtype_of(u))
    return number(2, dtype_of(u)) * s * series


def _softsign(node: OnnxNode) -> Converted:
    """x / (1 + |x|)."""
    bottom = node.emit(relax.op.add(node.emit(relax.op.abs(node[0])), node.constant(1, node.dtype())))
    return relax.op.divide(node[0], bottom)


def _mish(node: OnnxNode) -> Converted:
    return pointwise(node, "mish", widened(mish), node[0])


def mish(x: Element) -> Element:
    """x tanh(softplus(x)). tanh(log(1 + e^x)) is a fraction of u = e^-|x|, so there is one exponential."""
    one, two, zero = (number(value, dtype_of(x)) for value in (1, 2, 0))
    u = tirx.exp(zero - tirx.abs(x))
    below = u * (u + two)
    above = one + two * u
    top = select(x < zero, below, above)
    return x * (top / select(x < zero, below + two, above + two * u * u))


def _swish(node: OnnxNode) -> Converted:
    return swish(node, node[0], node.attribute("alpha", 1.0))


def swish(node: OnnxNode, x: relax.Expr, alpha: float) -> relax.Expr:
    """x sigmoid(alpha x)."""
    if alpha == 1.0:
        return relax.op.nn.silu(x)
    scaled = node.emit(relax.op.multiply(x, node.constant(alpha, type_of(x))))
    return relax.op.multiply(x, node.emit(relax.op.sigmoid(scaled)))


def _swiglu(node: OnnxNode) -> Converted:
    """The Swish of the first operand times the second."""
    gate, factor = wide(node, node[0]), wide(node, node[1])
    made = node.emit(swish(node, gate, node.attribute("alpha", 1.0)))
    return narrowed(node, relax.op.multiply(made, factor), node.dtype())


def _gelu(node: OnnxNode) -> Converted:
    kind = node.attribute("approximate", "none")
    if kind not in _GELUS:
        node.refuse(f"GELU has no approximation {kind!r}; there are 'none' and 'tanh'")
    return _GELUS[kind](node[0])


_GELUS = {"none": relax.op.nn.gelu, "tanh": relax.op.nn.gelu_tanh}


def _biased(make: Callable[[relax.Expr], relax.Expr]) -> Callable[[OnnxNode], Converted]:
    """A function of the sum of a tensor and a bias, which may be missing."""

    def convert(node: OnnxNode) -> Converted:
        return make(node.emit(relax.op.add(*broadcast(node, node[0], node[1]))) if node.has(1) else node[0])

    return convert


def _quick_gelu(node: OnnxNode) -> Converted:
    return swish(node, node[0], node.attribute("alpha", 1.702))


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "Celu": _celu,
    "Elu": _elu,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "LeakyRelu": _leaky_relu,
    "Mish": _mish,
    "PRelu": _prelu,
    "Relu": _relu,
    "Selu": _selu,
    "Shrink": _shrink,
    "Softplus": _softplus,
    "Softsign": _softsign,
    "SwiGLU": _swiglu,
    "Swish": _swish,
    "ThresholdedRelu": _thresholded_relu,
}

MICROSOFT: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "BiasGelu": _biased(relax.op.nn.gelu),
    "FastGelu": _biased(relax.op.nn.gelu_tanh),
    "Gelu": lambda node: relax.op.nn.gelu(node[0]),
    "QuickGelu": _quick_gelu,
}
