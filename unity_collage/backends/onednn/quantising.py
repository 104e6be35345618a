"""Quantising while a product of bytes is stored, and dequantising while a post-operation reads.

A quotient by the scale is a product with its reciprocal here, and the zero point is added before rounding. So a result
may be one step off where a quotient is half a step from two integers, or nearly so.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import relax

from ..native.program import NativeStep, PostOp
from ..native.values import dtype_of, scalar_of
from . import eltwise, post_ops
from .whole_numbers import BYTES

QUANTIZE, DEQUANTIZE = "relax.quantize", "relax.dequantize"


def write_quantized(step: NativeStep, call: relax.Call) -> NativeStep | str:
    """The step that stores its float32 result as ``call`` quantises it, or the reason why not."""
    source = step.arg("src")
    if source is None or source.dtype not in BYTES or step.arg("weights") is None:
        return "only products of bytes are quantised while they are stored"
    numbers = _scalars(call)
    if step.result.dtype != "float32" or dtype_of(call) not in BYTES or numbers is None:
        return (
            f"{step.result.dtype} is quantised to {dtype_of(call)}, or not by one known scale and zero point"
        )
    scale, zero = numbers
    moved = () if (scale, zero) == (1.0, 0.0) else (eltwise.linear(1.0 / scale, zero),)
    grown = post_ops.with_functions(step, moved)
    if isinstance(grown, str):
        return grown
    return grown.with_result(replace(grown.result, buffer=call, dtype=dtype_of(call)))


def widened_again(step: NativeStep, call: relax.Call) -> NativeStep | str:
    """The step that rounds its result to bytes, and goes on with the floats for which they stand, or why not.

    Exporters write a quantised sum so: the result of a convolution is quantised, and dequantised to be added.
    """
    numbers = _scalars(call)
    if step.result.dtype not in BYTES or dtype_of(call) != "float32" or numbers is None:
        return f"{step.result.dtype} is dequantised to {dtype_of(call)}, or not by one known scale and zero point"
    scale, zero = numbers
    limits = np.iinfo(step.result.dtype)
    rounded = (eltwise.apply("round"), eltwise.apply("clip_v2", float(limits.min), float(limits.max)))
    grown = post_ops.with_functions(step, (*rounded, eltwise.linear(scale, -zero * scale)))
    if isinstance(grown, str):
        return grown
    return grown.with_result(replace(grown.result, buffer=call, dtype="float32"))


def read_quantized(step: NativeStep, value: relax.Expr, call: relax.Call) -> NativeStep | str:
    """The step with a post-operation that reads bytes in place of ``value``, which ``call`` dequantises, or why not.

    y + (q - z) s  ->  (y / s + q) s - z s, since a binary post-operation reads bytes as they are.
    """
    numbers = _scalars(call)
    readers = [post for post in step.post_ops if post.arg is not None and post.arg.buffer == value]
    if numbers is None or dtype_of(call.args[0]) not in BYTES or dtype_of(value) != "float32":
        return f"{dtype_of(call.args[0])} is not dequantised by one known scale and zero point"
    if any(view.buffer == value for _, view in step.args) or step.before:
        return "only operands of post-operations are dequantised while they are read"
    if len(readers) != 1 or readers[0].algorithm != "add" or _of(step, value) != 1:
        return "only an operand that is added once is dequantised while it is read"
    scale, zero = numbers
    (reader,) = readers
    assert reader.arg is not None
    read = replace(reader, arg=replace(reader.arg, buffer=call.args[0], dtype=dtype_of(call.args[0])))
    around: tuple[PostOp, ...] = (eltwise.linear(1.0 / scale), read, eltwise.linear(scale, -zero * scale))
    at = step.post_ops.index(reader)
    grown = replace(step, post_ops=(*step.post_ops[:at], *around, *step.post_ops[at + 1 :]))
    return f"oneDNN takes {post_ops.MOST} post-operations" if len(grown.post_ops) > post_ops.MOST else grown


def _of(step: NativeStep, value: relax.Expr) -> int:
    return sum(view.buffer == value for view in step.views())


def _scalars(call: relax.Call) -> tuple[float, float] | None:
    """The scale and the zero point, if each is one known number; the scale is positive."""
    scale, zero = (scalar_of(parameter) for parameter in call.args[1:])
    return None if scale is None or zero is None or not 0 < scale < float("inf") else (scale, zero)
