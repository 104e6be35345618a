"""The quantising steps that PyTorch's exporters write: operators of ``quantized_decomposed``, in float32.

https://github.com/pytorch/pytorch/blob/main/torch/ao/quantization/fx/_decomposed.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tvm import ir, relax
from tvm.relax import op

from ..context import CallRefused, Context, Converters, Value, dtype_name, dtype_of

_QUANTISED = ("int8", "uint8", "int16", "uint16")


def _quantize(
    cx: Context, x: relax.Expr, scale: Value, zero: Value, low: int, high: int, kind: torch.dtype
) -> relax.Expr:
    return _along(cx, x, scale, zero, 0, low, high, kind)


def _along(
    cx: Context, x: relax.Expr, scale: Value, zero: Value, axis: int, low: int, high: int, kind: torch.dtype
) -> relax.Expr:
    """clamp(round(x / scale) + zero, low, high); torch multiplies by the reciprocal of the scale."""
    dtype = dtype_name(kind)
    if dtype not in _QUANTISED or not isinstance(low, int) or not isinstance(high, int):
        raise CallRefused(f"it quantises to {dtype}, or to a range that is not known")
    made = op.quantize(cx.cast(x, "float32"), *_parameters(cx, scale, zero), axis, dtype)
    limits: Any = np.iinfo(dtype)
    if low > limits.min:
        made = op.maximum(cx.emit(made), cx.cast(low, dtype))
    if high < limits.max:
        made = op.minimum(cx.emit(made), cx.cast(high, dtype))
    return made


def _dequantize(cx: Context, x: relax.Expr, scale: Value, zero: Value, *_: Any) -> relax.Expr:
    return _dequantize_along(cx, x, scale, zero, 0)


def _dequantize_along(
    cx: Context, x: relax.Expr, scale: Value, zero: Value | None, axis: int, *_: Any
) -> relax.Expr:
    """(x - zero) * scale"""
    if dtype_of(x) not in (*_QUANTISED, "int32"):
        raise CallRefused(f"it dequantises {dtype_of(x)}")
    made = op.dequantize(x, *_parameters(cx, scale, 0 if zero is None else zero), axis)
    return cx.cast(cx.emit(made))


def _parameters(cx: Context, scale: Value, zero: Value) -> tuple[relax.Expr, relax.Expr]:
    """Known zero points stay constants: products of known bytes look for these."""
    if isinstance(zero, ir.GenericConst):
        return cx.cast(scale, "float32"), relax.const(zero.value.numpy().astype("int32"))
    return cx.cast(scale, "float32"), cx.cast(zero, "int32")


CONVERTERS: Converters = {
    "quantized_decomposed.quantize_per_tensor.default": _quantize,
    "quantized_decomposed.quantize_per_tensor.tensor": _quantize,
    "quantized_decomposed.quantize_per_channel.default": _along,
    "quantized_decomposed.dequantize_per_tensor.default": _dequantize,
    "quantized_decomposed.dequantize_per_tensor.tensor": _dequantize,
    "quantized_decomposed.dequantize_per_channel.default": _dequantize_along,
}
"""By operator and overload, with the namespace."""
