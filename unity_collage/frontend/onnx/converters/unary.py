"""Functions of one tensor, element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax, tirx

from ..node import Converted, OnnxNode
from .pointwise import Element, dtype_of, number, pointwise, select, widened
from .precise import dtype_of as type_of
from .precise import is_narrow


def _plain(make: Callable[[relax.Expr], relax.Expr]) -> Callable[[OnnxNode], Converted]:
    return lambda node: make(node[0])


def _in_float32(make: Callable[[relax.Expr], relax.Expr]) -> Callable[[OnnxNode], Converted]:
    """Functions that TVM's code generator does not have for 16-bit floats."""

    def convert(node: OnnxNode) -> Converted:
        if not is_narrow(node.dtype()):
            return make(node[0])
        return relax.op.astype(node.emit(make(node.cast(node[0], "float32"))), node.dtype())

    return convert


def _kernel(name: str, function: Callable[[Element], Element]) -> Callable[[OnnxNode], Converted]:
    return lambda node: pointwise(node, name, widened(function), node[0])


def _atanh(x: Element) -> Element:
    """1/2 log((1 + x) / (1 - x)), precise near 0."""
    half, zero = number(0.5, dtype_of(x)), number(0, dtype_of(x))
    return half * (tirx.log1p(x) - tirx.log1p(zero - x))


def _sign(x: Element) -> Element:
    """1, -1, or ``x`` itself, which is zero or NaN."""
    zero = number(0, dtype_of(x))
    below = x if dtype_of(x).startswith("uint") else select(x < zero, -1, x)
    return select(x > zero, 1, below)


def _negative(node: OnnxNode) -> Converted:
    return relax.op.negative(node[0])


def _reciprocal(node: OnnxNode) -> Converted:
    return relax.op.divide(node.constant(1, node.dtype()), node[0])


def _is_nan(node: OnnxNode) -> Converted:
    return relax.op.isnan(_finite_type(node))


def _is_inf(node: OnnxNode) -> Converted:
    """Infinities of the requested signs."""
    x = _finite_type(node)
    if node.attribute("detect_negative", 1) and node.attribute("detect_positive", 1):
        return relax.op.isinf(x)
    dtype = type_of(x)
    if node.attribute("detect_positive", 1):
        return relax.op.equal(x, node.constant(float("inf"), dtype))
    if node.attribute("detect_negative", 1):
        return relax.op.equal(x, node.constant(float("-inf"), dtype))
    return pointwise(node, "never", lambda _: number(False, "bool"), x)


def _finite_type(node: OnnxNode) -> relax.Expr:
    """The operand in a type for which Relax has tests of NaN and infinity."""
    return node.cast(node[0], "float32") if node.dtype() == "bfloat16" else node[0]


_PLAIN: Mapping[str, Any] = {
    "Abs": relax.op.abs,
    "BitwiseNot": relax.op.bitwise_not,
    "Ceil": relax.op.ceil,
    "Cos": relax.op.cos,
    "Erf": relax.op.erf,
    "Exp": relax.op.exp,
    "Floor": relax.op.floor,
    "Log": relax.op.log,
    "Not": relax.op.logical_not,
    "Round": relax.op.round,
    "Sigmoid": relax.op.sigmoid,
    "Sin": relax.op.sin,
    "Sqrt": relax.op.sqrt,
    "Tan": relax.op.tan,
    "Tanh": relax.op.tanh,
}

_NOT_OF_HALVES: Mapping[str, Any] = {
    "Acos": relax.op.acos,
    "Acosh": relax.op.acosh,
    "Asin": relax.op.asin,
    "Asinh": relax.op.asinh,
    "Atan": relax.op.atan,
    "Cosh": relax.op.cosh,
    "Sinh": relax.op.sinh,
}

CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    **{op: _plain(make) for op, make in _PLAIN.items()},
    **{op: _in_float32(make) for op, make in _NOT_OF_HALVES.items()},
    "Atanh": _kernel("atanh", _atanh),
    "IsInf": _is_inf,
    "IsNaN": _is_nan,
    "Neg": _negative,
    "Reciprocal": _reciprocal,
    "Sign": _kernel("sign", _sign),
}
