"""Evaluation of one operator, given the values of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import ir, relax, tirx

from unity_collage.graph.calls import op_name
from unity_collage.reference import prim_func
from unity_collage.reference.literals import is_literal, literal
from unity_collage.reference.table import OPERATORS
from unity_collage.reference.values import Call, Sizes, Unsupported, Value, dtype_of

_CALL_TIR = "relax.call_tir"


def why_not(call: Call, mod: ir.IRModule | None = None) -> str | None:
    """Why numpy cannot evaluate ``call``, or None when it can. ``mod`` has the PrimFunc of a ``call_tir``."""
    name = op_name(call)
    if not name:
        return f"{call.op} is not an operator, and only operators have a numpy reference"
    if name == _CALL_TIR:
        return _why_not_call_tir(call, mod)
    if name not in OPERATORS:
        return f"{name} has no numpy reference"
    return OPERATORS[name].why_not(call)


def evaluate(
    call: Call,
    args: Sequence[Value],
    mod: ir.IRModule | None = None,
    sizes: Sizes | None = None,
    rounds: bool = True,
) -> Value:
    """The result of ``call``: an array of the result's dtype and shape, or a tuple for a tuple or a shape.

    ``args`` has one value for each argument of the call. Shapes and numbers that are literals in the call are read from
    it, and so are constants whose value is None. ``sizes`` has the values of symbolic variables in them. Without
    ``rounds`` floats of less than 32 bits stay float32. Raises Unsupported.
    """
    reason = why_not(call, mod)
    if reason is not None:
        raise Unsupported(reason)
    call = _typed(call)
    try:
        with np.errstate(all="ignore"):
            if op_name(call) == _CALL_TIR:
                return _conform(call, call.ty, _call_tir(call, args, mod), rounds)
            values = [_widened(value) for value in _values(call, args, sizes or {})]
            return _conform(call, call.ty, OPERATORS[op_name(call)].compute(call, *values), rounds)
    except (IndexError, ValueError, ZeroDivisionError) as error:
        raise Unsupported(f"{op_name(call)}: {error}") from error


def _typed(call: Call) -> Call:
    """``call`` with its result type, which a call lacks until it is normalized."""
    if type(call.ty) is not ir.Type:
        return call
    typed = relax.BlockBuilder().normalize(call)
    assert isinstance(typed, relax.Call)
    return typed


def _values(call: Call, args: Sequence[Value], sizes: Sizes) -> list[Value]:
    values = []
    for number, expr in enumerate(call.args):
        given = args[number] if number < len(args) else None
        values.append(literal(expr, sizes) if given is None or is_literal(expr) else given)
    return values


def _widened(value: Value) -> Value:
    """``value`` with floats of less than 32 bits as float32: numpy computes slowly, or not at all, with the others."""
    if isinstance(value, tuple):
        return tuple(_widened(part) for part in value)
    return value.astype(np.float32) if isinstance(value, np.ndarray) and _is_narrow(value.dtype) else value


def _conform(call: Call, ty: Any, result: Value, rounds: bool) -> Value:
    """``result`` with the dtype of the type ``ty``; raises Unsupported if the shape is another one."""
    fields = getattr(ty, "fields", None)
    if fields is not None:
        return tuple(_conform(call, part, value, rounds) for part, value in zip(fields, result, strict=True))
    if not isinstance(ty, relax.TensorType):
        return result
    array, wanted = np.asarray(result), dtype_of(ty)
    if not _fits(array.shape, ty):
        raise Unsupported(f"{op_name(call)}: numpy computed the shape {array.shape}, the type says {ty}")
    if wanted is None:
        return array
    return _as_dtype(array, wanted if rounds or not _is_narrow(wanted) else np.dtype(np.float32))


def _is_narrow(dtype: np.dtype) -> bool:
    """Whether it is a float of less than 32 bits; numpy calls those of other libraries void."""
    return dtype.kind in "fV" and dtype.itemsize < 4


def _fits(shape: tuple[int, ...], ty: Any) -> bool:
    """Whether the shape of a type agrees with ``shape``, as far as it is known and static."""
    if not isinstance(ty.shape, relax.ShapeExpr):
        return True
    sizes = list(ty.shape.values)
    return len(sizes) == len(shape) and all(
        not isinstance(size, tirx.IntImm) or int(size) == own for size, own in zip(sizes, shape, strict=True)
    )


def _as_dtype(array: np.ndarray, wanted: np.dtype) -> np.ndarray:
    """A cast in which doubles become integers by way of int64, so that they wrap around instead of saturating."""
    if array.dtype.kind == "f" and wanted.kind in "iu":
        array = array.astype(np.int64)
    return array.astype(wanted, copy=False)


def _why_not_call_tir(call: Call, mod: ir.IRModule | None) -> str | None:
    callee = _callee(call)
    if mod is None:
        return f"call_tir: the module that contains {callee.name_hint} is not given"
    return prim_func.why_not(mod[callee])


def _callee(call: Call) -> ir.GlobalVar:
    callee = call.args[0]
    assert isinstance(callee, ir.GlobalVar)
    return callee


def _call_tir(call: Call, args: Sequence[Value], mod: ir.IRModule | None) -> Value:
    if mod is None or len(call.args) > 2:
        raise Unsupported("call_tir: symbolic variables as arguments have no numpy reference")
    given = args[1]
    if given is None or any(value is None for value in given):
        given = literal(call.args[1], {})  # sizes among the arguments are literals
    types = list(call.ty.fields) if isinstance(call.ty, ir.TupleType) else [call.ty]
    results = prim_func.run(mod[_callee(call)], given, types)
    return tuple(results) if isinstance(call.ty, ir.TupleType) else results[0]
