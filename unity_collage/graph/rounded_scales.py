"""The scales of quantised values, rounded, so that kernels which differ only in a scale have one cost.

Each product of a quantised network has a scale of its own, and a constant of one element belongs to the computation.
So 72 equal products of a transformer would be 72 kernels to build and to measure. What they cost does not depend on
their scales. So costs are asked for with scales that are rounded to a few numbers. Programs keep their own.

All kernels of one computation get the same number, and the check of their results takes it too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, relax

from .calls import op_name
from .prim_funcs import CALL_TIR
from .shapes import dtype_of, shape_of
from .steps import is_float

_structural_map: Any = tvm_ffi.structural_map  # type: ignore[reportUnknownMemberType]

_SCALING = frozenset({"relax.multiply", "relax.divide"})
_CAST = "relax.astype"
_DEQUANTIZE = "relax.dequantize"
_QUANTISING = frozenset({"relax.quantize", _DEQUANTIZE})
_ZERO_POINT = 3
_PASSED_ON = _SCALING | {
    _CAST,
    "relax.add",
    "relax.expand_dims",
    "relax.permute_dims",
    "relax.reshape",
    "relax.squeeze",
    "relax.subtract",
}
"""Operators whose result is still a multiple of a quantised value, if an operand is."""

_BASE, _NOT_ROUND = 16.0, 1.25
"""A rounded number is this factor times a power of this base, so 0.31 to 5 times the true one.

The factor keeps it from a power of two, by which a compiler may multiply faster.
"""

_LEAST, _MOST = 1e-30, 1e4
"""Numbers beyond these are no scales: they are limits of types and the like. All others fit into float16 rounded."""


def with_rounded_scales(func: relax.Function) -> relax.Function:
    """``func`` with the same bindings, in which scales of quantised values and of single numbers are rounded.

    These are constants of one element by which such a value is multiplied or divided, and numbers that a PrimFunc
    takes; also the scale and zero point of a tensor that is quantised or dequantised.
    """
    changed = dict(_rescaled(func))
    if not changed:
        return func

    def rescaled(call: relax.Call) -> relax.Call:
        return changed.get(call, call)

    return _structural_map(func, (relax.Call, rescaled))


def rounded(number: float) -> float:
    """``number`` as 1.25 times a power of 16 with its sign; 1, -1 and numbers that are no scales remain."""
    if not _LEAST < abs(number) < _MOST or abs(number) == 1.0:
        return number
    return math.copysign(_NOT_ROUND * _BASE ** round(math.log(abs(number), _BASE)), number)


def _rescaled(func: relax.Function) -> Iterator[tuple[relax.Call, relax.Call]]:
    """Calls with scales, and the same calls with rounded ones."""
    quantised: set[relax.Var] = set()
    for block in func.body.blocks:
        for binding in block.bindings:
            call = binding.value
            if not isinstance(call, relax.Call):
                continue
            name = op_name(call)
            if name in _QUANTISING:
                args = [call.args[0], _rounded(call.args[1]), _rounded_zero_point(call.args[2])]
                if name == _DEQUANTIZE:
                    quantised.add(binding.var)
            elif name == CALL_TIR:
                args = [_rounded_fields(call.args[1]) if i == 1 else arg for i, arg in enumerate(call.args)]
            else:
                is_scaled = any(
                    arg in quantised or _has_one_element(arg)
                    for arg in call.args
                    if isinstance(arg, relax.Var)
                )
                if (name == _CAST and _is_widened(call)) or (name in _PASSED_ON and is_scaled):
                    quantised.add(binding.var)
                if name not in _SCALING or not is_scaled:
                    continue
                args = [_rounded(arg) for arg in call.args]
            if any(new is not old for new, old in zip(args, call.args, strict=True)):
                yield call, relax.Call(call.op, args, call.attrs, call.ty_args, ret_ty=call.ty)


def _rounded_fields(args: relax.Expr) -> relax.Expr:
    """The operands of a PrimFunc with rounded numbers; the same object if there are none."""
    if not isinstance(args, relax.Tuple):
        return args
    fields = [_rounded(field) for field in args.fields]
    same = all(new is old for new, old in zip(fields, args.fields, strict=True))
    return args if same else relax.Tuple(fields)


def _rounded(expr: relax.Expr) -> relax.Expr:
    """A constant of one floating-point number, rounded; any other expression as it is, the same object."""
    if not isinstance(expr, ir.GenericConst) or not _has_one_element(expr) or not is_float(expr):
        return expr
    before = expr.value.numpy()
    after = np.full_like(before, rounded(float(before.reshape(-1)[0])))
    return expr if (after == before).all() else relax.const(after, dtype_of(expr))


def _rounded_zero_point(expr: relax.Expr) -> relax.Expr:
    """A constant of one integer: 0, or one number for all others; any other expression as it is."""
    if not isinstance(expr, ir.GenericConst) or not _has_one_element(expr):
        return expr
    before = expr.value.numpy()
    return relax.const(np.full_like(before, _ZERO_POINT), dtype_of(expr)) if before.any() else expr


def _has_one_element(expr: relax.Expr) -> bool:
    shape = shape_of(expr) if isinstance(expr.ty, relax.TensorType) else None
    return shape is not None and math.prod(shape) == 1


def _is_widened(cast: relax.Call) -> bool:
    """Whether ``cast`` makes floating-point numbers of integers."""
    return is_float(cast) and not is_float(cast.args[0])
