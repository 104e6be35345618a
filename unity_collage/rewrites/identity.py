"""identity: operators that return their operand."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm_ffi import structural_equal

from .rewrite import Rewrite
from .scope import GETITEM, Call, Expr, Scope, op, op_name
from .why_not import WhyNot

_NEUTRAL = {
    "relax.add": 0.0,
    "relax.subtract": 0.0,
    "relax.multiply": 1.0,
    "relax.divide": 1.0,
    "relax.power": 1.0,
}

_SAME_IF_SAME_SHAPE = (
    "relax.broadcast_to",
    "relax.collapse_sum_to",
    "relax.expand_dims",
    "relax.flatten",
    "relax.nn.batch_flatten",
    "relax.repeat",
    "relax.reshape",
    "relax.squeeze",
    "relax.tile",
)

_ALIGNED = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
"""Coordinate modes with which the pixels of two images of equal size coincide: not for crops, and not half a pixel
off.
"""


def _same_type(expr: Expr, source: Expr) -> bool:
    """Whether both have one known shape and dtype; equal but unknown shapes prove nothing."""
    known = isinstance(getattr(source.ty, "shape", None), relax.ShapeExpr)
    return known and structural_equal(expr.ty, source.ty)


def _dropout(item: relax.TupleGetItem, scope: Scope) -> Expr | None:
    """dropout(x)[0] -> x: this is inference."""
    source = scope.call(item.tuple_value, "relax.nn.dropout")
    return source.args[0] if source is not None and item.index == 0 else None


def _same_shape(call: Call, scope: Scope) -> Expr | None:
    """reshape(x, shape of x) -> x, and the like."""
    return call.args[0] if _same_type(call, call.args[0]) else None


def _same_dtype(call: Call, scope: Scope) -> Expr | None:
    """astype(x, dtype of x) -> x."""
    return call.args[0] if structural_equal(call.ty, call.args[0].ty) else None


def _permute(call: Call, scope: Scope) -> Expr | None:
    """permute_dims(x, [0, 1, 2]) -> x."""
    axes = call.attrs.axes
    ordered = axes is not None and [int(axis) for axis in axes] == list(range(len(axes)))
    return call.args[0] if ordered else None


def _whole_slice(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """strided_slice(x, all of x) -> x. A slice of the same size with step 1 is all of it."""
    if not _same_type(call, call.args[0]):
        return None
    steps = scope.value(call.args[4]) if len(call.args) > 4 else relax.Tuple([])
    forward = isinstance(steps, relax.Tuple) and all(_is_one(step) for step in steps.fields)
    return (
        call.args[0] if forward else WhyNot("strided_slice has the size of its operand, but not the step 1")
    )


def _is_one(step: Expr) -> bool:
    return int(getattr(step, "value", 0)) == 1


def _pad_by_nothing(call: Call, scope: Scope) -> Expr | None:
    """pad(x, 0, 0, ...) -> x."""
    return call.args[0] if not any(int(width) for width in call.attrs.pad_width) else None


def _resize_to_its_size(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """resize2d(x, size of x) -> x: each pixel of the result has the coordinates of one of x."""
    if not _same_type(call, call.args[0]):
        return None
    mode = str(call.attrs.coordinate_transformation_mode)
    return (
        call.args[0] if mode in _ALIGNED else WhyNot(f"resize has the coordinates {mode}, which move pixels")
    )


def _join_of_one(call: Call, scope: Scope) -> Expr | None:
    """concat((x,)) -> x; stack((x,), axis) -> expand_dims(x, axis)."""
    parts = scope.value(call.args[0])
    if not isinstance(parts, relax.Tuple) or len(parts.fields) != 1:
        return None
    if op_name(call) == "relax.concat":
        return parts.fields[0]
    return op.expand_dims(parts.fields[0], int(call.attrs.axis or 0))


def _split_into_one(call: Call, scope: Scope) -> Expr | None:
    """split(x, 1) -> x; Relax gives it the type of a tensor."""
    return call.args[0] if isinstance(call.ty, relax.TensorType) else None


def _neutral(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """x + 0, x - 0, x * 1, x / 1, x ** 1 -> x, where the constant does not widen x."""
    array = scope.array(call.args[1])
    if array is None or not np.all(array == _NEUTRAL[op_name(call)]):
        return None
    if _same_type(call, call.args[0]):
        return call.args[0]
    name, number = op_name(call).removeprefix("relax."), _NEUTRAL[op_name(call)]
    return WhyNot(f"{name} with {number:.0f} makes {call.ty} of {call.args[0].ty}, not the same shape")


DROP_DROPOUT = Rewrite("drop_dropout", (GETITEM,), _dropout)
DROP_SAME_SHAPE = Rewrite("drop_same_shape", _SAME_IF_SAME_SHAPE, _same_shape)
DROP_SAME_DTYPE = Rewrite("drop_same_dtype", ("relax.astype",), _same_dtype)
DROP_IDENTITY_PERMUTE = Rewrite("drop_identity_permute", ("relax.permute_dims",), _permute)
DROP_WHOLE_SLICE = Rewrite("drop_whole_slice", ("relax.strided_slice",), _whole_slice)
DROP_EMPTY_PAD = Rewrite("drop_empty_pad", ("relax.nn.pad",), _pad_by_nothing)
DROP_RESIZE_TO_ITS_SIZE = Rewrite(
    "drop_resize_to_its_size", ("relax.image.resize2d", "relax.image.resize3d"), _resize_to_its_size
)
DROP_JOIN_OF_ONE = Rewrite("drop_join_of_one", ("relax.concat", "relax.stack"), _join_of_one)
DROP_SPLIT_INTO_ONE = Rewrite("drop_split_into_one", ("relax.split",), _split_into_one)
DROP_NEUTRAL = Rewrite("drop_neutral", tuple(_NEUTRAL), _neutral)
