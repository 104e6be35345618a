"""Quantising and dequantising: per tensor, along an axis, or in blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import ir, relax, te, tirx

from ....legalization.quantization import saturated
from ..arrays import DTYPES, numpy_dtype
from ..arrays import dtype_of as dtype_of_onnx
from ..equal_sizes import require_shape
from ..node import Converted, OnnxNode
from ..values import Dim
from .pointwise import number, pointwise, select
from .precise import dtype_of, is_narrow
from .runtime_shapes import simple

_PACKED = ("int2", "uint2", "int4", "uint4")
"""Types of several elements a byte, which Relax does not have; known elements are unpacked."""


def integers(node: OnnxNode, position: int) -> relax.Expr:
    """An operand of integers; known ones of 2 or 4 bits are unpacked to bytes."""
    known = node.numbers(position)
    if known is None or known.dtype.name not in _PACKED:
        return node[position]
    unpacked = "uint8" if known.dtype.name.startswith("u") else "int8"
    return node.constant(known.astype(unpacked), unpacked)


def quantized(
    node: OnnxNode,
    x: relax.Expr,
    scale: relax.Expr,
    zero: relax.Expr | None,
    dtype: str,
    axis: int = 0,
    block: int = 0,
    precision: str = "float32",
) -> relax.Expr:
    """saturate(round(x / scale) + zero): half to even; the quotient has the type ``precision``."""
    if not block and not is_narrow(precision) and dtype_of(x) == dtype_of(scale) == "float32":
        return relax.op.quantize(x, *_parameters(node, scale, zero, dtype), axis, dtype)

    def kernel(x: te.Tensor, scale: te.Tensor, *zero: te.Tensor) -> te.Tensor:
        def element(*place: ir.Expr) -> ir.Expr:
            step = _parameter(scale, place, axis, block).astype("float32")
            quotient = x(*place).astype("float32") / step
            if is_narrow(precision):
                quotient = quotient.astype(precision).astype("float32")
            moved = tirx.nearbyint(quotient)
            if zero:
                moved = moved + _parameter(zero[0], place, axis, block).astype("float32")
            return saturated(moved, dtype)

        return te.compute(x.shape, element, name="quantize")

    return node.builder.call_te(kernel, x, scale, *_given(zero), primfunc_name_hint="quantize")


def dequantized(
    node: OnnxNode,
    x: relax.Expr,
    scale: relax.Expr,
    zero: relax.Expr | None,
    dtype: str = "float32",
    axis: int = 0,
    block: int = 0,
) -> relax.Expr:
    """(x - zero) * scale, computed in float32."""
    if not block and dtype in ("float32", "float16") and dtype_of(scale) in ("float32", "float16"):
        return relax.op.dequantize(x, *_parameters(node, scale, zero, dtype_of(x)), axis, dtype)

    def kernel(x: te.Tensor, scale: te.Tensor, *zero: te.Tensor) -> te.Tensor:
        def element(*place: ir.Expr) -> ir.Expr:
            moved = x(*place).astype("int32")
            if zero:
                moved = moved - _parameter(zero[0], place, axis, block).astype("int32")
            step = _parameter(scale, place, axis, block).astype("float32")
            return (moved.astype("float32") * step).astype(dtype)

        return te.compute(x.shape, element, name="dequantize")

    return node.builder.call_te(kernel, x, scale, *_given(zero), primfunc_name_hint="dequantize")


def _parameters(node: OnnxNode, scale: relax.Expr, zero: relax.Expr | None, dtype: str) -> list[relax.Expr]:
    """A scale and a zero point as the operators of Relax take them: of no axes where they have one element."""
    given = [scale, node.constant(0, dtype) if zero is None else zero]
    return [
        node.reshaped(each, []) if node.dims(each) and _is_one(node.dims(each)) else each for each in given
    ]


def _is_one(dims: Sequence[Dim]) -> bool:
    return all(isinstance(size, int) and size == 1 for size in dims)


def _given(zero: relax.Expr | None) -> Sequence[relax.Expr]:
    return () if zero is None else (zero,)


def _parameter(tensor: te.Tensor, place: Sequence[ir.Expr], axis: int, block: int) -> ir.Expr:
    """The scale or zero point of an element."""
    shape = tensor.shape
    if all(isinstance(size, tirx.IntImm) and size.value == 1 for size in shape):
        return tensor(*[0] * len(shape))
    if block:
        return tensor(*(tirx.floordiv(at, block) if n == axis else at for n, at in enumerate(place)))
    return tensor(place[axis])


def _granularity(node: OnnxNode) -> tuple[int, int]:
    """The axis and the size of blocks, which is 0 where there are none; checks the scale's shape."""
    scale, rank = node.shape(1), node.rank(0)
    if _is_one(scale):
        return 0, 0
    axis, block = node.axis(node.attribute("axis", 1)), node.attribute("block_size", 0)
    if len(scale) != (rank if block else 1):
        node.refuse(
            f"a scale of rank {len(scale)} does not fit a tensor of rank {rank}, with blocks of {block}"
        )
    if node.has(2) and node.shape(2) != scale:
        node.refuse("its scale and zero point have different shapes")
    wanted = node.shape()
    if block:
        wanted[axis] = simple((wanted[axis] + (block - 1)) // block)
    require_shape(node, "its scale", scale, wanted if block else [wanted[axis]])
    return axis, block


def _quantize_linear(node: OnnxNode) -> Converted:
    given = dtype_of_onnx(node.attribute("output_dtype")) if node.attribute("output_dtype", 0) else "uint8"
    dtype = node.dtype(2) if node.has(2) else given
    if dtype not in DTYPES or np.dtype(numpy_dtype(dtype)).itemsize > 2:
        node.refuse(f"quantising to {dtype} is not supported")
    precision = (
        dtype_of_onnx(node.attribute("precision")) if node.attribute("precision", 0) else node.dtype(1)
    )
    return quantized(node, node[0], node[1], node.optional(2), dtype, *_granularity(node), precision)


def _dequantize_linear(node: OnnxNode) -> Converted:
    dtype = (
        dtype_of_onnx(node.attribute("output_dtype")) if node.attribute("output_dtype", 0) else node.dtype(1)
    )
    zero = integers(node, 2) if node.has(2) else None
    if "float" in node.dtype(0):
        node.refuse(f"tensors of {node.dtype(0)} are not dequantised")
    return dequantized(node, integers(node, 0), node[1], zero, dtype, *_granularity(node))


def dynamically_quantized(node: OnnxNode, x: relax.Expr) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """A tensor of float32 as uint8, its scale and its zero point, so that the range of the elements and 0 are in it."""
    ends = [node.emit(make(x)) for make in (relax.op.max, relax.op.min)]

    def scale_of(high: Any, low: Any) -> ir.Expr:
        width = (_at_least_zero(high) - _at_most_zero(low)) / number(255, "float32")
        return select(width.equal(number(0, "float32")), 1, width)

    def zero_of(low: Any, scale: Any) -> ir.Expr:
        return saturated(tirx.nearbyint((number(0, "float32") - _at_most_zero(low)) / scale), "uint8")

    scale = node.emit(pointwise(node, "scale", scale_of, *ends))
    zero = node.emit(pointwise(node, "zero_point", zero_of, ends[1], scale))
    return node.emit(quantized(node, x, scale, zero, "uint8")), scale, zero


def _at_least_zero(x: ir.Expr) -> ir.Expr:
    return select(x > number(0, "float32"), x, number(0, "float32"))


def _at_most_zero(x: ir.Expr) -> ir.Expr:
    return select(x < number(0, "float32"), x, number(0, "float32"))


def _dynamic_quantize_linear(node: OnnxNode) -> Converted:
    return dynamically_quantized(node, node[0])


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "DequantizeLinear": _dequantize_linear,
    "DynamicQuantizeLinear": _dynamic_quantize_linear,
    "QuantizeLinear": _quantize_linear,
}

MICROSOFT: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "DequantizeLinear": _dequantize_linear,
    "QuantizeLinear": _quantize_linear,
}
