"""Concatenation without a copy of its own: a step writes into its slice of the whole and copies the rest beside it."""

from __future__ import annotations

import math
from itertools import accumulate

from tvm import relax

from .program import Step, View
from .values import attrs_of, dtype_of, shape_of, static_shape, tensors, view_of, why_not_static
from .views import remap, row_major


def joined(step: Step, call: relax.Call, field: int) -> Step | str:
    """The step that writes its result, field ``field`` of the concat ``call``, where that field lies in the whole.

    The other fields become arguments ``beside0``, ``beside1``, ... as matrices of the whole's outer dims by what is
    contiguous, and their places in the whole ``dst_beside0``, ...
    """
    fields, shape = tensors(call), shape_of(call)
    for value in fields:
        if reason := why_not_static("a field", value):
            return reason
    if shape is None or any(dtype_of(value) != dtype_of(call) for value in fields):
        return "the fields are not of one dtype, or the whole has no static shape"
    axis = int(attrs_of(call).axis or 0) % len(shape)
    strides = row_major(shape)
    lengths = [static_shape(value)[axis] * strides[axis] for value in fields]
    begins = [0, *accumulate(lengths)][:-1]
    place = remap(step.result, static_shape(fields[field]), strides, call, begins[field])
    if place is None:
        return "no strides describe the result inside the whole"
    rows, row = math.prod(shape[:axis]), sum(lengths)
    others = [i for i in range(len(fields)) if i != field]
    step = step.with_result(place)
    for number, i in enumerate(others):
        whole = View(call, (rows, lengths[i]), (row, 1), place.dtype, begins[i])
        step = step.with_arg(f"beside{number}", view_of(fields[i], whole.dims))
        step = step.with_arg(f"dst_beside{number}", whole)
    return step


def is_joined(step: Step) -> bool:
    """Whether the result of a step is a slice of what it writes: nothing may go behind that."""
    return step.arg("beside0") is not None
