"""quantised: products and convolutions of dequantised values as exact sums of products of bytes.

Before: ``conv2d(dequantize(x, s, z), dequantize(w, t))``
After:  ``multiply(astype(conv2d(x, w, out_dtype="int32"), "float32"), s * t)``, plus a constant where z is not 0

The sums are those of Jacob et al. 2018, "Quantization and training of neural networks for efficient integer-arithmetic-
only inference", section 2.3. Weights are known, a byte each after their zero point is subtracted. Padding of images is
z, which stands for 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .constants import constant
from .rewrite import Rewrite
from .scope import Call, Expr, Scope, dtype_of, op, op_name, rank_of, static_shape
from .why_not import WhyNot
from .windows import CONVOLUTIONS, MAX_POOLS, spatial_axes, window, with_operands

BYTES = ("int8", "uint8")
DEQUANTIZE = "relax.dequantize"
_PERMUTE = "relax.permute_dims"
_MOVES = (
    "relax.expand_dims",
    "relax.flatten",
    "relax.nn.batch_flatten",
    "relax.nn.relu",
    _PERMUTE,
    "relax.reshape",
    "relax.squeeze",
    "relax.strided_slice",
    *MAX_POOLS,
)
"""Operators of one operand whose results are elements of it."""
_LARGEST_SUM = 2**31


@dataclass(frozen=True, slots=True)
class _Weights:
    """Known bytes, of which channel ``c`` of the result is computed with the factor ``scales[c]``, or all with one."""

    values: np.ndarray
    scales: np.ndarray


def _product(call: Call, scope: Scope) -> Expr | WhyNot | None:
    x = scope.call(call.args[0], DEQUANTIZE)
    if x is None or dtype_of(call) != "float32" or dtype_of(x.args[0]) not in BYTES:
        return None
    scale, zero = (scope.scalar(parameter) for parameter in x.args[1:])
    weights = _weights(call, scope)
    if scale is None or zero is None or weights is None:
        return WhyNot("the scales, the zero points or the weights are not constant")
    if isinstance(weights, WhyNot):
        return weights
    limits = np.iinfo(dtype_of(x.args[0]))
    if not limits.min <= zero <= limits.max:
        return WhyNot(f"the zero point {zero:.0f} is no {limits.dtype}, as the border of an image has to be")
    channels = _channels(call)
    others = tuple(axis for axis in range(weights.values.ndim) if axis != channels)
    count = math.prod(weights.values.shape[axis] for axis in others)
    if count * 255 * 128 >= _LARGEST_SUM:
        return WhyNot(f"a sum of {count} products may exceed 32 bits")
    factor = (weights.scales * scale).astype(np.float32)
    total = op.astype(_sums(call, x.args[0], int(zero), weights.values), "float32")
    found = op.multiply(total, _along_channels(call, factor))
    if not zero:
        return found
    moved = weights.values.sum(others, dtype=np.int64) * (-zero * weights.scales * scale)
    return op.add(found, _along_channels(call, moved.astype(np.float32)))


def _weights(call: Call, scope: Scope) -> _Weights | WhyNot | None:
    """The right operand, dequantised and maybe transposed, as bytes with a zero point of 0."""
    turned = scope.call(call.args[1], _PERMUTE) if op_name(call) == "relax.matmul" else None
    given = scope.call(call.args[1] if turned is None else turned.args[0], DEQUANTIZE)
    arrays = None if given is None else [scope.array(arg) for arg in given.args]
    if given is None or arrays is None or any(array is None for array in arrays):
        return None
    values, scales, zeros = (array for array in arrays if array is not None)
    axis = int(given.attrs.axis) % max(values.ndim, 1)
    moved = values.astype(np.int64) - _along(zeros.astype(np.int64), axis, values.ndim)
    limits = np.iinfo(np.int8)
    if not moved.size or moved.min() < limits.min or moved.max() > limits.max:
        return WhyNot("the weights less their zero point are no bytes")
    if turned is not None:
        axes = turned.attrs.axes
        order = list(range(values.ndim))[::-1] if axes is None else [int(a) % values.ndim for a in axes]
        moved, axis = moved.transpose(order), order.index(axis)
    if op_name(call) == "relax.matmul" and (moved.ndim != 2 or rank_of(call.args[0]) < 1):
        return WhyNot("the weights are no matrix")
    if scales.size > 1 and axis != _channels(call):
        return WhyNot("the weights have a scale for each element of a sum")
    return _Weights(moved.astype(np.int8), scales.reshape(-1).astype(np.float64))


def _along(parameter: np.ndarray, axis: int, rank: int) -> np.ndarray:
    return parameter.reshape([-1 if k == axis and parameter.size > 1 else 1 for k in range(rank)])


def _channels(call: Call) -> int:
    """The axis of the weights that is that of the result's channels."""
    return 1 if op_name(call) == "relax.matmul" else str(call.attrs.kernel_layout).index("O")


def _along_channels(call: Call, numbers: np.ndarray) -> Expr:
    """One number for all, or one for each channel of the result."""
    if numbers.size == 1:
        return constant(numbers.reshape(()))
    if op_name(call) == "relax.matmul":
        return constant(numbers)
    channels = str(call.attrs.out_layout).index("C")
    return constant(_along(numbers, channels, rank_of(call)))


def _sums(call: Call, x: Expr, zero: int, weights: np.ndarray) -> Expr:
    known = constant(weights, "int8")
    if op_name(call) == "relax.matmul":
        return op.matmul(x, known, out_dtype="int32")
    changes: dict[str, object] = {"out_dtype": "int32"}
    widths = window(call, "padding")
    if zero and any(widths):
        x = _padded(x, call, widths, zero)
        changes["padding"] = [0] * len(widths)
    return with_operands(call, [x, known], **changes)


def _padded(x: Expr, call: Call, widths: list[int], zero: int) -> Expr:
    """The image with a border of ``zero``."""
    axes = spatial_axes(str(call.attrs.data_layout))
    assert axes is not None
    pads = [0] * (2 * rank_of(x))
    half = len(widths) // 2
    for axis, before, after in zip(axes, widths[:half], widths[half:], strict=True):
        pads[2 * axis : 2 * axis + 2] = [before, after]
    return op.nn.pad(x, pads, pad_value=zero)


def _convolution(call: Call, scope: Scope) -> Expr | WhyNot | None:
    if not str(call.attrs.data_layout).isalpha() or not str(call.attrs.kernel_layout).isalpha():
        return None
    return _product(call, scope)


def _quantized_again(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """``quantize(move(dequantize(q)))`` with the same scale and zero point is ``move(q)``."""
    moves: list[Call] = []
    value = call.args[0]
    while (move := scope.call(value, *_MOVES)) is not None:
        moves.append(move)
        value = move.args[0]
    source = scope.call(value, DEQUANTIZE)
    if source is None or (dtype_of(source.args[0]), dtype_of(source)) != (dtype_of(call), "float32"):
        return None
    if not (scope.scalar(call.args[1]) or 0) > 0:
        return WhyNot("its scale is not one known number above 0")
    for mine, other in zip(call.args[1:], source.args[1:], strict=True):
        numbers = (scope.scalar(mine), scope.scalar(other))
        if numbers[0] is None or numbers[0] != numbers[1]:
            return WhyNot("it is quantised with another scale or zero point")
    if any(op_name(move) == "relax.nn.relu" for move in moves):
        lowest = np.iinfo(dtype_of(call)).min
        if scope.scalar(call.args[2]) != lowest:
            return WhyNot("negative numbers are quantised too")
    found = source.args[0]
    for move in reversed(moves):
        if op_name(move) != "relax.nn.relu":
            found = type(move)(move.op, [found, *move.args[1:]], move.attrs, move.ty_args)
    return found


def _scaled_sums(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """``multiply(astype(add(sums, v)), s)`` is ``add(multiply(astype(sums), s), multiply(astype(v), s))``.

    A library scales its sums of bytes first, and adds floats. ``v`` has one element for each channel at most, as the
    zero point of the other operand times the sums of the weights has.
    """
    cast = scope.own_call(call.args[0], "relax.astype")
    added = None if cast is None else scope.own_call(cast.args[0], "relax.add")
    if added is None or (dtype_of(added), dtype_of(call)) != ("int32", "float32"):
        return None
    for sums, other in (added.args, added.args[::-1]):
        product = scope.own_call(sums, "relax.matmul", *CONVOLUTIONS)
        few = scope.size(other)
        if product is None or dtype_of(product.args[0]) not in BYTES or few is None:
            continue
        channels = static_shape(product.args[1])
        if channels is None or few > channels[_channels(product)]:
            return WhyNot("what is added has more than one element for each channel")
        scale = call.args[1]
        return op.add(
            op.multiply(op.astype(sums, "float32"), scale), op.multiply(op.astype(other, "float32"), scale)
        )
    return None


PRODUCT_OF_BYTES = Rewrite("product_of_bytes", ("relax.matmul",), _product)
CONVOLUTION_OF_BYTES = Rewrite("convolution_of_bytes", CONVOLUTIONS, _convolution)
SCALED_SUMS = Rewrite("scaled_sums", ("relax.multiply",), _scaled_sums)
QUANTIZED_AGAIN = Rewrite("quantized_again", ("relax.quantize",), _quantized_again)
