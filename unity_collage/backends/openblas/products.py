"""Operators that OpenBLAS can compute as matrix products."""

from __future__ import annotations

import math

from tvm import relax

from ..native.products import product_views
from ..native.program import NativeStep, View
from ..native.values import attrs_of, dtype_of, ints, shape_of, static_shape, view_of, why_not_static

_ATTRS = (("alpha", 1.0), ("beta", 0.0))


def product(call: relax.Call) -> NativeStep | str:
    """matmul -> gemm, batched where both operands have batches."""
    if reason := _why_not(call, ("lhs", "rhs")):
        return reason
    views = product_views(call)
    return _gemm(views.left, views.right, views.result)


def pointwise_convolution(call: relax.Call) -> NativeStep | str:
    """A 1x1 convolution with channels innermost -> gemm of (pixels, channels) and (channels, outputs)."""
    if reason := _why_not(call, ("data", "weights")):
        return reason
    attrs = attrs_of(call)
    data, kernel = call.args
    shape, layout = static_shape(data), str(attrs.data_layout)
    if layout[-1] != "C" or str(attrs.out_layout or layout) != layout:
        return f"layout {layout} does not keep channels innermost, and only then is a convolution one product"
    taps = [
        extent
        for extent, letter in zip(static_shape(kernel), attrs.kernel_layout, strict=True)
        if letter not in "OI"
    ]
    if math.prod(taps) != 1:
        return "the kernel has more than one tap"
    if int(attrs.groups) != 1 or any(s != 1 for s in ints(attrs.strides)) or any(ints(attrs.padding)):
        return "with groups, strides or padding it is not one product"
    inner, pixels = shape[-1], math.prod(shape[:-1])
    out = math.prod(static_shape(kernel)) // inner
    outputs_first = str(attrs.kernel_layout).index("O") < str(attrs.kernel_layout).index("I")
    weights = view_of(kernel, (inner, out), (1, inner) if outputs_first else (out, 1))
    return _gemm(view_of(data, (pixels, inner)), weights, view_of(call, (pixels, out)))


def _gemm(a: View, b: View, c: View) -> NativeStep:
    return NativeStep("gemm", (("a", a), ("b", b), ("c", c)), _ATTRS)


def _why_not(call: relax.Call, names: tuple[str, str]) -> str | None:
    for name, value in zip(names, call.args, strict=True):
        if dtype_of(value) != "float32":
            return f"{name} is {dtype_of(value) or 'of unknown dtype'}, sgemm takes float32"
        if reason := why_not_static(name, value):
            return reason
    if shape_of(call) is None or dtype_of(call) != "float32":
        return f"the result is {dtype_of(call)} or has no static shape, sgemm makes float32"
    return None
