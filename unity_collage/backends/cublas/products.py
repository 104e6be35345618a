"""Operators that cuBLASLt can compute as matrix products."""

from __future__ import annotations

from tvm import relax

from ..native.products import pointwise_views, product_views
from ..native.program import NativeStep, View
from ..native.values import dtype_of, shape_of, why_not_static

HALVES = frozenset({"float16", "bfloat16"})
DTYPES = HALVES | {"float32"}

_ATTRS = (("alpha", 1.0), ("epilogue", "none"), ("algorithm", 0), ("tf32", 0))
"""The sums of all types are float32. TensorFloat-32 rounds the factors of float32, so it is off unless asked for."""


def product(call: relax.Call) -> NativeStep | str:
    """matmul -> gemm, batched where both operands have batches.

    A product that makes one column is computed as one row: its addend is a bias, and its result is one line of memory.
    """
    if reason := _why_not(call, ("lhs", "rhs")):
        return reason
    views = product_views(call)
    if views.result.dims[-1] == 1:
        return _gemm(_transposed(views.right), _transposed(views.left), _transposed(views.result))
    return _gemm(views.left, views.right, views.result)


def pointwise_convolution(call: relax.Call) -> NativeStep | str:
    """A 1x1 convolution with channels innermost -> gemm of (pixels, channels) and (channels, outputs)."""
    if reason := _why_not(call, ("data", "weights")):
        return reason
    views = pointwise_views(call)
    return views if isinstance(views, str) else _gemm(views.left, views.right, views.result)


def _gemm(a: View, b: View, c: View) -> NativeStep:
    return NativeStep("gemm", (("a", a), ("b", b), ("c", c)), _ATTRS)


def _transposed(view: View) -> View:
    """The view with its last two dims exchanged."""
    *outer, rows, columns = range(len(view.dims))
    order = (*outer, columns, rows)
    dims, strides = (tuple(numbers[axis] for axis in order) for numbers in (view.dims, view.strides))
    return View(view.buffer, dims, strides, view.dtype, view.offset)


def _why_not(call: relax.Call, names: tuple[str, str]) -> str | None:
    for name, value in zip(names, call.args, strict=True):
        if dtype_of(value) not in DTYPES:
            dtype = dtype_of(value) or "of unknown dtype"
            return f"{name} is {dtype}, cuBLASLt takes float32, float16 and bfloat16"
        if reason := why_not_static(name, value):
            return reason
    left, right = (dtype_of(value) for value in call.args)
    if left != right:
        return f"{names[0]} is {left} and {names[1]} is {right}, cuBLASLt takes one dtype"
    if shape_of(call) is None or dtype_of(call) != left:
        return f"the result is {dtype_of(call)} or has no static shape, and the operands are {left}"
    return None
