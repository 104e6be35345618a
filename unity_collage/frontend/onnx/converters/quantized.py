"""Products and convolutions of integers: exact sums of 32 bits, then one factor for the scales."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax

from ..node import Converted, OnnxNode
from ..values import Value
from .convolution import convolution
from .pointwise import pointwise
from .precise import dtype_of
from .quantization import dynamically_quantized, integers, quantized


def shifted(node: OnnxNode, position: int, zero: int, shape: Sequence[int] | None = None) -> relax.Expr:
    """An operand minus its zero point, as int32; ``shape`` is that of a zero point of several elements."""
    x = integers(node, position)
    known = node.numbers(zero) if node.has(zero) else np.zeros((), "int32")
    if known is not None and not known.astype("int32").any():
        return node.cast(x, "int32")
    point = parameter(node, zero, shape, integers(node, zero))
    return node.emit(pointwise(node, "shift", lambda a, b: a.astype("int32") - b.astype("int32"), x, point))


def parameter(
    node: OnnxNode, position: int, shape: Sequence[int] | None = None, expr: relax.Expr | None = None
) -> relax.Expr:
    """A scale or zero point: of no dimensions if it has one element, else a vector in ``shape``, else as it is."""
    x, dims = node[position] if expr is None else expr, node.shape(position)
    if all(isinstance(size, int) and size == 1 for size in dims):
        return node.reshaped(x, []) if dims else x
    return node.reshaped(x, list(shape)) if len(dims) == 1 and shape is not None else x


def _rows(node: OnnxNode, position: int, of: int) -> list[int] | None:
    """The shape in which a vector of parameters has one for each row of the operand ``of``."""
    return [-1, 1] if node.rank(of) > 1 and node.has(position) else None


def factor(node: OnnxNode, scales: Sequence[relax.Expr], divisor: relax.Expr | None = None) -> relax.Expr:
    """The product of scales, divided by the scale of the result, in float32."""
    wide = [node.cast(scale, "float32") for scale in scales]
    found = wide[0]
    for scale in wide[1:]:
        found = node.emit(relax.op.multiply(found, scale))
    return found if divisor is None else node.emit(relax.op.divide(found, node.cast(divisor, "float32")))


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of int32 in two parts: products of elements, and what has to be added to them.

    A library that multiplies bytes scales its sums before it adds something.
    """

    products: relax.Expr
    offset: relax.Expr | None = None

    def total(self, node: OnnxNode) -> relax.Expr:
        """Both together, as int32."""
        if self.offset is None:
            return self.products
        return node.emit(relax.op.add(self.products, self.offset))

    def scaled(self, node: OnnxNode, scale: relax.Expr) -> relax.Expr:
        """Both together times ``scale``, in float32."""
        found = node.emit(relax.op.multiply(node.cast(self.products, "float32"), scale))
        if self.offset is None:
            return found
        moved = node.emit(relax.op.multiply(node.cast(self.offset, "float32"), scale))
        return node.emit(relax.op.add(found, moved))


def requantized(
    node: OnnxNode, sums: Sums, scale: relax.Expr, zero: relax.Expr | None, dtype: str
) -> relax.Expr:
    """saturate(round(sums * scale) + zero)."""
    return quantized(node, sums.scaled(node, scale), node.constant(1, "float32"), zero, dtype)


def shifted_product(node: OnnxNode, left: int, left_zero: int, right: int, right_zero: int) -> Sums:
    """The product of two operands, each minus its zero point, with sums of int32; arguments are positions.

    A known matrix stays one of bytes if it can. Libraries multiply bytes many times as fast as wider integers.
    """
    rows, weights = _rows(node, left_zero, left), _as_bytes(node, right, right_zero, axis=1)
    if weights is None or weights.ndim != 2 or node.dtype(left) not in ("int8", "uint8"):
        operands = shifted(node, left, left_zero, rows), shifted(node, right, right_zero)
        return Sums(node.emit(relax.op.matmul(*operands)))
    known = node.numbers(left_zero)
    is_zero = not node.has(left_zero) or (known is not None and not known.any())
    zero = None if is_zero else parameter(node, left_zero, rows, integers(node, left_zero))
    return product_of_bytes(node, integers(node, left), zero, weights)


def product_of_bytes(node: OnnxNode, x: relax.Expr, zero: relax.Expr | None, weights: np.ndarray) -> Sums:
    """(x - zero) W = x W - zero (sums of the columns of W); x and W are bytes."""
    found = node.emit(relax.op.matmul(x, node.constant(weights, "int8"), out_dtype="int32"))
    if zero is None:
        return Sums(found)
    negative = node.constant(-weights.sum(0, dtype=np.int32), "int32")
    # Operators of Relax, not a PrimFunc: lower bounds count the products in front of them.
    return Sums(found, node.emit(relax.op.multiply(node.cast(zero, "int32"), negative)))


def _as_bytes(node: OnnxNode, position: int, zero: int, axis: int) -> np.ndarray | None:
    """Known weights minus their known zero points along ``axis``, if each element is an int8."""
    known = node.numbers(position)
    point = node.numbers(zero) if node.has(zero) else np.zeros((), "int8")
    if known is None or point is None or axis >= known.ndim or point.size not in (1, known.shape[axis]):
        return None
    along = [-1 if each == axis and point.size > 1 else 1 for each in range(known.ndim)]
    moved = known.astype("int32") - point.astype("int32").reshape(along)
    limits = np.iinfo("int8")
    fits = moved.size and limits.min <= moved.min() and moved.max() <= limits.max
    return moved.astype("int8") if fits else None


def _matmul_integer(node: OnnxNode) -> Converted:
    return shifted_product(node, 0, 2, 1, 3).total(node)


def _qlinear_matmul(node: OnnxNode) -> Converted:
    """(a, its scale and zero point, b, its scale and zero point, the result's scale and zero point)."""
    scale = factor(node, [parameter(node, 1, _rows(node, 2, 0)), parameter(node, 4)], parameter(node, 6))
    return requantized(node, shifted_product(node, 0, 2, 3, 5), scale, parameter(node, 7), node.dtype(7))


def _conv_integer(node: OnnxNode) -> Converted:
    return _shifted_convolution(node, 0, 2, 1, 3).total(node)


def _qlinear_conv(node: OnnxNode) -> Converted:
    """(x, its scale and zero point, w, its scale and zero point, the result's scale and zero point, bias)."""
    sums = _shifted_convolution(node, 0, 2, 3, 5, 8)
    channels = [1, -1, *[1] * (node.rank(0) - 2)]
    scale = factor(node, [parameter(node, 1), parameter(node, 4, channels)], parameter(node, 6))
    return requantized(node, sums, scale, parameter(node, 7), node.dtype(7))


def _shifted_convolution(
    node: OnnxNode, image: int, image_zero: int, weights: int, weights_zero: int, bias: int | None = None
) -> Sums:
    """The convolution of two operands, each minus its zero point, plus a bias of int32; arguments are positions.

    Known weights stay bytes if they can, with an image of bytes and a known zero point: padding is the zero point.
    """
    added = None if bias is None or not node.has(bias) else node[bias]
    known = _as_bytes(node, weights, weights_zero, axis=0)
    point = node.numbers(image_zero) if node.has(image_zero) else np.zeros((), "int8")
    if known is None or point is None or point.size != 1 or node.dtype(image) not in ("int8", "uint8"):
        first = _first_axis(node, weights)
        operands = [shifted(node, image, image_zero), shifted(node, weights, weights_zero, first)]
        return Sums(node.emit(_convolved(node, operands if added is None else [*operands, added])))
    zero = int(point.reshape(()))
    found = node.emit(_convolved(node, [integers(node, image), node.constant(known, "int8")], border=zero))
    shape = [1, -1, *[1] * (known.ndim - 2)]
    moved = known.sum(tuple(range(1, known.ndim)), dtype=np.int64) * -zero
    offset = node.constant(moved.reshape(shape), "int32") if zero else None
    if added is not None:
        bias_of_channels = node.reshaped(added, shape)
        offset = bias_of_channels if offset is None else node.emit(relax.op.add(bias_of_channels, offset))
    return Sums(found, offset)


def _first_axis(node: OnnxNode, position: int) -> list[int]:
    return [-1, *[1] * (node.rank(position) - 1)]


def _convolved(node: OnnxNode, operands: Sequence[relax.Expr], border: int = 0) -> relax.Expr:
    """The convolution of integers with the node's attributes, with ``border`` around the image."""
    inputs = [Value(dtype_of(operand), expr=operand) for operand in operands]
    return convolution(replace(node, inputs=inputs), border)


# Operators of com.microsoft


def _qgemm(node: OnnxNode) -> Converted:
    """alpha (A B + C) with the scales of A and B; float32 where no scale of the result is given."""
    sums = _gemm_sums(node)
    if node.has(6):
        offset = node[6] if sums.offset is None else node.emit(relax.op.add(sums.offset, node[6]))
        sums = Sums(sums.products, offset)
    alpha = node.constant(node.attribute("alpha", 1.0), "float32")
    divisor = parameter(node, 7) if node.has(7) else None
    scale = factor(node, [parameter(node, 1), parameter(node, 4), alpha], divisor)
    if divisor is None:
        return sums.scaled(node, scale)
    zero = parameter(node, 8) if node.has(8) else None
    return requantized(node, sums, scale, zero, node.dtype(8) if node.has(8) else "uint8")


def _gemm_sums(node: OnnxNode) -> Sums:
    """A B, each minus its zero point."""
    transposed = bool(node.attribute("transB", 0))
    known = _as_bytes(node, 3, 5, axis=0 if transposed else 1)
    if known is not None and not node.attribute("transA", 0) and node.dtype() in ("int8", "uint8"):
        zero = parameter(node, 2, None, integers(node, 2)) if node.has(2) else None
        return product_of_bytes(node, integers(node, 0), zero, known.T if transposed else known)
    a, b = shifted(node, 0, 2), shifted(node, 3, 5, [-1, 1] if transposed else None)
    if node.attribute("transA", 0):
        a = node.emit(relax.op.permute_dims(a, [1, 0]))
    if transposed:
        b = node.emit(relax.op.permute_dims(b, [1, 0]))
    return Sums(node.emit(relax.op.matmul(a, b)))


def _matmul_integer_to_float(node: OnnxNode) -> Converted:
    """(A, B, A's scale, B's scale, A's zero point, B's zero point, bias)."""
    scale = factor(node, [parameter(node, 2, _rows(node, 2, 0)), parameter(node, 3)])
    return _scaled(node, shifted_product(node, 0, 4, 1, 5), scale, node.optional(6), node.dtype(2))


def _dynamic_quantize_matmul(node: OnnxNode) -> Converted:
    """(A, B, B's scale, B's zero point, bias): A is quantised to uint8 when the program runs."""
    quantised, scale, zero = dynamically_quantized(node, node[0])
    weights = _as_bytes(node, 1, 3, axis=1)
    if weights is None or weights.ndim != 2:
        moved = pointwise(node, "shift", lambda a, b: a.astype("int32") - b.astype("int32"), quantised, zero)
        made = Sums(node.emit(relax.op.matmul(node.emit(moved), shifted(node, 1, 3))))
    else:
        made = product_of_bytes(node, quantised, zero, weights)
    return _scaled(node, made, factor(node, [scale, parameter(node, 2)]), node.optional(4), "float32")


def _scaled(node: OnnxNode, sums: Sums, scale: relax.Expr, bias: relax.Expr | None, dtype: str) -> relax.Expr:
    found = relax.op.multiply(node.cast(sums.total(node), "float32"), scale)
    if bias is not None:
        found = relax.op.add(node.emit(found), node.cast(bias, "float32"))
    return found if dtype == "float32" else relax.op.astype(node.emit(found), dtype)


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "ConvInteger": _conv_integer,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
}

MICROSOFT: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "DynamicQuantizeMatMul": _dynamic_quantize_matmul,
    "MatMulIntegerToFloat": _matmul_integer_to_float,
    "QGemm": _qgemm,
}
