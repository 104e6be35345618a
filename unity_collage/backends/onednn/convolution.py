"""Convolutions and transposed convolutions with one to three spatial dims; layouts are expressed by strides."""

from __future__ import annotations

from tvm import relax

from ..native.program import NativeStep, View
from ..native.values import attrs_of, dtype_of, shape_of, static_shape
from .limits import why_not_operand
from .whole_numbers import BYTES, SUMS
from .windows import Window, by_letters, window_of


def convolution(call: relax.Call) -> NativeStep | str:
    """conv1d, conv2d, conv3d -> convolution; with groups the weights are (G, O/G, I/G, spatial...)."""
    return _step(call, "convolution", "OI")


def deconvolution(call: relax.Call) -> NativeStep | str:
    """conv1d_transpose, ... -> deconvolution. As in oneDNN, output padding only shows in the shape of the result."""
    return _step(call, "deconvolution", "IO")


def _step(call: relax.Call, primitive: str, channels: str) -> NativeStep | str:
    data, kernel = call.args
    reason = why_not_operand(primitive, "data", data) or why_not_operand(primitive, "weights", kernel)
    if reason is not None:
        return reason
    allowed = (SUMS,) if dtype_of(data) in BYTES else (dtype_of(data), "float32")
    if shape_of(call) is None or dtype_of(call) not in allowed:
        return f"the result is {dtype_of(call)} or has no static shape"
    attrs, rank = attrs_of(call), len(static_shape(data))
    source = by_letters(data, attrs.data_layout, "NC", rank)
    weights = by_letters(kernel, attrs.kernel_layout, "OI", rank)
    result = by_letters(call, attrs.out_layout or attrs.data_layout, "NC", rank)
    for view in (source, weights, result):
        if isinstance(view, str):
            return view
    assert isinstance(source, View) and isinstance(weights, View) and isinstance(result, View)
    window = window_of(rank - 2, attrs.strides, attrs.padding, attrs.dilation)
    groups = int(attrs.groups)
    args = (("src", source), ("weights", _grouped(weights, groups, channels[0])), ("dst", result))
    return NativeStep(primitive, args, _attrs(window))


def _attrs(window: Window) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return (
        ("strides", window.strides),
        ("dilates", window.dilates),
        ("padding_l", window.padding_l),
        ("padding_r", window.padding_r),
    )


def _grouped(weights: View, groups: int, divided: str) -> View:
    """(O, I, spatial...) -> (G, O, I, spatial...); Relax keeps all groups in the dim ``divided``, O or I."""
    if groups == 1:
        return weights
    axis = 0 if divided == "O" else 1
    dims, strides = list(weights.dims), weights.strides
    dims[axis] //= groups
    return View(weights.buffer, (groups, *dims), (dims[axis] * strides[axis], *strides), weights.dtype)


ENTRIES = {
    **{f"relax.nn.conv{n}d": convolution for n in (1, 2, 3)},
    **{f"relax.nn.conv{n}d_transpose": deconvolution for n in (1, 2, 3)},
}
