"""split: query, key and value that were made by one product and taken apart each get a product of their own.

The importer leaves ``matmul, add, reshape, permute_dims, split, squeeze``. Three products of a third of the width read
their operand three times, which is small; slices of one product would be copied, or read with a three times
longer stride. A product of one row is left whole: its parts are contiguous, and one pass over the weights it is
either way.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from .affine import LINEAR_OPS, linear_of, per_channel
from .constants import constant
from .rule import Rule
from .scope import GETITEM, Call, Expr, Scope, op, static_shape
from .views import permutation


def _split(item: Expr, scope: Scope) -> Expr | None:
    """split(permute(reshape(x @ w + b)))[i] -> permute(reshape(x @ w_i + b_i)), for the columns that part i reads."""
    source = scope.call(item.tuple_value, "relax.split")
    if source is None or static_shape(source.args[0]) is None:
        return None
    axis = int(source.attrs.axis) % source.args[0].ty.ndim
    widths = [int(part.shape.values[axis]) for part in source.ty.fields]
    first = sum(widths[: item.index])
    return _columns(source.args[0], axis, np.arange(first, first + widths[item.index]), scope)


def _columns(expr: Expr, axis: int, index: np.ndarray, scope: Scope) -> Expr | None:
    """``take(expr, index, axis)`` by taking columns of constant weights upstream, or None."""
    call = scope.own_call(expr, "relax.permute_dims", "relax.reshape", "relax.add", "relax.matmul")
    if call is None:
        return None
    if call.op.name == "relax.permute_dims":
        inner = _columns(call.args[0], permutation(call)[axis], index, scope)
        return None if inner is None else relax.Call(call.op, [inner], call.attrs)
    if call.op.name == "relax.reshape":
        return _through_reshape(call, axis, index, scope)
    if call.op.name == "relax.add":
        return _of_sum(call, axis, index, scope)
    return _of_product(call, axis, index, scope)


def _through_reshape(call: Call, axis: int, index: np.ndarray, scope: Scope) -> Expr | None:
    before, after = static_shape(call.args[0]), static_shape(call)
    group = None if before is None or after is None else _group(before, after, axis)
    if group is None or after is None:
        return None
    source_axis, axes = group
    sizes = [after[member] for member in axes]
    flat = np.arange(int(np.prod(sizes))).reshape(sizes).take(index, axis=axis - axes[0]).reshape(-1)
    inner = _columns(call.args[0], source_axis, flat, scope)
    shape = [len(index) if member == axis else size for member, size in enumerate(after)]
    return None if inner is None else op.reshape(inner, shape)


def _group(before: tuple[int, ...], after: tuple[int, ...], axis: int) -> tuple[int, range] | None:
    """The one axis of ``before`` that a reshape spreads over some axes of ``after``, ``axis`` among them."""
    for source_axis, size in enumerate(before):
        ahead = int(np.prod(before[:source_axis]))
        for first in range(axis + 1):
            for last in range(axis, len(after)):
                spread = int(np.prod(after[first : last + 1])) == size
                if spread and int(np.prod(after[:first])) == ahead and size > 1:
                    return source_axis, range(first, last + 1)
    return None


def _of_sum(call: Call, axis: int, index: np.ndarray, scope: Scope) -> Expr | None:
    linear = linear_of(scope.own_call(call.args[0], *LINEAR_OPS), scope)
    array = scope.array(call.args[1])
    bias = None if linear is None or array is None else per_channel(array, linear)
    inner = None if bias is None else _columns(call.args[0], axis, index, scope)
    return None if inner is None or bias is None else op.add(inner, constant(bias[index]))


def _of_product(call: Call, axis: int, index: np.ndarray, scope: Scope) -> Expr | None:
    """Columns ``index`` of x @ w, for a product of more than one row."""
    linear = linear_of(call, scope)
    if linear is None or axis != linear.axis or scope.size(call) == linear.channels:
        return None
    return linear.with_weights(linear.weights.take(index, axis=-1))


SPLIT_INTO_WEIGHTS = Rule("split_into_weights", (GETITEM,), _split)
