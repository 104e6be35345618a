"""Matrix products; vectors, batches and broadcast batches are views of matrices."""

from __future__ import annotations

import math

from tvm import relax

from ..native.products import product_views
from ..native.program import NativeStep
from ..native.values import dtype_of, shape_of
from .limits import why_not_operand
from .whole_numbers import BYTES, SUMS


def step(call: relax.Call) -> NativeStep | str:
    """matmul -> matmul; batches that are multiplied by one matrix become rows of one matrix."""
    for side, value in zip(("lhs", "rhs"), call.args, strict=True):
        if reason := why_not_operand("matmul", side, value):
            return reason
    of_bytes = dtype_of(call.args[0]) in BYTES
    allowed = (SUMS,) if of_bytes else (dtype_of(call.args[0]), "float32")
    if shape_of(call) is None or dtype_of(call) not in allowed:
        return f"the result is {dtype_of(call)} or has no static shape"
    views = product_views(call)
    if math.prod(views.result.dims) == 0:
        return "the result is empty"
    args = (("src", views.left), ("weights", views.right), ("dst", views.result))
    return NativeStep("matmul", args)


ENTRIES = {"relax.matmul": step}
