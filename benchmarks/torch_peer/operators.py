"""ONNX operators, versions 13 to 18, by the torch functions that a user would write for them.

Each gets the :class:`.Call` and then the operands. What is known before a run is read from the call, so that a
function of torch gets Python's numbers where it can.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce

import torch  # pyright: ignore[reportMissingImports]
from torch.nn import functional as F  # pyright: ignore[reportMissingImports]

from . import recurrent, shapes, windows
from .call import Call, Value

Operator = Callable[..., Value]
"""From a call and its operands to the value, or a tuple of values."""


def _elementwise(function: Callable[[Value], Value]) -> Operator:
    return lambda _call, x: function(x)


def _arithmetic(function: Callable[[Value, Value], Value]) -> Operator:
    return lambda call, left, right: function(_number_or(call, 0, left), _number_or(call, 1, right))


def _number_or(call: Call, index: int, value: Value) -> Value:
    """A Python number for an operand of one element that makes the result no larger, beside an unknown one."""
    other = 1 - index
    is_number = (
        call.known[index] and not call.known[other] and call.shape(index) == [1] * len(call.shape(index))
    )
    return call.number(index) if is_number and len(call.shape(index)) <= len(call.shape(other)) else value


def _quotient(call: Call, left: Value, right: Value) -> Value:
    if call.is_float():
        return _arithmetic(operator.truediv)(call, left, right)
    return torch.div(left, right, rounding_mode="trunc")


def _clip(call: Call, x: Value, *_bounds: Value) -> Value:
    low, high = call.number(1), call.number(2)
    return x if low is None and high is None else torch.clamp(x, low, high)


def _hard_sigmoid(call: Call, x: Value) -> Value:
    alpha, beta = call.attributes.get("alpha", 0.2), call.attributes.get("beta", 0.5)
    if abs(alpha - 1 / 6) < _ROUNDING and beta == 0.5:
        return F.hardsigmoid(x)
    return torch.clamp(alpha * x + beta, 0.0, 1.0)


_ROUNDING = 1e-7
"""Attributes are float32."""


def _softmax(call: Call, x: Value) -> Value:
    return torch.softmax(x, call.axis(-1))


def _mean(call: Call, x: Value, _axes: Value = None) -> Value:
    axes = call.ints(1, "axes") or []
    if not axes and call.attributes.get("noop_with_empty_axes", 0):
        return x
    return torch.mean(x, axes or list(range(len(call.shape()))), bool(call.attributes.get("keepdims", 1)))


def _layer_norm(call: Call, x: Value, scale: Value, bias: Value = None) -> Value:
    extents = call.shape()[call.axis(-1) :]
    return F.layer_norm(x, extents, scale, bias, call.attributes.get("epsilon", 1e-5))


def _batch_norm(call: Call, x: Value, scale: Value, bias: Value, mean: Value, variance: Value) -> Value:
    if call.attributes.get("training_mode", 0):
        raise call.lacks("with training_mode")
    return F.batch_norm(x, mean, variance, scale, bias, eps=call.attributes.get("epsilon", 1e-5))


def _local_response_norm(call: Call, x: Value) -> Value:
    size = call.attributes["size"]
    if size % 2 == 0:
        raise call.lacks("over an even number of channels, which torch centres otherwise,")
    alpha, beta = call.attributes.get("alpha", 1e-4), call.attributes.get("beta", 0.75)
    return F.local_response_norm(x, size, alpha, beta, call.attributes.get("bias", 1.0))


def _gemm(call: Call, left: Value, right: Value, bias: Value = None) -> Value:
    alpha, beta = call.attributes.get("alpha", 1.0), call.attributes.get("beta", 1.0)
    left = left.t() if call.attributes.get("transA", 0) else left
    right = right.t() if call.attributes.get("transB", 0) else right
    if bias is not None:
        return torch.addmm(bias, left, right, beta=beta, alpha=alpha)
    product = torch.mm(left, right)
    return product if alpha == 1.0 else alpha * product


OPERATORS: dict[str, Operator] = {
    "Abs": _elementwise(torch.abs),
    "Add": _arithmetic(operator.add),
    "AveragePool": windows.average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": shapes.cast,
    "Clip": _clip,
    "Concat": shapes.concat,
    "Constant": shapes.constant,
    "ConstantOfShape": shapes.constant_of_shape,
    "Conv": windows.convolution,
    "ConvTranspose": windows.transposed_convolution,
    "Cos": _elementwise(torch.cos),
    "Div": _quotient,
    "Dropout": lambda _call, x, *_operands: x,
    "Equal": lambda _call, left, right: torch.eq(left, right),
    "Erf": _elementwise(torch.erf),
    "Expand": shapes.expand,
    "Flatten": shapes.flatten,
    "Gather": shapes.gather,
    "GatherElements": lambda call, x, indices: torch.gather(x, call.axis(0), indices),
    "Gemm": _gemm,
    "GlobalAveragePool": windows.global_average,
    "GlobalMaxPool": windows.global_maximum,
    "Greater": lambda _call, left, right: torch.gt(left, right),
    "GreaterOrEqual": lambda _call, left, right: torch.ge(left, right),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _elementwise(F.hardswish),
    "Identity": _elementwise(lambda x: x),
    "LRN": _local_response_norm,
    "LSTM": recurrent.lstm,
    "LayerNormalization": _layer_norm,
    "Less": lambda _call, left, right: torch.lt(left, right),
    "LessOrEqual": lambda _call, left, right: torch.le(left, right),
    "Log": _elementwise(torch.log),
    "MatMul": lambda _call, left, right: torch.matmul(left, right),
    "MaxPool": windows.max_pool,
    "Min": lambda _call, *terms: reduce(torch.minimum, terms),
    "Mul": _arithmetic(operator.mul),
    "Neg": _elementwise(torch.neg),
    "Pad": shapes.pad,
    "Pow": _arithmetic(operator.pow),
    "Range": lambda call, *_bounds: torch.arange(*(call.number(index) for index in range(3))),
    "Reciprocal": _elementwise(torch.reciprocal),
    "ReduceMean": _mean,
    "Relu": _elementwise(F.relu),
    "Reshape": shapes.reshape,
    "Resize": windows.resize,
    "Shape": shapes.shape,
    "Sigmoid": _elementwise(torch.sigmoid),
    "Sin": _elementwise(torch.sin),
    "Slice": shapes.slice_,
    "Softmax": _softmax,
    "Split": shapes.split,
    "Sqrt": _elementwise(torch.sqrt),
    "Squeeze": shapes.squeeze,
    "Sub": _arithmetic(operator.sub),
    "Sum": lambda _call, *terms: reduce(torch.add, terms),
    "Tanh": _elementwise(torch.tanh),
    "Transpose": shapes.transpose,
    "Unsqueeze": shapes.unsqueeze,
    "Where": lambda _call, condition, left, right: torch.where(condition, left, right),
}
