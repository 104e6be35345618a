"""Operators that make tensors from sizes, bounds and single values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import relax, sym, te, tirx

from ..arrays import dtype_of
from ..node import Converted, OnnxNode
from ..symbolic import is_nonnegative
from .runtime_shapes import as_int64, empty, intrinsics, is_empty, run_time_sizes, scalar


def _constant_of_shape(node: OnnxNode) -> Converted:
    value = np.asarray(node.attribute("value", np.zeros(1, "float32"))).reshape(())
    sizes, dtype = node.sizes(0), value.dtype.name
    if is_empty(sizes):
        return empty(node, sizes, dtype)
    return relax.op.full(relax.ShapeExpr(sizes), node.constant(value, dtype), dtype)


def _eye_like(node: OnnxNode) -> Converted:
    if node.rank() != 2:
        node.refuse(f"its operand has rank {node.rank()}, not 2")
    given = node.attribute("dtype")
    dtype, offset = (node.dtype() if given is None else dtype_of(given)), node.attribute("k", 0)

    def eye(sizes: list[Any]) -> te.Tensor:
        one, zero = tirx.const(1, dtype), tirx.const(0, dtype)
        return te.compute(
            sizes, lambda i, j: tirx.Select(as_int64(j) - as_int64(i) == offset, one, zero), name="eye"
        )

    return node.builder.call_te(eye, node.shape())


def _range(node: OnnxNode) -> Converted:
    """start + n * delta for the max(ceil((limit - start) / delta), 0) numbers n from 0 on."""
    known = [node.numbers(position) for position in range(3)]
    if node.dtype() == "int64" and all(node.value(position).known is not None for position in range(3)):
        return _of_sizes(node)
    dtype = node.dtype()
    if all(array is not None for array in known):
        start, limit, delta = (np.asarray(array).reshape(()).astype("float64") for array in known)
        sizes: list[Any] = [max(int(np.ceil((limit - start) / delta)), 0)]
        if is_empty(sizes):
            return empty(node, sizes, dtype)
    else:
        sizes = run_time_sizes(
            node, lambda *bounds: [_count(*map(scalar, bounds))], node[0], node[1], node[2]
        )

    def numbers(start: te.Tensor, delta: te.Tensor, sizes: list[Any]) -> te.Tensor:
        return te.compute(sizes, lambda n: _nth(scalar(start), scalar(delta), n, dtype), name="range")

    return node.builder.call_te(numbers, node[0], node[2], sizes)


def _nth(start: Any, delta: Any, n: Any, dtype: str) -> Any:
    if dtype in ("float16", "bfloat16"):
        return (start.astype("float32") + n.astype("float32") * delta.astype("float32")).astype(dtype)
    return start + n.astype(dtype) * delta


def _count(start: Any, limit: Any, delta: Any) -> Any:
    dtype = str(start.expr_ty().dtype)
    if "float" in dtype:
        span = (limit.astype("float64") - start.astype("float64")) / delta.astype("float64")
        return tirx.max(intrinsics.ceil(span).astype("int64"), as_int64(0))
    first, last, step = (item.astype("int64") for item in (start, limit, delta))
    pace = tirx.max(tirx.Select(step < 0, -step, step), as_int64(1))
    gap = tirx.max(tirx.Select(step < 0, first - last, last - first), as_int64(0))
    return tirx.floordiv(gap + pace - 1, pace)


def _of_sizes(node: OnnxNode) -> Converted:
    """A range of symbolic sizes."""
    (start,), (limit,), (delta,) = (node.sizes(position) for position in range(3))
    if not isinstance(delta, int) or delta == 0:
        node.refuse("its delta is a size that is not known")
    count = limit - start if delta > 0 else start - limit
    if isinstance(start, int) and start == 0 and delta == 1:
        sizes = [limit]
    else:
        pace = abs(delta)
        span = sym.Analyzer().simplify(as_int64(count))
        span = span if is_nonnegative(span) else tirx.max(span, as_int64(0))
        sizes = [tirx.floordiv(span + (pace - 1), as_int64(pace)) if pace > 1 else span]

    def numbers(start: Any, sizes: list[Any]) -> te.Tensor:
        return te.compute(sizes, lambda n: as_int64(start) + as_int64(n) * delta, name="range")

    return node.builder.call_te(numbers, start, sizes)


def _window(constant: float, once: float, twice: float = 0.0) -> Callable[[OnnxNode], Converted]:
    """constant - once cos(t) + twice cos(2 t), where t = 2 pi i / size.

    If the window is not periodic, t = 2 pi i / (size - 1).
    """

    def convert(node: OnnxNode) -> Converted:
        size, dtype = node.size(0), dtype_of(node.attribute("output_datatype", 1))
        less = 0 if node.attribute("periodic", 1) else 1
        if is_empty([size]):
            return empty(node, [0], dtype)

        def window(size: Any) -> te.Tensor:
            period = tirx.max(as_int64(size) - less, as_int64(1)).astype("float64")

            def element(n: Any) -> Any:
                turn = n.astype("float64") * (2.0 * math.pi) / period
                found = constant - once * intrinsics.cos(turn) + twice * intrinsics.cos(2.0 * turn)
                return found.astype(dtype)

            return te.compute((size,), element, name="window")

        return node.builder.call_te(window, size)

    return convert


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "BlackmanWindow": _window(0.42, 0.5, 0.08),
    "ConstantOfShape": _constant_of_shape,
    "EyeLike": _eye_like,
    "HammingWindow": _window(25 / 46, 21 / 46),
    "HannWindow": _window(0.5, 0.5),
    "Range": _range,
}
