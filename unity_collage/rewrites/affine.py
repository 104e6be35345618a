"""affine: factors and summands per output channel go into the constants of the convolution before them.

Normal form: ``add(conv(x, weights), bias)`` with a bias of shape (1, C, 1, 1) for NCHW, and
``add(matmul(x, weights), bias)`` with a bias of shape (N,).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax

from .constants import constant
from .rule import Rule
from .scope import Call, Expr, Scope, dtype_of, op, static_shape

_CONVOLUTIONS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")
_TRANSPOSED = ("relax.nn.conv1d_transpose", "relax.nn.conv2d_transpose", "relax.nn.conv3d_transpose")
LINEAR_OPS = (*_CONVOLUTIONS, *_TRANSPOSED, "relax.matmul")
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
        return self.with_weights(self.weights * _along_weights(self, scale).astype(self.weights.dtype))

    def bias_shape(self) -> tuple[int, ...]:
        """Of a bias in normal form."""
        if self.call.op.name == "relax.matmul":
            return (self.channels,)
        return tuple(self.channels if axis == self.axis else 1 for axis in range(self.rank))


def linear_of(call: Call | None, scope: Scope) -> Linear | None:
    """``call`` as a :class:`Linear` if it is one of static shape."""
    weights = None if call is None or call.op.name not in LINEAR_OPS else scope.array(call.args[1])
    shape = None if call is None else static_shape(call)
    if call is None or weights is None or shape is None:
        return None
    if call.op.name == "relax.matmul":
        rank_one = weights.ndim < 2 or call.args[0].ty.ndim < 2
        return None if rank_one else Linear(call, weights, len(shape) - 1, len(shape), shape[-1])
    layout = str(call.attrs.out_layout)
    if not layout.isalpha() or not str(call.attrs.kernel_layout).isalpha():
        return None
    axis = layout.index("C")
    return Linear(call, weights, axis, len(shape), shape[axis])


def _along_weights(linear: Linear, scale: np.ndarray) -> np.ndarray:
    """One factor per output channel, shaped to broadcast against the weights."""
    attrs = linear.call.attrs
    if linear.call.op.name == "relax.matmul":
        return scale
    layout = str(attrs.kernel_layout)
    if linear.call.op.name in _CONVOLUTIONS:
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
    factor = scope.array(call.args[1])
    if factor is None:
        return None
    source, shift = call.args[0], None
    summed = scope.own_call(source, "relax.add")
    if summed is not None:
        source, shift = summed.args[0], scope.array(summed.args[1])
        if shift is None:
            return None
    linear = linear_of(scope.own_call(source, *LINEAR_OPS), scope)
    scale = None if linear is None else per_channel(_factors(call, factor), linear)
    if linear is None or scale is None:
        return None
    if shift is None:
        return linear.scaled(scale)
    summand = per_channel(shift, linear)
    if summand is None:
        return None
    bias = (summand * scale).reshape(linear.bias_shape())
    return op.add(linear.scaled(scale), constant(bias.astype(shift.dtype)))


def _factors(call: Expr, array: np.ndarray) -> np.ndarray:
    return 1 / array if call.op.name == "relax.divide" else array


def _bias_shape(call: Expr, scope: Scope) -> Expr | None:
    """A summand per channel of a convolution or product -> the same values in the shape of a bias."""
    linear = linear_of(scope.call(call.args[0], *LINEAR_OPS), scope)
    array = scope.array(call.args[1])
    if linear is None or array is None or array.shape == linear.bias_shape():
        return None
    if static_shape(call) != static_shape(call.args[0]) or dtype_of(call) != dtype_of(call.args[1]):
        return None
    bias = per_channel(array, linear)
    return None if bias is None else op.add(call.args[0], constant(bias.reshape(linear.bias_shape())))


SCALE_INTO_WEIGHTS = Rule("scale_into_weights", ("relax.multiply", "relax.divide"), _scale)
BIAS_SHAPE = Rule("bias_shape", ("relax.add",), _bias_shape)
