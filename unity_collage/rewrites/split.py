"""split: query, key and value that were made by one product and taken apart each get a product of their own.

The importer leaves ``matmul, add, reshape, permute_dims, split, squeeze``. Three products of a third of the width
read their operand three times, which is small; slices of one product would be copied, or read with a three times
longer stride. A product of one row is left whole: its parts are contiguous, and its weights are read once either way.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from ..graph.shapes import extents_of
from .constants import constant
from .linear import LINEAR_OPS, is_of_product, is_of_two_tensors, linear_of, per_channel, why_not_linear
from .rewrite import Rewrite
from .scope import GETITEM, Call, Expr, Scope, op, op_name, static_shape
from .views import permutation
from .why_not import WhyNot, is_no, shape_text


def _split(item: relax.TupleGetItem, scope: Scope) -> Expr | WhyNot | None:
    """split(permute(reshape(x @ w + b)))[i] -> permute(reshape(x @ w_i + b_i)), for the columns that part i reads."""
    source = scope.call(item.tuple_value, "relax.split")
    shape = None if source is None else static_shape(source.args[0])
    if source is None or shape is None or not isinstance(source.ty, relax.TupleType):
        return None
    axis = int(source.attrs.axis) % len(shape)
    first, width = _first(source, shape[axis], item.index), extents_of(item)[axis]
    return _columns(source.args[0], axis, np.arange(first, first + width), scope)


def _first(split: Call, size: int, number: int) -> int:
    """Where the part ``number`` of a split begins along its axis, which has ``size`` elements."""
    where = split.attrs.indices_or_sections
    if hasattr(where, "__len__"):
        return int(where[number - 1]) if number else 0
    return min(size, number * -(-size // int(where)))


def _columns(expr: Expr, axis: int, index: np.ndarray, scope: Scope) -> Expr | WhyNot | None:
    """``take(expr, index, axis)`` by taking columns of constant weights upstream, or why not if there are some."""
    call = scope.call(expr, "relax.permute_dims", "relax.reshape", "relax.add", "relax.matmul")
    if call is None:
        return None
    shared = scope.why_not_own(expr)
    if shared is not None:
        return WhyNot(shared, 2) if is_of_product(expr, scope, "relax.matmul") else None
    if op_name(call) == "relax.permute_dims":
        inner = _columns(call.args[0], permutation(call)[axis], index, scope)
        return inner if is_no(inner) else relax.Call(call.op, [inner], call.attrs)
    if op_name(call) == "relax.reshape":
        return _through_reshape(call, axis, index, scope)
    if op_name(call) == "relax.add":
        return _of_sum(call, axis, index, scope)
    return _of_product(call, axis, index, scope)


def _through_reshape(call: Call, axis: int, index: np.ndarray, scope: Scope) -> Expr | WhyNot | None:
    before, after = static_shape(call.args[0]), static_shape(call)
    group = None if before is None or after is None else _group(before, after, axis)
    if group is None or after is None:
        why = f"the axis {axis} of {shape_text(after)} is not a part of one axis of {shape_text(before)}"
        return WhyNot(why, 2) if is_of_product(call.args[0], scope, "relax.matmul") else None
    source_axis, axes = group
    sizes = [after[member] for member in axes]
    flat = np.arange(int(np.prod(sizes))).reshape(sizes).take(index, axis=axis - axes[0]).reshape(-1)
    inner = _columns(call.args[0], source_axis, flat, scope)
    shape = [len(index) if member == axis else size for member, size in enumerate(after)]
    return inner if is_no(inner) else op.reshape(inner, shape)


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


def _of_sum(call: Call, axis: int, index: np.ndarray, scope: Scope) -> Expr | WhyNot | None:
    product, array = scope.call(call.args[0], *LINEAR_OPS), scope.array(call.args[1])
    linear = linear_of(product, scope)
    bias = None if linear is None or array is None else per_channel(array, linear)
    if bias is not None:
        inner = _columns(call.args[0], axis, index, scope)
        return inner if is_no(inner) else op.add(inner, constant(bias[index]))
    if product is None or op_name(product) != "relax.matmul" or is_of_two_tensors(product, scope):
        return None
    summand = f"{scope.title(call.args[1])}, which is added to matmul, is not one number for each column"
    return WhyNot(why_not_linear(product, scope) or summand, 3)


def _of_product(call: Call, axis: int, index: np.ndarray, scope: Scope) -> Expr | WhyNot | None:
    """Columns ``index`` of x @ w, for a product of more than one row."""
    if is_of_two_tensors(call, scope):
        return None
    linear = linear_of(call, scope)
    if linear is None:
        return WhyNot(why_not_linear(call, scope) or "", 3)
    if axis != linear.axis:
        return WhyNot(f"split is along the axis {axis} of matmul, not along its columns", 3)
    if scope.size(call) == linear.channels:
        return WhyNot("matmul has one row, and its parts are contiguous", 3)
    return linear.with_weights(linear.weights.take(index, axis=-1))


SPLIT_INTO_WEIGHTS = Rewrite("split_into_weights", (GETITEM,), _split)
