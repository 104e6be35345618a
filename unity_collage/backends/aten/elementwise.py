"""Element-wise operators, activations among them, as calls of ATen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax

from ...graph.shapes import dtype_of
from ...legalization.division import is_safe_division
from .asked import AskedCall, NotAten, Operand, floats, is_float, number, operands_of, rank_of

Handler = Callable[[relax.Call], AskedCall]

_SAME = (
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_not",
    "bitwise_or", "bitwise_xor", "ceil", "cos", "cosh", "erf", "exp", "floor", "isfinite", "isinf", "isnan",
    "log", "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "round",
    "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
    "nn.relu", "nn.selu", "nn.silu",
)  # fmt: skip
"""Operators that ATen has under the same name."""
_RENAMED = {
    "divide": "div",
    "equal": "eq",
    "greater": "gt",
    "greater_equal": "ge",
    "left_shift": "bitwise_left_shift",
    "less": "lt",
    "less_equal": "le",
    "log_add_exp": "logaddexp",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "right_shift": "bitwise_right_shift",
    "subtract": "sub",
}
"""Operators that ATen has under another name."""
_DIVIDING = {"floor_divide": "floor_divide", "floor_mod": "remainder", "mod": "fmod"}
"""Operators that trap, or raise errors, for some integers."""


def named(packet: str, attributes: Mapping[str, str] | None = None, **constants: Any) -> Handler:
    """A call with all arguments of the operator, which are tensors, and then with arguments by name.

    ``attributes``: the attribute for each argument of the schema. ``constants``: other arguments.
    """

    def handler(call: relax.Call) -> AskedCall:
        given = {name: plain(getattr(call.attrs, of)) for name, of in (attributes or {}).items()}
        return AskedCall(packet, operands_of(call.args), {**given, **constants})

    return handler


def plain(value: Any) -> Any:
    """An attribute as a value of Python."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "value"):
        return value.value
    return [int(each) for each in value]


def _power(call: relax.Call) -> AskedCall:
    floats(call)
    return named("pow")(call)


def _dividing(packet: str) -> Handler:
    def handler(call: relax.Call) -> AskedCall:
        if not is_safe_division(call):
            raise NotAten("ATen divides no integers by 0 or -1")
        return named(packet)(call)

    return handler


def _sign(call: relax.Call) -> AskedCall:
    if is_float(call):
        raise NotAten("ATen's sign of NaN is 0")
    return named("sign")(call)


def _clip(call: relax.Call) -> AskedCall:
    x, low, high = call.args
    bounds = {"min": float(number(low)), "max": float(number(high))}
    if not is_float(x) and all(bound.is_integer() for bound in bounds.values()):
        return AskedCall("clamp", operands_of([x]), {name: int(bound) for name, bound in bounds.items()})
    return AskedCall("clamp", operands_of([x]), bounds)


def _cast(call: relax.Call) -> AskedCall:
    """The operand itself, which the copy to the result converts."""
    return AskedCall("alias", operands_of(call.args), casts=True)


def _multiply_add(call: relax.Call) -> AskedCall:
    x, y, z = operands_of(call.args)
    return AskedCall("addcmul", (z, x, y))


def _prelu(call: relax.Call) -> AskedCall:
    if int(call.attrs.axis) % rank_of(call.args[0]) != 1:
        raise NotAten("its slopes are not along the second axis")
    return AskedCall("prelu", operands_of(call.args))


def _where(call: relax.Call) -> AskedCall:
    if dtype_of(call.args[0]) != "bool":
        raise NotAten(f"its condition is {dtype_of(call.args[0])}, not bool")
    return AskedCall("where", tuple(map(Operand, call.args)))


HANDLERS: dict[str, Handler] = {
    **{name: named(name.removeprefix("nn.")) for name in _SAME},
    **{name: named(other) for name, other in _RENAMED.items()},
    **{name: _dividing(packet) for name, packet in _DIVIDING.items()},
    "astype": _cast,
    "clip": _clip,
    "ewise_fma": _multiply_add,
    "power": _power,
    "sign": _sign,
    "where": _where,
    "nn.gelu": named("gelu", approximate="none"),
    "nn.gelu_tanh": named("gelu", approximate="tanh"),
    "nn.leakyrelu": named("leaky_relu", {"negative_slope": "alpha"}),
    "nn.log_softmax": named("log_softmax", {"dim": "axis"}),
    "nn.prelu": _prelu,
    "nn.softmax": named("softmax", {"dim": "axis"}),
    "nn.softplus": named("softplus", {"beta": "beta", "threshold": "threshold"}),
}
"""How each operator is asked for."""
