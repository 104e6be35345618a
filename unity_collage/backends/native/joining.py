"""Concatenation without a kernel of its own.

A step writes its result into its slice of the concatenation and also copies the other slices there (sibling copies). Or
it reads the fields of a concatenation in place. The executor calls the arguments of sibling copies ``beside0``, ...
"""

from __future__ import annotations

import math
from itertools import accumulate

from tvm import relax

from .program import NativeStep, View
from .values import attrs_of, dtype_of, shape_of, static_shape, tensors, view_of, why_not_static
from .views import is_channels_last, remap, row_major

SIBLING = "beside"
"""The prefix of the executor's names of sibling copies."""

MOST_FIELDS = 8
"""The most fields that a source may consist of."""


def joined(step: NativeStep, call: relax.Call, field: int) -> NativeStep | str:
    """The step that writes its result, field ``field`` of the concat ``call``, into its slice of the concatenation.

    The other fields become arguments ``beside0``, ``beside1``, ...: matrices with the outer dims as rows and with
    contiguous columns. Their slices of the concatenation become ``dst_beside0``, ``dst_beside1``, ...
    """
    fields, shape = tensors(call), shape_of(call)
    for value in fields:
        if reason := why_not_static("a field", value):
            return reason
    if shape is None or any(dtype_of(value) != dtype_of(call) for value in fields):
        return "the fields are not of one dtype, or the concatenation has no static shape"
    axis = int(attrs_of(call).axis or 0) % len(shape)
    strides = row_major(shape)
    lengths = [static_shape(value)[axis] * strides[axis] for value in fields]
    begins = [0, *accumulate(lengths)][:-1]
    place = remap(step.result, static_shape(fields[field]), strides, call, begins[field])
    if place is None:
        return "no strides describe the result as a slice of the concatenation"
    rows, row = math.prod(shape[:axis]), sum(lengths)
    others = [i for i in range(len(fields)) if i != field]
    step = step.with_result(place)
    for number, i in enumerate(others):
        whole = View(call, (rows, lengths[i]), (row, 1), place.dtype, begins[i])
        step = step.with_arg(f"{SIBLING}{number}", view_of(fields[i], whole.dims))
        step = step.with_arg(f"dst_{SIBLING}{number}", whole)
    return step


def is_joined(step: NativeStep) -> bool:
    """Whether a step writes a slice of a concatenation; then no operator may follow in the same step."""
    return step.arg(f"{SIBLING}0") is not None


def fields_read(step: NativeStep, value: relax.Expr, call: relax.Call, lanes: int) -> NativeStep | str:
    """The step that reads the fields of ``call``, a concat of channels, instead of its result ``value``.

    Its source, channels last, becomes ``src``, ``src1``, ``src2``, ... In all but the last the number of channels is a
    multiple of ``lanes``.
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
            return f"field {number} has {channels} channels, not a multiple of {lanes}"
        dims = (images, channels, *pixels)
        rows = row_major(static_shape(field))
        view = View(field, dims, (rows[0], rows[-1], *rows[1:-1]), source.dtype)
        step = step.with_arg(f"src{number or ''}", view)
    return step
