"""Operators of two tensors, broadcast as in numpy, as oneDNN's binary primitive; and prelu."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tvm import relax

from ..native.program import NativeStep, PostOp, View
from ..native.values import attrs_of, dtype_of, op_name, scalar_of, static_shape, view_dtype, view_of
from ..native.views import broadcast, merged, row_major, unrepeated
from . import eltwise
from .limits import why_not_operand


@dataclass(frozen=True, slots=True)
class BinaryAlgorithm:
    """A binary algorithm, and how its operands are swapped: ``a op b == undo(b swapped a)``."""

    name: str
    swapped: str
    undo: tuple[PostOp, ...] = ()


ALGORITHMS: Mapping[str, BinaryAlgorithm] = {
    "relax.add": BinaryAlgorithm("add", "add"),
    "relax.multiply": BinaryAlgorithm("mul", "mul"),
    "relax.maximum": BinaryAlgorithm("max", "max"),
    "relax.minimum": BinaryAlgorithm("min", "min"),
    "relax.subtract": BinaryAlgorithm("sub", "sub", (eltwise.linear(-1.0),)),
    "relax.divide": BinaryAlgorithm("div", "div", (eltwise.reciprocal(),)),
    "relax.equal": BinaryAlgorithm("eq", "eq"),
    "relax.not_equal": BinaryAlgorithm("ne", "ne"),
    "relax.less": BinaryAlgorithm("lt", "gt"),
    "relax.less_equal": BinaryAlgorithm("le", "ge"),
    "relax.greater": BinaryAlgorithm("gt", "lt"),
    "relax.greater_equal": BinaryAlgorithm("ge", "le"),
}


def step(call: relax.Call) -> NativeStep | str:
    """Binary call -> binary primitive in the fewest dimensions; its first operand is as large as the result."""
    for side, value in zip(("lhs", "rhs"), call.args, strict=True):
        if reason := why_not_operand("binary", side, value):
            return reason
    if any(scalar_of(value) is not None for value in call.args) and not isinstance(
        made := eltwise.step(call), str
    ):
        return made
    algorithm, size = ALGORITHMS[op_name(call)], math.prod(static_shape(call))
    left, right = call.args
    if math.prod(static_shape(left)) == size:
        return _binary(algorithm.name, call, left, right)
    if math.prod(static_shape(right)) != size:
        return "both operands are broadcast"
    made = _binary(algorithm.swapped, call, right, left)
    return made if isinstance(made, str) else made.then(*algorithm.undo)


def _binary(algorithm: str, call: relax.Call, full: relax.Expr, other: relax.Expr) -> NativeStep | str:
    shape = static_shape(call)
    repeating = broadcast(static_shape(other), shape)
    assert repeating is not None
    dims, (strides, other_strides) = merged(shape, row_major(shape), repeating)
    if len(dims) > 3:
        return "the smaller operand repeats in two places, which only the reference kernel takes"
    if len(dims) == 1:
        # Comparisons of vectors run in the reference kernel only, comparisons of matrices of one row do not.
        dims, strides, other_strides = (1, *dims), (dims[0], *strides), (0, *other_strides)
    result = View(call, dims, strides, view_dtype(dtype_of(call)))
    small = unrepeated(View(other, dims, other_strides, dtype_of(other)), result)
    args = (("src0", view_of(full, dims, strides)), ("src1", small), ("dst", result))
    return NativeStep("binary", args, (("algorithm", algorithm),))


def prelu(call: relax.Call) -> NativeStep | str:
    """prelu -> prelu: x if x > 0 else slope * x, with one slope for each channel or for all."""
    data, slope = call.args
    reason = why_not_operand("prelu", "data", data) or why_not_operand("prelu", "slope", slope)
    if reason is not None:
        return reason
    shape = static_shape(data)
    axis = int(attrs_of(call).axis) % len(shape)
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    dims, strides = (outer, shape[axis], inner), (shape[axis] * inner, inner, 1)
    slopes = math.prod(static_shape(slope))
    args = (
        ("src", view_of(data, dims, strides)),
        ("weights", view_of(slope, (1, slopes, 1), (slopes, 1, 1))),
        ("dst", view_of(call, dims, strides)),
    )
    return NativeStep("prelu", args)


ENTRIES = {**dict.fromkeys(ALGORITHMS, step), "relax.nn.prelu": prelu}
