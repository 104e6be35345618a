"""Operators of com.microsoft on quantised tensors: dequantised, computed in float32, and quantised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tvm import relax

from ..broadcasting import broadcast
from ..node import Converted, OnnxNode
from ..values import Value
from . import pooling, softmax
from .quantization import dequantized, integers, quantized
from .quantized import parameter


def _real(node: OnnxNode, position: int) -> relax.Var:
    """An operand that is followed by its scale and zero point, in float32."""
    zero = parameter(node, position + 2) if node.has(position + 2) else None
    x = integers(node, position)
    return node.emit(dequantized(node, x, parameter(node, position + 1), zero))


def _result(node: OnnxNode, real: relax.Expr, scale: int, dtype: str | None = None) -> Converted:
    """``real`` as a result; its scale and zero point are operands."""
    zero = parameter(node, scale + 1) if node.has(scale + 1) else None
    kind = node.dtype(scale + 1) if zero is not None else dtype or node.dtype(0)
    return quantized(node, node.emit(real), parameter(node, scale), zero, kind)


def _binary(make: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Callable[[OnnxNode], Converted]:
    """(a, its scale and zero point, b, its scale and zero point, the result's scale and zero point)."""
    return lambda node: _result(node, make(*broadcast(node, _real(node, 0), _real(node, 3))), 6)


def _unary(make: Callable[[OnnxNode, relax.Var], relax.Expr]) -> Callable[[OnnxNode], Converted]:
    """(x, its scale and zero point, the result's scale and zero point)."""
    return lambda node: _result(node, make(node, _real(node, 0)), 3)


def _leaky_relu(node: OnnxNode, x: relax.Var) -> relax.Expr:
    return relax.op.nn.leakyrelu(x, float(node.attribute("alpha", 0.01)))


def _by_standard(
    converter: Callable[[OnnxNode], Converted], version: int
) -> Callable[[OnnxNode, relax.Var], relax.Expr]:
    """As the standard's operator of the same attributes computes it."""

    def make(node: OnnxNode, x: relax.Var) -> relax.Expr:
        found = converter(replace(node, inputs=[Value("float32", expr=x)], version=version))
        assert isinstance(found, relax.Expr)
        return found

    return make


def _channels_first(
    make: Callable[[OnnxNode, relax.Var], relax.Expr],
) -> Callable[[OnnxNode, relax.Var], relax.Expr]:
    """``make`` of an image with channels as the second axis, if they are given as the last."""

    def moved(node: OnnxNode, x: relax.Var) -> relax.Expr:
        if not node.attribute("channels_last", 0):
            return make(node, x)
        rank = node.rank()
        image = node.emit(relax.op.permute_dims(x, [0, rank - 1, *range(1, rank - 1)]))
        return relax.op.permute_dims(node.emit(make(node, image)), [0, *range(2, rank), 1])

    return moved


def _softmax(node: OnnxNode, x: relax.Var) -> relax.Expr:
    """The attribute ``opset`` is the version of the standard."""
    return _by_standard(softmax.CONVERTERS["Softmax"], node.required("opset"))(node, x)


def _concat(node: OnnxNode) -> Converted:
    """(the result's scale and zero point, then each tensor with its scale and zero point)."""
    parts = [_real(node, position) for position in range(2, len(node.inputs), 3)]
    joined = relax.op.concat(parts, node.axis(node.required("axis"), node.rank(2)))
    return _result(node, joined, 0, node.dtype(2))


_AVERAGE_POOL = _by_standard(pooling.CONVERTERS["AveragePool"], 11)
_GLOBAL_POOL = _by_standard(pooling.CONVERTERS["GlobalAveragePool"], 1)

MICROSOFT: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "QLinearAdd": _binary(relax.op.add),
    "QLinearAveragePool": _unary(_channels_first(_AVERAGE_POOL)),
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _unary(_channels_first(_GLOBAL_POOL)),
    "QLinearLeakyRelu": _unary(_leaky_relu),
    "QLinearMul": _binary(relax.op.multiply),
    "QLinearSigmoid": _unary(lambda _, x: relax.op.sigmoid(x)),
    "QLinearSoftmax": _unary(_softmax),
}
