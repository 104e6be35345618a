"""Operators that OpenBLAS can compute as matrix products."""

from __future__ import annotations

from tvm import relax

from ..native.products import pointwise_views, product_views
from ..native.program import NativeStep, View
from ..native.values import dtype_of, shape_of, why_not_sized

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
    views = pointwise_views(call)
    return views if isinstance(views, str) else _gemm(views.left, views.right, views.result)


def _gemm(a: View, b: View, c: View) -> NativeStep:
    return NativeStep("gemm", (("a", a), ("b", b), ("c", c)), _ATTRS)


def _why_not(call: relax.Call, names: tuple[str, str]) -> str | None:
    for name, value in zip(names, call.args, strict=True):
        if dtype_of(value) != "float32":
            return f"{name} is {dtype_of(value) or 'of unknown dtype'}, sgemm takes float32"
        if reason := why_not_sized(name, value):
            return reason
    if shape_of(call) is None or dtype_of(call) != "float32":
        return f"the result is {dtype_of(call)} or has no static shape, sgemm makes float32"
    return None
