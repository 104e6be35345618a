"""Which parameters of a function must be positive: those that a root, a logarithm or a power reads, through others.

The bindings are walked from the last one to the first. What must hold for a value must hold for the operands that it is
computed from. It ends at an operator that returns nothing negative anyway: ``sqrt(x * x)`` asks nothing of ``x``. Where
0 is excluded too, as in a logarithm, it does not end there.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm import relax

from ..backends.native.values import scalar_of
from ..graph.calls import op_name
from ..graph.dataflow import used_vars

_MORE_THAN_ZERO = frozenset({"relax.log", "relax.log2", "relax.log10", "relax.rsqrt"})
_AT_LEAST_ZERO = {"relax.sqrt": 0, "relax.nn.batch_norm": 4}
"""Operator -> the position of the operand that must not be negative."""

POSITIVE_OPS = _MORE_THAN_ZERO | {"relax.sqrt", "relax.power"}
"""Operators with an operand that must be positive; the variance of a batch norm is one too."""

_NEVER_NEGATIVE = frozenset(
    f"relax.{name}"
    for name in (
        "abs", "cosh", "exp", "rsqrt", "sigmoid", "sqrt", "square", "std", "variance",
        "nn.relu", "nn.softmax", "nn.softplus",
    )
)  # fmt: skip
_MOST_FACTORS = 8
"""The largest exponent of a power that counts as a product of its base."""

Asked = tuple[relax.Expr, bool]
"""An operand that must not be negative, and whether it must not be 0 either."""


def positive_params(func: relax.Function) -> frozenset[relax.Var]:
    """The parameters of ``func`` that must be positive, so that its roots, logarithms and powers are numbers."""
    asked: dict[relax.Var, bool] = {}
    for block in reversed(func.body.blocks):
        for binding in reversed(block.bindings):
            value = binding.value
            wanted = list(_asked_by(value))
            if binding.var in asked:
                wanted += _passed_on(value, asked[binding.var])
            for operand, is_strict in wanted:
                for var in used_vars(operand):
                    asked[var] = is_strict or asked.get(var, False)
    return frozenset(param for param in func.params if param in asked)


def _asked_by(value: relax.Expr) -> Iterator[Asked]:
    """What an operator asks of its operands."""
    if not isinstance(value, relax.Call):
        return
    name = op_name(value)
    if name in _MORE_THAN_ZERO or (name == "relax.power" and _factors(value) is None):
        yield value.args[0], True
    elif name in _AT_LEAST_ZERO:
        yield value.args[_AT_LEAST_ZERO[name]], False


def _passed_on(value: relax.Expr, is_strict: bool) -> Iterator[Asked]:
    """What must hold for the operands of ``value`` so that it is not negative, and not 0 if that ``is_strict``."""
    if isinstance(value, relax.Call):
        least = _least(value)
        if least is not None and (least > 0 or (least == 0 and not is_strict)):
            return
        if op_name(value) == "relax.add" and any((scalar_of(arg) or 0.0) > 0 for arg in value.args):
            is_strict = False
    yield value, is_strict


def _least(call: relax.Call) -> float | None:
    """A number that no element of the result is below, for any operands; None if none is known."""
    name = op_name(call)
    if name == "relax.maximum":
        return max((number for arg in call.args if (number := scalar_of(arg)) is not None), default=None)
    if name == "relax.clip":
        return scalar_of(call.args[1])
    is_square = name == "relax.multiply" and call.args[0].same_as(call.args[1])
    is_even = name == "relax.power" and (_factors(call) or 1) % 2 == 0
    return 0.0 if is_square or is_even or name in _NEVER_NEGATIVE else None


def _factors(power: relax.Call) -> int | None:
    """The exponent of a power if it is a small whole number, so that the base may be negative; else None."""
    exponent = scalar_of(power.args[1])
    is_small = exponent is not None and exponent.is_integer() and 1 <= exponent <= _MOST_FACTORS
    return int(exponent) if is_small and exponent is not None else None
