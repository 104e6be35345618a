"""Softmax, its logarithm, and Hardmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import numpy as np
from tvm import relax

from ..node import Converted, OnnxNode
from ..values import Dim
from .precise import dtype_of, narrowed, rank_of, widened


def _along_axis(make: Callable[[OnnxNode, relax.Expr, int], relax.Expr]) -> Callable[[OnnxNode], Converted]:
    """Along one axis from version 13 on; before, along all axes from ``axis`` on at once."""

    def convert(node: OnnxNode) -> Converted:
        rank, dtype, x = node.rank(), node.dtype(), widened(node, node[0])
        axis = node.axis(node.attribute("axis", -1 if node.version >= 13 else 1), max(rank, 1))
        if rank == 0:
            return narrowed(node, node.reshaped(make(node, node.reshaped(x, [1]), 0), []), dtype)
        if node.version >= 13 or axis == rank - 1:
            return narrowed(node, make(node, x, axis), dtype)
        shape = node.shape()
        rows = node.reshaped(x, [_size(shape[:axis]), _size(shape[axis:])])
        return narrowed(node, node.reshaped(node.emit(make(node, rows, 1)), shape), dtype)

    return convert


def _size(shape: list[Dim]) -> Dim:
    return prod(shape) if shape else 1


def _softmax(node: OnnxNode, x: relax.Expr, axis: int) -> relax.Expr:
    return relax.op.nn.softmax(x, axis)


def _log_softmax(node: OnnxNode, x: relax.Expr, axis: int) -> relax.Expr:
    """Relax's softmax takes only the last axis."""
    rank = rank_of(x)
    if axis == rank - 1:
        return relax.op.nn.log_softmax(x, axis)
    order = [*range(axis), *range(axis + 1, rank), axis]
    moved = node.emit(relax.op.permute_dims(x, order))
    return relax.op.permute_dims(
        node.emit(relax.op.nn.log_softmax(moved, rank - 1)), [int(n) for n in np.argsort(order)]
    )


def _hardmax(node: OnnxNode, x: relax.Expr, axis: int) -> relax.Expr:
    """1 at the first of the largest elements along an axis, else 0."""
    dtype, size = dtype_of(x), node.dims(x)[axis]
    best = node.emit(relax.op.argmax(x, axis, keepdims=True))
    places = node.emit(relax.op.arange(0, size, 1, "int64"))
    places = node.reshaped(places, [size if n == axis else 1 for n in range(rank_of(x))])
    return relax.op.astype(node.emit(relax.op.equal(best, places)), dtype)


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "Hardmax": _along_axis(_hardmax),
    "LogSoftmax": _along_axis(_log_softmax),
    "Softmax": _along_axis(_softmax),
}
