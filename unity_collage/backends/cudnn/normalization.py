"""Layer normalization of rows."""

from __future__ import annotations

import math

from tvm import relax

from ..native.program import NativeStep
from ..native.values import attrs_of, dtype_of, ints, shape_of, static_shape, view_of
from .types import why_not_operand


def layer_norm(call: relax.Call) -> NativeStep | str:
    """layer_norm over the last axes -> layer_normalization of (rows, normalized, 1, 1), as cuDNN has images."""
    for name, value in zip(("data", "gamma", "beta"), call.args, strict=True):
        if reason := why_not_operand(name, value):
            return reason
    attrs, data = attrs_of(call), call.args[0]
    if not (attrs.center and attrs.scale):
        # TVM's kernels ignore these attributes: they always scale and shift.
        return "a normalization without scale or shift"
    if shape_of(call) is None or any(dtype_of(value) != dtype_of(data) for value in (call, *call.args)):
        return "data, gamma, beta and the result are not of one type"
    shape = static_shape(data)
    axes = sorted(axis % len(shape) for axis in ints(attrs.axes))
    if axes != list(range(len(shape) - len(axes), len(shape))):
        return "the normalized axes are not the last ones"
    size = math.prod(shape[axes[0] :])
    rows, row = (math.prod(shape) // size, size, 1, 1), (1, size, 1, 1)
    args = (
        ("src", view_of(data, rows)),
        ("scale", view_of(call.args[1], row)),
        ("shift", view_of(call.args[2], row)),
        ("dst", view_of(call, rows)),
    )
    return NativeStep("layer_normalization", args, (("epsilon", float(attrs.epsilon)),))
