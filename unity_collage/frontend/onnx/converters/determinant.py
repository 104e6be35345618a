"""Determinants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import ir, relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ..node import Converted, OnnxNode
from .precise import narrowed, widened
from .runtime_shapes import computed, product


def _det(node: OnnxNode) -> Converted:
    """The determinants of the matrices in the last two axes."""
    shape = node.shape()
    if len(shape) < 2:
        node.refuse(f"an operand of rank {len(shape)} has no matrices")
    batch, size = product(shape[:-2]), shape[-1]
    x = node.reshaped(widened(node, node[0]), [batch, size, size])
    return narrowed(node, relax.op.reshape(computed(node, _determinants, x), shape[:-2]), node.dtype())


def _determinants(x: te.Tensor) -> te.Tensor:
    """By Gaussian elimination with partial pivoting, on a copy: each matrix by itself."""
    batch, size = x.shape[0], x.shape[1]
    copy = te.compute(x.shape, lambda *place: x(*place), name="copy")
    eliminated, found = te.extern(
        [x.shape, (batch,)],
        [copy],
        lambda ins, outs: _eliminate(ins[0], outs[0], outs[1], batch, size, str(x.dtype)),
        dtype=[x.dtype, x.dtype],
        name="determinants",
    )
    del eliminated
    return te.compute((batch,), lambda n: found(n), name="determinant")


def _eliminate(source: Any, work: Any, found: Any, batch: ir.Expr, size: ir.Expr, dtype: str) -> Any:
    """Write the determinant of each matrix to ``found``; ``work`` holds the rows that are left."""
    with IRBuilder() as builder:
        source, work, found = (T.buffer_proxy(buffer) for buffer in (source, work, found))
        with T.serial(0, batch) as n:
            pivot = T.buffer_proxy(T.alloc_buffer((1,), "int64", scope="local"))
            found[n] = tirx.const(1, dtype)
            with T.grid(size, size) as (row, column):
                work[n, row, column] = source[n, row, column]
            with T.serial(0, size) as step:
                _find_pivot(work, pivot, n, step, size)
                _swap(work, found, pivot, n, step, size)
                found[n] = found[n] * work[n, step, step]
                _clear_below(work, n, step, size)
        return builder.get()


def _find_pivot(work: Any, pivot: Any, n: Any, step: Any, size: Any) -> None:
    """The row, from ``step`` on, with the largest element in the column ``step``."""
    pivot[0] = step.astype("int64")
    with T.serial(0, size - step) as row:
        larger = tirx.abs(work[n, step + row, step]) > tirx.abs(work[n, pivot[0], step])
        with T.If(larger), T.Then():
            pivot[0] = (step + row).astype("int64")


def _swap(work: Any, found: Any, pivot: Any, n: Any, step: Any, size: Any) -> None:
    """Exchange the rows ``step`` and ``pivot``, which changes the determinant's sign."""
    with T.If(tirx.NE(pivot[0], step.astype("int64"))), T.Then():
        found[n] = tirx.const(0, found.dtype) - found[n]
        with T.serial(0, size) as column:
            kept = T.buffer_proxy(T.alloc_buffer((1,), work.dtype, scope="local"))
            kept[0] = work[n, step, column]
            work[n, step, column] = work[n, pivot[0], column]
            work[n, pivot[0], column] = kept[0]


def _clear_below(work: Any, n: Any, step: Any, size: Any) -> None:
    """Subtract multiples of the row ``step`` from those below it. A pivot of 0 decides the determinant."""
    is_pivot = tirx.NE(work[n, step, step], tirx.const(0, work.dtype))
    with T.If(is_pivot), T.Then(), T.serial(0, size - step - 1) as below:
        row = step + 1 + below
        factor = T.buffer_proxy(T.alloc_buffer((1,), work.dtype, scope="local"))
        factor[0] = work[n, row, step] / work[n, step, step]
        with T.serial(0, size) as column:
            work[n, row, column] = work[n, row, column] - factor[0] * work[n, step, column]


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {"Det": _det}
