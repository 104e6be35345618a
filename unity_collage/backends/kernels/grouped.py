"""Convolutions with groups of few channels: one vector holds the results of several groups."""

from __future__ import annotations

from tvm import relax

from ..native.program import NativeStep
from .convolution import convolution, equal_strides, why_not_filters

VECTOR = 16
"""Floats in the longest vector of the kernels; the number of channels must be a multiple."""


def grouped(call: relax.Call) -> NativeStep | str:
    """A convolution with as many results as channels in each group -> grouped, or the reason why not."""
    step = convolution("grouped", call)
    if isinstance(step, str):
        return step
    if reason := why_not_filters(step, 3):
        return reason
    stride = equal_strides(call)
    if isinstance(stride, str):
        return stride
    source, weights = step.arg("src"), step.arg("weights")
    assert source is not None and weights is not None
    if len(weights.dims) != 4:
        return "the filters are of volumes"
    channels, (results, group) = source.dims[1], weights.dims[:2]
    if channels == group:
        return "there is one group"
    if results != channels or channels % VECTOR:
        return f"{results} results of {channels} channels: both numbers must be one multiple of {VECTOR}"
    if group not in (2, 4, 8) and group % VECTOR:
        return f"a group has {group} channels, the kernel's have 2, 4, 8 or a multiple of {VECTOR}"
    return step.with_attrs(stride=stride)
