"""Element-wise functions as eltwise algorithms of oneDNN, alone or as post-operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tvm import relax

from ..native.program import NativeStep, PostOp, ScratchTensor, View
from ..native.values import attrs_of, dtype_of, op_name, scalar_of, static_shape, view_of
from .limits import why_not_operand

Functions = tuple[PostOp, ...]
"""Eltwise post-operations, the first applied first."""

_LEAST_NORMAL = 2.0**-126
SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


def apply(algorithm: str, alpha: float = 0.0, beta: float = 0.0) -> PostOp:
    return PostOp("eltwise", algorithm, alpha, beta)


def linear(scale: float, shift: float = 0.0) -> PostOp:
    """x -> scale * x + shift"""
    return apply("linear", scale, shift)


def reciprocal(scale: float = 1.0) -> PostOp:
    """x -> scale / x"""
    return apply("pow", scale, -1.0)


def functions_of(call: relax.Call, operand: int = 0) -> Functions | str:
    """A call as a chain of functions of ``args[operand]`` alone, or the reason why it is not one."""
    name = op_name(call)
    if name in _PLAIN:
        return (_PLAIN[name],)
    if name in _WITH_ATTRS:
        return _WITH_ATTRS[name](call)
    if name in _WITH_SCALAR:
        number = scalar_of(call.args[1 - operand])
        if number is None or dtype_of(call.args[operand]) != dtype_of(call):
            return "the other operand is not a scalar constant"
        if len(static_shape(call)) != len(static_shape(call.args[operand])):
            return "the scalar constant adds dimensions"
        return _WITH_SCALAR[name](number, operand) if math.isfinite(number) else f"{number} is not finite"
    return f"{name} is not element-wise to oneDNN"


def step(call: relax.Call) -> NativeStep | str:
    """Element-wise call -> one eltwise primitive for each function of its chain, over flat memory."""
    operand = 1 if scalar_of(call.args[0]) is not None else 0
    reason = why_not_operand("eltwise", "operand", call.args[operand])
    functions = reason or functions_of(call, operand)
    if isinstance(functions, str):
        return functions
    flat = (math.prod(static_shape(call)),)
    source, before = view_of(call.args[operand], flat), ()
    for function in functions[:-1]:
        target = view_of(ScratchTensor(flat, source.dtype), flat)
        before += (_eltwise(function, source, target),)
        source = target
    made = _eltwise(functions[-1], source, view_of(call, flat))
    return NativeStep(made.primitive, made.args, made.attrs, before=before)


def _eltwise(function: PostOp, source: View, target: View) -> NativeStep:
    attrs = (("algorithm", function.algorithm), ("alpha", function.alpha), ("beta", function.beta))
    return NativeStep("eltwise", (("src", source), ("dst", target)), attrs)


def _clip(call: relax.Call) -> Functions | str:
    low, high = scalar_of(call.args[1]), scalar_of(call.args[2])
    if low == 0 and high == math.inf:
        return (apply("relu"),)
    if low is None or high is None or not math.isfinite(low) or not math.isfinite(high):
        return "a bound of the clip is not a finite constant"
    return (apply("clip_v2", low, high),)


def _softplus(call: relax.Call) -> Functions | str:
    if float(attrs_of(call).threshold) < 15:
        return "softplus with a threshold below 15 is not smooth, but oneDNN's softplus is"
    return (apply("soft_relu", float(attrs_of(call).beta)),)


def _subtract(number: float, operand: int) -> Functions:
    return (linear(1.0, -number),) if operand == 0 else (linear(-1.0, number),)


def _divide(number: float, operand: int) -> Functions | str:
    if operand == 1:
        return (reciprocal(number),)
    if not _LEAST_NORMAL <= abs(number) <= 1 / _LEAST_NORMAL:
        return f"the reciprocal of {number} is not a normal number"
    return (linear(1.0 / number),)


def _power(number: float, operand: int) -> Functions | str:
    if operand:
        return "the exponent is not constant"
    if number == 0.5:
        return "oneDNN takes the root, which is another number than the power at -0 and -infinity"
    return (apply("pow", 1.0, number),)


def _maximum(number: float, _operand: int) -> Functions | str:
    return (apply("relu"),) if number == 0 else "only a maximum with 0 is element-wise to oneDNN"


_PLAIN: Mapping[str, PostOp] = {
    "relax.nn.relu": apply("relu"),
    "relax.nn.gelu": apply("gelu_erf"),
    "relax.nn.gelu_tanh": apply("gelu_tanh"),
    "relax.nn.silu": apply("swish", 1.0),
    "relax.tanh": apply("tanh"),
    "relax.sigmoid": apply("logistic"),
    "relax.exp": apply("exp"),
    "relax.log": apply("log"),
    "relax.sqrt": apply("sqrt"),
    "relax.abs": apply("abs"),
    "relax.square": apply("square"),
    "relax.round": apply("round"),
    "relax.negative": linear(-1.0),
}

_WITH_ATTRS: Mapping[str, Callable[[relax.Call], Functions | str]] = {
    "relax.nn.leakyrelu": lambda call: (apply("relu", float(attrs_of(call).alpha)),),
    "relax.nn.softplus": _softplus,
    "relax.nn.selu": lambda _call: (apply("elu", SELU_ALPHA), linear(SELU_SCALE)),
    "relax.rsqrt": lambda _call: (apply("sqrt"), reciprocal()),
    "relax.clip": _clip,
}

_WITH_SCALAR: Mapping[str, Callable[[float, int], Functions | str]] = {
    "relax.add": lambda number, _operand: (linear(1.0, number),),
    "relax.subtract": _subtract,
    "relax.multiply": lambda number, _operand: (linear(number),),
    "relax.divide": _divide,
    "relax.power": _power,
    "relax.maximum": _maximum,
}

ENTRIES = dict.fromkeys((*_PLAIN, *_WITH_ATTRS, "relax.power"), step)
