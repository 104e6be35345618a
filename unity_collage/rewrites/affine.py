"""affine: factors and summands per output channel go into the constants of the convolution before them.

Normal form: ``add(conv(x, weights), bias)`` with a bias of shape (1, C, 1, 1) for NCHW, and
``add(matmul(x, weights), bias)`` with a bias of shape (N,).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm_ffi import structural_equal

from .constants import constant
from .rule import Rule
from .scope import Call, Expr, Scope, dtype_of, is_float, op
from .views import permutation
from .windows import CONVOLUTIONS

_TRANSPOSED = ("relax.nn.conv1d_transpose", "relax.nn.conv2d_transpose", "relax.nn.conv3d_transpose")
LINEAR_OPS = (*CONVOLUTIONS, *_TRANSPOSED, "relax.matmul")
"""Operators whose output channels belong to slices of their right operand."""


@dataclass(frozen=True, slots=True)
class Linear:
    """A convolution or product with constant weights."""

    call: Call
    weights: np.ndarray
    axis: int
    """Of the channels in the output."""
    rank: int
    """Of the output."""
    channels: int

    def with_weights(self, weights: np.ndarray) -> Expr:
        """The same call on other weights."""
        args = [self.call.args[0], constant(weights.astype(self.weights.dtype))]
        return relax.Call(self.call.op, args, self.call.attrs, self.call.ty_args)

    def scaled(self, scale: np.ndarray) -> Expr:
        """The same call with output channel ``c`` multiplied by ``scale[c]``."""
        wide = np.promote_types(self.weights.dtype, np.float32)
        return self.with_weights(self.weights * _along_weights(self, scale).astype(wide))

    def bias_shape(self) -> tuple[int, ...]:
        """Of a bias in normal form."""
        if self.call.op.name == "relax.matmul":
            return (self.channels,)
        return tuple(self.channels if axis == self.axis else 1 for axis in range(self.rank))


def linear_of(call: Call | None, scope: Scope) -> Linear | None:
    """``call`` as a :class:`Linear` if it is one, in one floating point type."""
    weights = None if call is None or call.op.name not in LINEAR_OPS else scope.array(call.args[1])
    if call is None or weights is None or not is_float(call) or dtype_of(call) != dtype_of(call.args[1]):
        return None
    rank = call.ty.ndim
    if call.op.name == "relax.matmul":
        vector = weights.ndim < 2 or call.args[0].ty.ndim < 2
        return None if vector or rank < 2 else Linear(call, weights, rank - 1, rank, weights.shape[-1])
    layout, kernel = str(call.attrs.out_layout), str(call.attrs.kernel_layout)
    if not layout.isalpha() or not kernel.isalpha():
        return None
    groups = int(call.attrs.groups) if call.op.name in _TRANSPOSED else 1
    return Linear(call, weights, layout.index("C"), rank, weights.shape[kernel.index("O")] * groups)


def _along_weights(linear: Linear, scale: np.ndarray) -> np.ndarray:
    """One factor per output channel, shaped to broadcast against the weights."""
    attrs = linear.call.attrs
    if linear.call.op.name == "relax.matmul":
        return scale
    layout = str(attrs.kernel_layout)
    if linear.call.op.name in CONVOLUTIONS:
        return scale.reshape([-1 if letter == "O" else 1 for letter in layout])
    groups = int(attrs.groups)
    inputs = linear.weights.shape[layout.index("I")]
    table = np.repeat(scale.reshape(groups, -1), inputs // groups, axis=0)
    table = table if layout.index("I") < layout.index("O") else table.T
    letters = iter(table.shape)
    return table.reshape([next(letters) if letter in "IO" else 1 for letter in layout])


def per_channel(array: np.ndarray, linear: Linear) -> np.ndarray | None:
    """``array``, which broadcasts against the output, as one value per channel; None if it varies otherwise."""
    if array.ndim > linear.rank:
        return None
    shape = (1,) * (linear.rank - array.ndim) + array.shape
    varies = [axis for axis, size in enumerate(shape) if size != 1]
    if varies not in ([], [linear.axis]):
        return None
    return np.broadcast_to(array.reshape(-1), (linear.channels,))


def _scale(call: Expr, scope: Scope) -> Expr | None:
    """conv(x, w) * s -> conv(x, w * s), and (conv(x, w) + b) * s -> conv(x, w * s) + b * s."""
    factor = _factors(call, scope)
    if factor is None:
        return None
    source, shift = call.args[0], None
    summed = scope.own_call(source, "relax.add")
    if summed is not None:
        source, shift = summed.args[0], scope.array(summed.args[1])
        if shift is None:
            return None
    linear = linear_of(scope.own_call(source, *LINEAR_OPS), scope)
    scale = None if linear is None else per_channel(factor, linear)
    if linear is None or scale is None:
        return None
    if shift is None:
        return linear.scaled(scale)
    summand = per_channel(shift, linear)
    if summand is None:
        return None
    bias = (summand * scale).reshape(linear.bias_shape())
    return op.add(linear.scaled(scale), constant(bias.astype(shift.dtype)))


def _before_permute(call: Expr, scope: Scope) -> Expr | None:
    """permute(y) * s -> permute(y * s), where y is conv(x, w) + b or the like and s one factor per channel of it."""
    moved, factor = scope.own_call(call.args[0], "relax.permute_dims"), scope.array(call.args[1])
    if moved is None or factor is None or factor.ndim > moved.ty.ndim:
        return None
    source = moved.args[0]
    summed = scope.own_call(source, "relax.add")
    linear = linear_of(scope.own_call(source if summed is None else summed.args[0], *LINEAR_OPS), scope)
    if linear is None or (summed is not None and scope.array(summed.args[1]) is None):
        return None
    shape = (1,) * (linear.rank - factor.ndim) + factor.shape
    factor = factor.reshape(shape).transpose(np.argsort(permutation(moved)))
    if per_channel(factor, linear) is None:
        return None
    return relax.Call(moved.op, [op.multiply(source, constant(factor))], moved.attrs)


def _factors(call: Call, scope: Scope) -> np.ndarray | None:
    """What the left operand is multiplied by, if that is known and finite."""
    array = scope.array(call.args[1])
    if array is None or not is_float(call) or not np.all(np.isfinite(array)):
        return None
    if call.op.name == "relax.multiply":
        return array
    return None if np.any(array == 0) else 1 / array


def _bias_shape(call: Expr, scope: Scope) -> Expr | None:
    """A summand per channel of a convolution or product -> the same values in the shape of a bias."""
    linear = linear_of(scope.call(call.args[0], *LINEAR_OPS), scope)
    array = scope.array(call.args[1])
    if linear is None or array is None or array.shape == linear.bias_shape():
        return None
    if not structural_equal(call.ty, call.args[0].ty):
        return None
    bias = per_channel(array, linear)
    return None if bias is None else op.add(call.args[0], constant(bias.reshape(linear.bias_shape())))


SCALE_BEFORE_PERMUTE = Rule("scale_before_permute", ("relax.multiply",), _before_permute)
SCALE_INTO_WEIGHTS = Rule("scale_into_weights", ("relax.multiply", "relax.divide"), _scale)
BIAS_SHAPE = Rule("bias_shape", ("relax.add",), _bias_shape)
