"""Element-wise operators, broadcasting ones included."""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import relax

from ..graph.shapes import dtype_of
from .writer import NotExported, Writer, element_type, floats, number, rank_of

Handler = Callable[[Writer, relax.Call], object]

_SAME = {
    "abs": "Abs",
    "acos": "Acos",
    "acosh": "Acosh",
    "add": "Add",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "bitwise_and": "BitwiseAnd",
    "bitwise_not": "BitwiseNot",
    "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor",
    "ceil": "Ceil",
    "cos": "Cos",
    "cosh": "Cosh",
    "divide": "Div",
    "equal": "Equal",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "isnan": "IsNaN",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "log": "Log",
    "logical_and": "And",
    "logical_not": "Not",
    "logical_or": "Or",
    "logical_xor": "Xor",
    "maximum": "Max",
    "minimum": "Min",
    "multiply": "Mul",
    "negative": "Neg",
    "power": "Pow",
    "round": "Round",
    "sigmoid": "Sigmoid",
    "sign": "Sign",
    "sin": "Sin",
    "sinh": "Sinh",
    "sqrt": "Sqrt",
    "subtract": "Sub",
    "tan": "Tan",
    "tanh": "Tanh",
    "where": "Where",
    "nn.relu": "Relu",
}
"""Operators with a counterpart that takes the same operands and nothing else."""


def _same(op: str) -> Handler:
    return lambda writer, call: writer.node(op, *writer.operands(call))


def _of_floats(handler: Callable[[Writer, str, str], object]) -> Handler:
    """A handler of one tensor of floats: it gets the name and the element type."""
    return lambda writer, call: handler(writer, writer.operand(call.args[0]), floats(call.args[0]))


def _cast(writer: Writer, call: relax.Call) -> str:
    return writer.node("Cast", writer.operand(call.args[0]), to=element_type(dtype_of(call)))


def _clip(writer: Writer, call: relax.Call) -> str:
    dtype = floats(call.args[0])
    low, high = (writer.scalar(number(arg), dtype) for arg in call.args[1:])
    return writer.node("Clip", writer.operand(call.args[0]), low, high)


def _not_equal(writer: Writer, call: relax.Call) -> str:
    return writer.node("Not", writer.node("Equal", *writer.operands(call)))


def _mirrored(op: str) -> Handler:
    """A comparison as the opposite one of the operands in the other order: in OpenVINO NaN is greater than numbers."""
    return lambda writer, call: writer.node(op, *reversed(writer.operands(call)))


def _floor_divide(writer: Writer, call: relax.Call) -> str:
    floats(call.args[0])
    return writer.node("Floor", writer.node("Div", *writer.operands(call)))


def _quantize(writer: Writer, call: relax.Call) -> str:
    return _quantising(writer, call, "QuantizeLinear", dtype_of(call))


def _dequantize(writer: Writer, call: relax.Call) -> str:
    return _quantising(writer, call, "DequantizeLinear", dtype_of(call.args[0]))


def _quantising(writer: Writer, call: relax.Call, name: str, dtype: str) -> str:
    """ONNX takes a zero point of the quantised type only."""
    if dtype_of(call.args[2]) != dtype:
        raise NotExported(f"a zero point is {dtype_of(call.args[2])}, and the quantised values are {dtype}")
    axis = int(call.attrs.axis) if rank_of(call.args[1]) else 0
    return writer.node(name, *writer.operands(call), axis=axis)


def _rsqrt(writer: Writer, x: str, _dtype: str) -> str:
    return writer.node("Reciprocal", writer.node("Sqrt", x))


def _gelu(writer: Writer, x: str, dtype: str) -> str:
    inner = writer.node("Erf", writer.node("Mul", x, writer.scalar(math.sqrt(0.5), dtype)))
    doubled = writer.node("Mul", x, writer.node("Add", inner, writer.scalar(1.0, dtype)))
    return writer.node("Mul", doubled, writer.scalar(0.5, dtype))


def _gelu_tanh(writer: Writer, x: str, dtype: str) -> str:
    cubed = writer.node("Mul", writer.node("Mul", x, x), x)
    inner = writer.node("Add", x, writer.node("Mul", cubed, writer.scalar(0.044715, dtype)))
    turned = writer.node("Tanh", writer.node("Mul", inner, writer.scalar(math.sqrt(2 / math.pi), dtype)))
    doubled = writer.node("Mul", x, writer.node("Add", turned, writer.scalar(1.0, dtype)))
    return writer.node("Mul", doubled, writer.scalar(0.5, dtype))


def _leaky_relu(writer: Writer, call: relax.Call) -> str:
    return writer.node("LeakyRelu", writer.operand(call.args[0]), alpha=float(call.attrs.alpha))


_LEAST_THRESHOLD = {"float64": 30.0}
"""The threshold from which on the softplus of a type is nearly its operand; 15 for types that are not here."""


def _softplus(writer: Writer, call: relax.Call) -> str:
    """ONNX's softplus has no threshold above which it returns its operand."""
    if float(call.attrs.beta) != 1:
        raise NotExported("a softplus has another slope than 1")
    least = _LEAST_THRESHOLD.get(dtype_of(call), 15.0)
    if float(call.attrs.threshold) < least:
        raise NotExported(f"a softplus has a threshold below {least:g}, and ONNX's has none")
    return writer.node("Softplus", writer.operand(call.args[0]))


def _prelu(writer: Writer, call: relax.Call) -> str:
    rank = rank_of(call.args[0])
    along = [1] * rank
    along[int(call.attrs.axis)] = -1
    slope = writer.reshaped(writer.operand(call.args[1]), along)
    return writer.node("PRelu", writer.operand(call.args[0]), slope)


def _isinf(writer: Writer, x: str, dtype: str) -> str:
    if dtype not in ("float32", "float64"):
        raise NotExported(f"IsInf takes float32 and float64, not {dtype}")
    return writer.node("IsInf", x)


def _isfinite(writer: Writer, x: str, dtype: str) -> str:
    return writer.node("Not", writer.node("Or", writer.node("IsNaN", x), _isinf(writer, x, dtype)))


def _softmax(op: str) -> Handler:
    return lambda writer, call: writer.node(op, writer.operand(call.args[0]), axis=int(call.attrs.axis))


HANDLERS: dict[str, Handler] = {
    **{name: _same(op) for name, op in _SAME.items()},
    "astype": _cast,
    "clip": _clip,
    "floor_divide": _floor_divide,
    "greater": _mirrored("Less"),
    "greater_equal": _mirrored("LessOrEqual"),
    "isfinite": _of_floats(_isfinite),
    "isinf": _of_floats(_isinf),
    "not_equal": _not_equal,
    "quantize": _quantize,
    "dequantize": _dequantize,
    "rsqrt": _of_floats(_rsqrt),
    "square": _of_floats(lambda writer, x, _: writer.node("Mul", x, x)),
    "nn.gelu": _of_floats(_gelu),
    "nn.gelu_tanh": _of_floats(_gelu_tanh),
    "nn.leakyrelu": _leaky_relu,
    "nn.log_softmax": _softmax("LogSoftmax"),
    "nn.prelu": _prelu,
    "nn.selu": _of_floats(lambda writer, x, _: writer.node("Selu", x)),
    "nn.silu": _of_floats(lambda writer, x, _: writer.node("Mul", x, writer.node("Sigmoid", x))),
    "nn.softmax": _softmax("Softmax"),
    "nn.softplus": _softplus,
}
