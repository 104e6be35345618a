"""quantised: products and convolutions of dequantised values as exact sums of products of bytes.

Before: ``conv2d(dequantize(x, s, z), dequantize(w, t))``
After:  ``multiply(astype(conv2d(x, w, out_dtype="int32"), "float32"), s * t)``, plus a constant where z is not 0

The sums are those of Jacob et al. 2018, "Quantization and training of neural networks for efficient integer-arithmetic-
only inference", section 2.3. Weights are known, a byte each after their zero point is subtracted. Padding of images is
z, which stands for 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm.relax import TensorType, Var

from .. import reference
from .constants import constant
from .rewrite import Rewrite
from .scope import Call, Expr, Scope, dtype_of, op, op_name, rank_of, static_shape
from .why_not import WhyNot
from .windows import CONVOLUTIONS, MAX_POOLS, spatial_axes, window, with_operands

BYTES = ("int8", "uint8")
_DEQUANTIZE = "relax.dequantize"
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
    x = scope.call(call.args[0], _DEQUANTIZE)
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
    given = scope.call(call.args[1] if turned is None else turned.args[0], _DEQUANTIZE)
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
    source = scope.call(value, _DEQUANTIZE)
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


_FUNCTIONS = frozenset(
    f"relax.{name}"
    for name in (
        "abs", "add", "clip", "cos", "divide", "erf", "exp", "log", "maximum", "minimum", "multiply", "negative",
        "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu", "nn.relu", "nn.silu", "nn.softplus", "power", "rsqrt", "sigmoid",
        "sin", "sqrt", "square", "subtract", "tanh",
    )
)  # fmt: skip
_SHORT = frozenset(
    f"relax.{name}" for name in ("add", "clip", "maximum", "minimum", "multiply", "nn.relu", "subtract")
)
"""Functions that take less time than a look into a table."""
_MOST_FUNCTIONS = 64
_TAKE, _WIDEN = "relax.take", "relax.astype"


def _table(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """A function of one byte, from ``dequantize`` to ``quantize``, as a table of 256 bytes.

    Before: ``quantize(multiply(dequantize(q), dequantize(quantize(sigmoid(dequantize(q))))))``
    After:  ``take(table, astype(q, "int32"))``
    """
    if dtype_of(call) not in BYTES:
        return None
    inside: dict[Expr, Call] = {}
    leaves: set[Expr] = set()
    if not _is_function(call, scope, inside, leaves) or len(leaves) != 1:
        return None
    names = [op_name(each) for each in inside.values()]
    quantising = names.count("relax.quantize") + names.count(_TAKE)
    if quantising < 1 and not set(names) & (_FUNCTIONS - _SHORT):
        return None
    (leaf,) = leaves
    if rank_of(call) != rank_of(leaf):  # a number with more axes has added some
        return None
    numbers = np.arange(256).astype(np.uint8).view(dtype_of(leaf))
    values: dict[Expr, np.ndarray] = {leaf: numbers}
    for var, each in inside.items():
        values[var] = _evaluated(each, values, scope)
    first = -int(np.iinfo(dtype_of(leaf)).min)
    table = _evaluated(call, values, scope)[np.argsort(numbers.astype(np.int64), kind="stable")]
    place = op.astype(leaf, "int32")
    if first:
        place = op.add(place, constant(np.asarray(first, np.int32)))
    return op.take(constant(table, dtype_of(call)), place, axis=0, mode="fast")


def _is_function(call: Call, scope: Scope, inside: dict[Expr, Call], leaves: set[Expr]) -> bool:
    """Whether ``call`` computes each element from that of one tensor of bytes; collects what is between in order."""
    name = op_name(call)
    if name == _TAKE:
        place = _place_in_table(call, scope)
        return place is not None and _of_leaf(place, scope, inside, leaves)
    if name == _DEQUANTIZE:
        return _are_numbers(call.args[1:], scope) and _of_leaf(call.args[0], scope, inside, leaves)
    if name == "relax.quantize":
        operands, others = call.args[:1], call.args[1:]
    elif name in _FUNCTIONS:
        operands = [arg for arg in call.args if isinstance(arg, Var)]
        others = [arg for arg in call.args if not isinstance(arg, Var)]
    else:
        return False
    if not operands or not _are_numbers(others, scope):
        return False
    return all(_is_inside(operand, scope, inside, leaves) for operand in operands)


def _is_inside(value: Expr, scope: Scope, inside: dict[Expr, Call], leaves: set[Expr]) -> bool:
    if value in inside:
        return True
    found = scope.value(value)
    if not isinstance(found, Call) or len(inside) >= _MOST_FUNCTIONS:
        return False
    if not _is_function(found, scope, inside, leaves):
        return False
    inside[value] = found
    return True


def _of_leaf(value: Expr, scope: Scope, inside: dict[Expr, Call], leaves: set[Expr]) -> bool:
    """Whether bytes are a function of another tensor of bytes, or else a leaf."""
    found = scope.value(value)
    if isinstance(found, Call) and op_name(found) in (_TAKE, "relax.quantize"):
        before = dict(inside), set(leaves)
        if _is_inside(value, scope, inside, leaves):
            return True
        inside.clear()
        inside.update(before[0])
        leaves.clear()
        leaves.update(before[1])
    leaves.add(value)
    return dtype_of(value) in BYTES


def _place_in_table(call: Call, scope: Scope) -> Expr | None:
    """The bytes by which a table of 256 is read, the lowest byte first, as :func:`_table` writes it."""
    if scope.array(call.args[0]) is None or static_shape(call.args[0]) != (256,):
        return None
    moved = scope.call(call.args[1], "relax.add")
    widened = scope.call(call.args[1] if moved is None else moved.args[0], _WIDEN)
    if widened is None or dtype_of(widened) != "int32" or dtype_of(widened.args[0]) not in BYTES:
        return None
    first = 0 if moved is None else scope.scalar(moved.args[1])
    return widened.args[0] if first == -np.iinfo(dtype_of(widened.args[0])).min else None


def _are_numbers(values: Sequence[Expr], scope: Scope) -> bool:
    return all(not isinstance(value.ty, TensorType) or scope.scalar(value) is not None for value in values)


def _evaluated(call: Call, values: Mapping[Expr, np.ndarray], scope: Scope) -> np.ndarray:
    """The result of ``call`` for vectors of operands."""
    name = op_name(call)
    if name == _TAKE:
        place, table = _place_in_table(call, scope), scope.array(call.args[0])
        assert place is not None and table is not None
        return table[values[place].astype(np.int64) - np.iinfo(values[place].dtype).min]
    args: list[Expr] = []
    arrays: list[np.ndarray | None] = []
    for arg in call.args:
        known = values.get(arg)
        if known is None and isinstance(arg.ty, TensorType):
            array = scope.array(arg)
            assert array is not None
            args.append(constant(array.reshape(()), dtype_of(arg)))
            arrays.append(array.reshape(()))
        else:
            args.append(arg if known is None else Var("x", TensorType(known.shape, dtype_of(arg))))
            arrays.append(known)
    if name in ("relax.quantize", _DEQUANTIZE):
        make = op.quantize if name == "relax.quantize" else op.dequantize
        found = make(*args, axis=0, out_dtype=dtype_of(call))
    else:
        found = Call(call.op, args, call.attrs, call.ty_args)
    result = reference.evaluate(found, arrays)
    assert isinstance(result, np.ndarray)
    return result


PRODUCT_OF_BYTES = Rewrite("product_of_bytes", ("relax.matmul",), _product)
CONVOLUTION_OF_BYTES = Rewrite("convolution_of_bytes", CONVOLUTIONS, _convolution)
SCALED_SUMS = Rewrite("scaled_sums", ("relax.multiply",), _scaled_sums)
QUANTIZED_AGAIN = Rewrite("quantized_again", ("relax.quantize",), _quantized_again)
FUNCTION_OF_BYTES = Rewrite("function_of_bytes", ("relax.quantize",), _table)
