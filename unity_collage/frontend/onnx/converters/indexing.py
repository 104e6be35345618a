"""Operators that read elements at indexes that an operand has.

The standard counts negative indexes from the end and calls others errors. Known indexes are normalised and checked.
Computed ones wrap around, so that no kernel reads outside of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from ..equal_sizes import require_at_most, require_shape
from ..node import Converted, OnnxNode
from ..values import Dim
from .runtime_shapes import as_int64, empty, from_the_end, is_empty, scalar


def _normalised(node: OnnxNode, position: int, size: Dim) -> relax.Expr | None:
    """Known indexes of an axis of ``size`` counted from the front; None where they or the size are not known."""
    known = node.numbers(position)
    if known is None or not isinstance(size, int):
        return None
    if known.size and not (-size <= known.min() and known.max() < size):
        worst = known.min() if known.min() < -size else known.max()
        node.refuse(f"the index {worst} is outside of an axis of size {size}")
    return node.constant(np.where(known < 0, known + size, known), str(known.dtype))


def _gather(node: OnnxNode) -> Converted:
    axis = node.axis(node.attribute("axis", 0))
    shape, size = node.shape(), node.shape()[axis]
    sizes = [*shape[:axis], *node.shape(1), *shape[axis + 1 :]]
    if is_empty(sizes):
        return empty(node, sizes, node.dtype())
    if isinstance(size, int) and size == 0:
        node.refuse("it reads from an axis of size 0")
    known = _normalised(node, 1, size)
    if known is not None:
        return relax.op.take(node[0], known, axis)
    return relax.op.take(node[0], node[1], axis, mode="wrap")


def _gather_elements(node: OnnxNode) -> Converted:
    axis, sizes = node.axis(node.attribute("axis", 0)), node.shape(1)
    if is_empty(sizes):
        return empty(node, sizes, node.dtype())
    require_fitting_indices(node, axis)
    known = _normalised(node, 1, node.shape()[axis])
    if known is not None:
        return relax.op.gather_elements(node[0], known, axis)

    def gathered(data: te.Tensor, indices: te.Tensor) -> te.Tensor:
        def element(*place: Any) -> Any:
            index = from_the_end(indices(*place), data.shape[axis])
            return data(*place[:axis], index, *place[axis + 1 :])

        return te.compute(indices.shape, element, name="gather_elements")

    return node.builder.call_te(gathered, node[0], node[1])


def require_fitting_indices(node: OnnxNode, axis: int) -> None:
    """Indices along an axis are no longer than the tensor along the others."""
    if node.rank(1) != node.rank():
        node.refuse(f"its indices have rank {node.rank(1)}, and its tensor rank {node.rank()}")
    pairs = enumerate(zip(node.shape(1), node.shape(), strict=True))
    require_at_most(node, "a tensor of indices", [pair for n, pair in pairs if n != axis])


def _gather_nd(node: OnnxNode) -> Converted:
    batch, shape = node.attribute("batch_dims", 0), node.shape()
    *leading, count = node.shape(1)
    if not isinstance(count, int):
        node.refuse("the last size of its indices is not known")
    if batch + count > len(shape):
        node.refuse(f"it has {count} indexes for the {len(shape) - batch} axes after {batch} of the batch")
    require_shape(node, "the batch of its indices", leading[:batch], shape[:batch])
    sizes = [*leading, *shape[batch + count :]]
    if is_empty(sizes):
        return empty(node, sizes, node.dtype())

    def gathered(data: te.Tensor, indices: te.Tensor, sizes: list[Any]) -> te.Tensor:
        def element(*place: Any) -> Any:
            row = place[: len(leading)]
            picked = [from_the_end(indices(*row, n), data.shape[batch + n]) for n in range(count)]
            return data(*place[:batch], *picked, *place[len(leading) :])

        return te.compute(sizes, element, name="gather_nd")

    return node.builder.call_te(gathered, node[0], node[1], sizes)


def _reverse_sequence(node: OnnxNode) -> Converted:
    time, batch = node.axis(node.attribute("time_axis", 0)), node.axis(node.attribute("batch_axis", 1))
    if time == batch:
        node.refuse("its time and batch axes are the same")
    require_shape(node, "sequence_lens", node.shape(1), [node.shape()[batch]])

    def reversed_(data: te.Tensor, lengths: te.Tensor) -> te.Tensor:
        def element(*place: Any) -> Any:
            size = as_int64(data.shape[time])
            length = tirx.min(tirx.max(as_int64(lengths(place[batch])), as_int64(0)), size)
            at = tirx.Select(place[time] < length, length - 1 - place[time], as_int64(place[time]))
            return data(*place[:time], at, *place[time + 1 :])

        return te.compute(data.shape, element, name="reverse_sequence")

    return node.builder.call_te(reversed_, node[0], node[1])


def _one_hot(node: OnnxNode) -> Converted:
    rank, shape = node.rank(), node.shape()
    axis = node.axis(node.attribute("axis", -1), rank + 1)
    require_shape(node, "its values", node.shape(2), [2])
    depth = node.size(1)
    sizes = [*shape[:axis], depth, *shape[axis:]]
    if is_empty(sizes):
        return empty(node, sizes, node.dtype(2))

    def hot(indices: te.Tensor, values: te.Tensor, sizes: list[Any]) -> te.Tensor:
        def element(*place: Any) -> Any:
            index = indices(*place[:axis], *place[axis + 1 :]).astype("int64")
            index = tirx.Select(index < 0, index + as_int64(sizes[axis]), index)
            return tirx.if_then_else(index == place[axis], values(1), values(0))

        return te.compute(sizes, element, name="one_hot")

    return node.builder.call_te(hot, node[0], node[2], sizes)


def _trilu(node: OnnxNode) -> Converted:
    upper = bool(node.attribute("upper", 1))
    offset = node[1] if node.has(1) else node.constant(0, "int64")

    def triangle(data: te.Tensor, offset: te.Tensor) -> te.Tensor:
        def element(*place: Any) -> Any:
            distance = as_int64(place[-1]) - as_int64(place[-2])
            diagonal = as_int64(scalar(offset))
            kept = distance >= diagonal if upper else distance <= diagonal
            return tirx.Select(kept, data(*place), tirx.const(0, data.dtype))

        return te.compute(data.shape, element, name="triangle")

    return node.builder.call_te(triangle, node[0], offset)


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "ReverseSequence": _reverse_sequence,
    "Trilu": _trilu,
}

MICROSOFT: Mapping[str, Callable[[OnnxNode], Converted]] = {"Trilu": _trilu}
