"""Evaluation of TIR expressions with numpy, over whole index grids at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import ir, tirx

from unity_collage.reference.functions import BINARY, UNARY
from unity_collage.reference.values import Unsupported, Value, dtype_of, truncated_divide

Env = Mapping[Any, Value]
"""From variables to numbers or index grids, and from buffers to arrays."""

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.Div: lambda left, right: truncated_divide(np.asarray(left), np.asarray(right)),
    tirx.Mod: np.fmod,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
    tirx.BitwiseAnd: np.bitwise_and,
    tirx.BitwiseOr: np.bitwise_or,
    tirx.BitwiseXor: np.bitwise_xor,
    tirx.LShift: np.left_shift,
    tirx.RShift: np.right_shift,
}

_UNARY: dict[type, Callable[[Any], Any]] = {tirx.Not: np.logical_not, tirx.BitwiseNot: np.bitwise_not}

_INTRINSIC: dict[str, Callable[..., Any]] = {
    **UNARY,
    **BINARY,
    "fabs": np.abs,
    "fmod": np.fmod,
    "if_then_else": np.where,
    "likely": lambda condition: condition,
    "nearbyint": np.round,
    "pow": BINARY["power"],
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
}

_PARTS: dict[type, tuple[str, ...]] = {
    **dict.fromkeys(_BINARY, ("a", "b")),
    **dict.fromkeys(_UNARY, ("a",)),
    tirx.Cast: ("value",),
    tirx.Select: ("condition", "true_value", "false_value"),
}
"""The fields of an expression that have its operands."""


def evaluate(expr: Any, env: Env) -> Value:
    """The value of ``expr``; index grids broadcast against each other."""
    if isinstance(expr, int | float):
        return expr
    if isinstance(expr, tirx.IntImm | tirx.FloatImm):
        return expr.value
    if isinstance(expr, ir.Var):
        return _variable(expr, env)
    reason = _why_not_this(expr)
    if reason is not None:
        raise Unsupported(reason)
    return _combined(expr, [evaluate(part, env) for part in _parts(expr)], env)


def why_not(expr: Any) -> str | None:
    """Why :func:`evaluate` cannot evaluate ``expr`` for any values of its variables, or None."""
    reasons = (why_not(part) for part in _parts(expr))
    return _why_not_this(expr) or next((reason for reason in reasons if reason), None)


def _parts(expr: Any) -> list[Any]:
    if isinstance(expr, ir.Call):
        return list(expr.args)
    if isinstance(expr, ir.TensorLoad):
        return list(expr.indices)
    return [getattr(expr, name) for name in _PARTS.get(type(expr), ())]


def _why_not_this(expr: Any) -> str | None:
    if isinstance(expr, ir.Call):
        known = _name(expr) in _INTRINSIC
        return None if known else f"the TIR intrinsic {_name(expr)} has no numpy reference"
    known = isinstance(expr, ir.Var | ir.TensorLoad | tirx.IntImm | tirx.FloatImm)
    if known or type(expr) in _PARTS:
        return None
    return f"a TIR {type(expr).__name__} has no numpy reference"


def _name(call: ir.Call) -> str:
    return str(getattr(call.op, "name", call.op)).rpartition(".")[2]


def _combined(expr: Any, parts: list[Value], env: Env) -> Value:
    """The value of an expression, given the values of its operands."""
    if isinstance(expr, ir.Call):
        return _INTRINSIC[_name(expr)](*parts)
    if isinstance(expr, ir.TensorLoad):
        return _load(_variable(expr.source, env), [np.asarray(part) for part in parts])
    if isinstance(expr, tirx.Cast):
        return np.asarray(parts[0]).astype(dtype_of(expr.ty))
    if type(expr) in _UNARY:
        return _UNARY[type(expr)](parts[0])
    if isinstance(expr, tirx.Select):
        return np.where(*parts)
    return _BINARY[type(expr)](*parts)


def _variable(var: Any, env: Env) -> Value:
    if var not in env:
        raise Unsupported(f"{var} has no value here")
    return env[var]


def _load(array: np.ndarray, grids: list[np.ndarray]) -> np.ndarray:
    """The elements of a buffer at index grids.

    Indices are clamped into the buffer. The condition that guards the load does not select the elements of clamped
    ones.
    """
    if is_whole(grids, array.shape):
        return array
    return array[tuple(grid.clip(0, size - 1) for grid, size in zip(grids, array.shape, strict=True))]


def is_whole(grids: list[np.ndarray], shape: tuple[int, ...]) -> bool:
    """Whether open grids select every element in order, so that no gather is needed."""
    for axis, (grid, size) in enumerate(zip(grids, shape, strict=True)):
        along = tuple(size if dim == axis else 1 for dim in range(len(shape)))
        if grid.shape != along or not np.array_equal(grid.ravel(), np.arange(size)):
            return False
    return True
