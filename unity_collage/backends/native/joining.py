"""Concatenation without a copy of its own: a step writes into its slice of the whole and copies the rest beside it, or
reads the fields where they lie."""

from __future__ import annotations

import math
from itertools import accumulate

from tvm import relax

from .program import Step, View
from .values import attrs_of, dtype_of, shape_of, static_shape, tensors, view_of, why_not_static
from .views import is_channels_last, remap, row_major

MOST_FIELDS = 8
"""Fields that a source is read from."""


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


def fields_read(step: Step, value: relax.Expr, call: relax.Call, lanes: int) -> Step | str:
    """The step that reads the fields of the concat ``call`` along the channels, instead of the whole as ``value``.

    Its source, channels last, becomes ``src``, ``src1``, ``src2``, ...; all but the last have whole vectors of
    ``lanes`` channels.
    """
    fields, source = tensors(call), step.arg("src")
    if source is None or source.buffer != value or sum(view.buffer == value for view in step.views()) != 1:
        return "the concat is not its source alone"
    if step.arg("src1") is not None:
        return "it reads the fields of a concat already"
    images, _, *pixels = source.dims
    if shape_of(value) != (images, *pixels, source.dims[1]) or not is_channels_last(source):
        return "the concat is not an image with channels innermost"
    if int(attrs_of(call).axis or 0) % len(source.dims) != len(source.dims) - 1:
        return "the concat is not along the channels"
    if len(fields) > MOST_FIELDS or any(dtype_of(value) != dtype_of(call) for value in fields):
        return f"there are more than {MOST_FIELDS} fields, or not all of one dtype"
    for number, field in enumerate(fields):
        if reason := why_not_static("a field", field):
            return reason
        channels = static_shape(field)[-1]
        if channels % lanes and number + 1 < len(fields):
            return f"field {number} has {channels} channels, no multiple of {lanes}"
        dims = (images, channels, *pixels)
        rows = row_major(static_shape(field))
        view = View(field, dims, (rows[0], rows[-1], *rows[1:-1]), source.dtype)
        step = step.with_arg(f"src{number or ''}", view)
    return step
