"""Reading convolutions and products with constant weights: their output channels belong to slices of the weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax

from .constants import constant, limits_of
from .scope import Call, Expr, Scope, dtype_of, is_float, op_name, rank_of
from .windows import CONVOLUTIONS

_TRANSPOSED = ("relax.nn.conv1d_transpose", "relax.nn.conv2d_transpose", "relax.nn.conv3d_transpose")
VIEWS = ("relax.reshape", "relax.permute_dims")
LINEAR_OPS = (*CONVOLUTIONS, *_TRANSPOSED, "relax.matmul")
"""Operators with output channels that belong to slices of their right operand."""

_FAR = 32
"""How many views and sums are followed back to a product: the sums of a residual network are all one chain."""


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
        return self.with_weights(self._scaled_weights(scale))

    def why_not_scaled(self, scale: np.ndarray) -> str | None:
        """Why the type of the weights does not hold them times ``scale``, or None.

        They overflow, or the largest weight of a channel becomes denormal and loses bits.
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            exact, factors = np.abs(self._scaled_weights(scale)), _along_weights(self, scale)
        limits = limits_of(self.weights.dtype.name)
        if exact.size and not np.max(exact) <= limits.max:
            return "the weights times the factor overflow"
        shape = (1,) * (exact.ndim - factors.ndim) + factors.shape
        of_a_channel = tuple(axis for axis, size in enumerate(shape) if size == 1)
        largest = np.max(exact, axis=of_a_channel, initial=0.0)
        given = np.max(np.abs(self.weights), axis=of_a_channel, initial=0.0) * (
            factors.reshape(largest.shape) != 0
        )
        vanishes = np.any((given > 0) & (largest < limits.tiny))
        return "the weights times the factor are too small for their type" if vanishes else None

    def _scaled_weights(self, scale: np.ndarray) -> np.ndarray:
        wide = np.promote_types(self.weights.dtype, np.float32)
        return self.weights * _along_weights(self, scale).astype(wide)

    def bias_shape(self) -> tuple[int, ...]:
        """Of a bias in normal form."""
        if op_name(self.call) == "relax.matmul":
            return (self.channels,)
        return tuple(self.channels if axis == self.axis else 1 for axis in range(self.rank))


def linear_of(call: Call | None, scope: Scope) -> Linear | None:
    """``call`` as a :class:`Linear` if it is one, in one floating point type."""
    if call is None or op_name(call) not in LINEAR_OPS:
        return None
    weights = scope.array(call.args[1])
    if weights is None or why_not_linear(call, scope) is not None:
        return None
    rank = rank_of(call)
    if op_name(call) == "relax.matmul":
        return Linear(call, weights, rank - 1, rank, weights.shape[-1])
    layout, kernel = str(call.attrs.out_layout), str(call.attrs.kernel_layout)
    groups = int(call.attrs.groups) if op_name(call) in _TRANSPOSED else 1
    return Linear(call, weights, layout.index("C"), rank, weights.shape[kernel.index("O")] * groups)


def why_not_linear(call: Call, scope: Scope) -> str | None:
    """Why the output channels of one of ``LINEAR_OPS`` are not slices of known weights, or None."""
    weights, name = scope.array(call.args[1]), op_name(call).removeprefix("relax.")
    if weights is None:
        return f"the weights of {name}, {scope.title(call.args[1])}, are not constant"
    if not is_float(call) or dtype_of(call) != dtype_of(call.args[1]):
        return f"{name} makes {dtype_of(call)} with weights of {dtype_of(call.args[1])}, not one floating point type"
    if name == "matmul":
        vector = weights.ndim < 2 or rank_of(call.args[0]) < 2 or rank_of(call) < 2
        return "an operand of matmul is a vector, not a matrix" if vector else None
    layout, kernel = str(call.attrs.out_layout), str(call.attrs.kernel_layout)
    if not layout.isalpha() or not kernel.isalpha():
        return f"{name} has the layouts {layout} and {kernel}, which are blocked"
    return None


def is_of_two_tensors(call: Call, scope: Scope) -> bool:
    """Whether ``call`` is a product of two values that are computed, such as queries and keys."""
    return op_name(call) == "relax.matmul" and scope.array(call.args[1]) is None


def is_of_product(expr: Expr, scope: Scope, *ops: str) -> bool:
    """Whether ``expr`` is one of ``ops``, by default any of ``LINEAR_OPS``, or views and sums of one."""
    wanted = ops or LINEAR_OPS
    for _ in range(_FAR):
        call = scope.call(expr, *VIEWS, "relax.add", *wanted)
        if call is None or op_name(call) in wanted:
            return call is not None
        expr = call.args[0]
    return False


def _along_weights(linear: Linear, scale: np.ndarray) -> np.ndarray:
    """One factor per output channel, shaped to broadcast against the weights."""
    attrs = linear.call.attrs
    if op_name(linear.call) == "relax.matmul":
        return scale
    layout = str(attrs.kernel_layout)
    if op_name(linear.call) in CONVOLUTIONS:
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
    if varies not in ([], [linear.axis]) or array.size not in (1, linear.channels):
        return None
    return np.broadcast_to(array.reshape(-1), (linear.channels,))
