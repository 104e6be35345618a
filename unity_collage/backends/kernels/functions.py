"""Element-wise functions that our kernels apply before they store a result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from tvm import relax

from ..native.program import PostOp
from ..native.values import attrs_of, op_name, scalar_of

_BEYOND = float(np.finfo(np.float64).max)
"""Infinity as a bound of float32: the executor rounds it to one, and JSON has no infinity."""


def function_of(call: relax.Call, operand: int = 0) -> PostOp | str:
    """A call as a function of ``args[operand]`` alone, or the reason why it is not one."""
    make = _FUNCTIONS.get(op_name(call))
    if make is None or operand != 0:
        return f"the kernels do not apply {op_name(call).removeprefix('relax.')} to their results"
    return make(call)


def _eltwise(algorithm: str, alpha: float = 0.0, beta: float = 0.0) -> PostOp:
    return PostOp("eltwise", algorithm, alpha, beta)


def _clip(call: relax.Call) -> PostOp | str:
    low, high = scalar_of(call.args[1]), scalar_of(call.args[2])
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return "a bound of the clip is not constant"
    return _eltwise("clip", max(low, -_BEYOND), min(high, _BEYOND))


_FUNCTIONS: Mapping[str, Callable[[relax.Call], PostOp | str]] = {
    "relax.nn.relu": lambda _call: _eltwise("relu"),
    "relax.nn.leakyrelu": lambda call: _eltwise("relu", float(attrs_of(call).alpha)),
    "relax.nn.silu": lambda _call: _eltwise("swish", 1.0),
    "relax.sigmoid": lambda _call: _eltwise("logistic"),
    "relax.clip": _clip,
}

_APPROXIMATED = frozenset({"relax.nn.silu", "relax.sigmoid"})


def why_inexact(calls: Sequence[relax.Call]) -> str | None:
    """Why our kernel of these calls is off in the last bits, or None."""
    name = next((op_name(call) for call in calls if op_name(call) in _APPROXIMATED), None)
    return name and f"the {name.removeprefix('relax.')} of our kernels is off in the last bits"
