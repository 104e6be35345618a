"""Quantising and dequantising as ONNX and PyTorch define them.

TVM's own legalization rounds ties away from zero, and computes with 16-bit scales in 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import ir, relax, te, tirx, topi

from .numbers import number_in
from .stock import Legalization, legalized_by_tvm

_WIDE = "float32"

_Parameter = Callable[[Sequence[ir.Expr]], ir.Expr]
"""The scale or zero point of the element at a place."""


def quantize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """saturate(round(x / scale) + zero), half to even, in float32; NaN gives the lowest number."""
    dtype = _dtype_of(call)
    if "int" not in dtype or np.dtype(dtype).itemsize > 2:
        return legalized_by_tvm(builder, call)

    def element(x: ir.Expr, scale: ir.Expr, zero: ir.Expr) -> ir.Expr:
        quotient = x.astype(_WIDE) / scale.astype(_WIDE)
        return saturated(tirx.nearbyint(quotient) + zero.astype(_WIDE), dtype)

    return _each(builder, call, element, "quantize")


def dequantize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """(x - zero) * scale, in float32."""
    wide = _WIDE if "float" in _dtype_of(call.args[0]) else "int32"

    def element(x: ir.Expr, scale: ir.Expr, zero: ir.Expr) -> ir.Expr:
        moved = x.astype(wide)
        if not (isinstance(zero, tirx.IntImm) and zero.value == 0):
            moved = moved - zero.astype(wide)
        return (moved.astype(_WIDE) * scale.astype(_WIDE)).astype(_dtype_of(call))

    return _each(builder, call, element, "dequantize")


def _dtype_of(value: relax.Expr) -> str:
    assert isinstance(value.ty, relax.TensorType)
    return str(value.ty.dtype)


def _each(
    builder: relax.BlockBuilder, call: relax.Call, element: Callable[..., ir.Expr], name: str
) -> relax.Expr:
    data, *parameters = call.args
    numbers = [number_in(parameter) for parameter in parameters]
    tensors = [value for value, number in zip(parameters, numbers, strict=True) if number is None]

    def kernel(x: te.Tensor, *given: te.Tensor) -> te.Tensor:
        left = iter(given)
        read = [_parameter(next(left) if n is None else n, call.attrs.axis, len(x.shape)) for n in numbers]
        return te.compute(
            x.shape,
            lambda *place: element(x(*place), *(at(place) for at in read)),
            name=name,
            tag="broadcast" if tensors else topi.tag.ELEMWISE,
        )

    return builder.call_te(kernel, data, *tensors, primfunc_name_hint=name)


def _parameter(value: te.Tensor | ir.Expr, axis: int, rank: int) -> _Parameter:
    if not isinstance(value, te.Tensor):
        return lambda _place: value
    if all(isinstance(size, tirx.IntImm) and size.value == 1 for size in value.shape):
        return lambda _place: value(*[0] * len(value.shape))
    return lambda place: value(place[axis % rank])


def saturated(value: ir.Expr, dtype: str) -> ir.Expr:
    """``value`` within the range of ``dtype``, named once: a chain of these is fused, and would grow to a power of two.

    NaN gives the lowest number: both bounds keep it, and x86 converts it to the lowest number of 32 bits.
    """
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    bounded = tirx.max(tirx.const(low, _WIDE), tirx.min(tirx.const(high, _WIDE), value))
    return tirx.max(bounded.astype("int32"), tirx.const(low, "int32")).astype(dtype)


LEGALIZATIONS: dict[str, Legalization] = {"relax.quantize": quantize, "relax.dequantize": dequantize}
"""By operator."""
