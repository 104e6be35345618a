"""Col2Im: adds up blocks of columns to an image of any number of dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax, te, tirx

from ..equal_sizes import require_shape
from ..node import Converted, OnnxNode
from ..values import Dim
from .runtime_shapes import as_int64, empty, flat_index, is_empty, product, simple


def _col2im(node: OnnxNode) -> Converted:
    image, block = node.sizes(1), node.sizes(2)
    rank = len(image)
    if node.rank() != 3 or len(block) != rank:
        node.refuse(f"its operands have rank {node.rank()}, {rank} image sizes and {len(block)} block sizes")
    dilations, strides = (node.attribute(name, [1] * rank) for name in ("dilations", "strides"))
    pads = node.attribute("pads", [0] * (2 * rank))
    batch, rows, columns = node.shape()
    area = product(block)
    channels = simple(rows // area)
    sizes: list[Dim] = [batch, channels, *image]
    if is_empty(sizes):
        return empty(node, sizes, node.dtype())
    wide, dtype = {"float16": "float32", "bfloat16": "float32"}.get(node.dtype(), node.dtype()), node.dtype()
    counts = [
        simple((image[n] + pads[n] + pads[n + rank] - dilations[n] * (block[n] - 1) - 1) // strides[n] + 1)
        for n in range(rank)
    ]
    require_shape(node, "its operand", [rows, columns], [simple(channels * area), product(counts)])

    def summed(data: te.Tensor, sizes: list[Any], block: list[Any], counts: list[Any]) -> te.Tensor:
        offsets = [te.reduce_axis((0, size), f"k{n}") for n, size in enumerate(block)]
        area = as_int64(product([as_int64(size) for size in block]))

        def element(n: Any, channel: Any, *place: Any) -> Any:
            row = channel * area + flat_index(
                [axis.var for axis in offsets], [as_int64(size) for size in block]
            )
            steps, inside = [], []
            for k, (at, axis) in enumerate(zip(place, offsets, strict=True)):
                begin = as_int64(at) + pads[k] - as_int64(axis.var) * dilations[k]
                step = tirx.floordiv(begin, as_int64(strides[k]))
                steps.append(step)
                inside += [
                    tirx.floormod(begin, as_int64(strides[k])) == 0, step >= 0, step < as_int64(counts[k])
                ]  # fmt: skip
            column = flat_index(steps, [as_int64(count) for count in counts])
            value = tirx.if_then_else(tirx.all(*inside), data(n, row, column), tirx.const(0, data.dtype))
            return te.sum(value, axis=offsets)

        return te.compute(sizes, element, name="col2im")

    found = node.builder.call_te(summed, node.cast(node[0], wide), sizes, block, counts)
    return found if wide == dtype else relax.op.astype(node.emit(found), dtype)


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {"Col2Im": _col2im}
