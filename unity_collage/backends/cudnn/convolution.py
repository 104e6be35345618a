"""Convolutions; layouts are expressed by strides, and groups by the numbers of channels."""

from __future__ import annotations

import numpy as np
from tvm import ir, relax

from ..native.program import NativeStep, View
from ..native.values import array_of, attrs_of, dtype_of, shape_of, static_shape
from ..native.views import is_channels_first, is_channels_last, is_dense, row_major
from ..onednn.windows import by_letters, window_of
from .images import as_plane, window_of_plane
from .types import WIDE, why_not_operand

ANCHORS = frozenset(f"relax.nn.conv{n}d" for n in (1, 2, 3))


def convolution(call: relax.Call, algorithm: int, tf32: bool = False) -> NativeStep | str:
    """conv1d, conv2d, conv3d -> convolution by the engine number ``algorithm`` of those that cuDNN recommends.

    With ``tf32``, engines may round float32 operands to TensorFloat-32.
    """
    data, kernel = call.args
    if reason := why_not_operand("data", data) or why_not_operand("weights", kernel):
        return reason
    if dtype_of(kernel) != dtype_of(data):
        return f"data is {dtype_of(data)}, weights are {dtype_of(kernel)}"
    if tf32 and dtype_of(data) != WIDE:
        return f"data is {dtype_of(data)}, TensorFloat-32 is for {WIDE}"
    if shape_of(call) is None or dtype_of(call) not in (dtype_of(data), WIDE):
        return f"the result is {dtype_of(call) or 'of unknown dtype'} or has no static shape"
    attrs, rank = attrs_of(call), len(static_shape(data))
    views = (
        by_letters(data, attrs.data_layout, "NC", rank),
        by_letters(kernel, attrs.kernel_layout, "OI", rank),
        by_letters(call, attrs.out_layout or attrs.data_layout, "NC", rank),
    )
    source, weights, result = views
    if isinstance(source, str) or isinstance(weights, str) or isinstance(result, str):
        return next(view for view in views if isinstance(view, str))
    window = window_of_plane(window_of(rank - 2, attrs.strides, attrs.padding, attrs.dilation))
    args = (("src", as_plane(source)), ("weights", as_plane(weights)), ("dst", as_plane(result)))
    described = (
        ("strides", window.strides),
        ("dilates", window.dilates),
        ("padding_l", window.padding_l),
        ("padding_r", window.padding_r),
        ("groups", int(attrs.groups)),
        ("algorithm", algorithm),
        ("tf32", int(tf32)),
    )
    return NativeStep("convolution", args, described)


def why_not_weights(step: NativeStep) -> str | None:
    """Why no engine can read the weights, or None. Constant weights get the layout of the source (:func:`packed`)."""
    weights = step.arg("weights")
    assert weights is not None
    if isinstance(weights.buffer, ir.GenericConst) or is_channels_first(weights) or is_channels_last(weights):
        return None
    return "the weights are not constant, and neither (O, I, spatial...) nor (O, spatial..., I)"


def packed(step: NativeStep | str) -> NativeStep | str:
    """The step with constant weights in the layout of its source: (O, spatial..., I) where channels are innermost."""
    if isinstance(step, str) or step.primitive != "convolution":
        return step
    source, weights = step.arg("src"), step.arg("weights")
    assert source is not None and weights is not None
    rank = len(weights.dims)
    order = (0, *range(2, rank), 1) if is_channels_last(source) else tuple(range(rank))
    if is_dense(weights, order) or not isinstance(weights.buffer, ir.GenericConst):
        return step
    return step.with_arg("weights", _repacked(weights, order))


def _repacked(view: View, order: tuple[int, ...]) -> View:
    """A view of a constant as a view of a new constant, in which the axes are nested in ``order``."""
    flat = array_of(view.buffer).reshape(-1)[view.offset :]
    steps = [step * flat.itemsize for step in view.strides]
    logical = np.lib.stride_tricks.as_strided(flat, view.dims, steps)
    nested = np.ascontiguousarray(logical.transpose(order))
    inner = dict(zip(order, row_major(nested.shape), strict=True))
    strides = tuple(inner[axis] for axis in range(len(order)))
    return View(relax.const(nested, view.dtype), view.dims, strides, view.dtype)
