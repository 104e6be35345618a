"""Operators that move elements without computing with them: permutations, parts and repetitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import ir, relax, te, tirx

from ..broadcasting import equal_but_along
from ..equal_sizes import require_equal
from ..node import Converted, OnnxNode
from ..values import Dim
from .runtime_shapes import as_int64, empty, is_empty, product, simple


def _transpose(node: OnnxNode) -> Converted:
    rank = node.rank()
    axes = node.attribute("perm", list(range(rank))[::-1])
    if sorted(axes) != list(range(rank)):
        node.refuse(f"its perm {axes} does not permute the axes of a tensor of rank {rank}")
    return relax.op.permute_dims(node[0], axes)


def _concat(node: OnnxNode) -> Converted:
    if len(node.inputs) == 1:
        return node.value(0)
    axis = node.axis(node.attribute("axis", 1) if node.version < 4 else node.required("axis"))
    parts = [n for n in range(len(node.inputs)) if not _is_zero(node.shape(n)[axis])]
    if len(parts) < 2:
        return node.value(parts[0] if parts else 0)
    return relax.op.concat(equal_but_along(node, axis, parts), axis)


def _is_zero(size: Dim) -> bool:
    return isinstance(size, int) and size == 0


def _split(node: OnnxNode) -> Converted:
    axis = node.axis(node.attribute("axis", 0))
    total, count = node.shape()[axis], len(node.proto.output)
    given = node.has(1) or "split" in node.attributes
    sizes = _given_parts(node) if given else _equal_parts(node, total, count)
    if len(sizes) != count:
        node.refuse(f"it has {count} results, and split has {len(sizes)} sizes")
    if all(isinstance(size, int) for size in (*sizes, total)):
        return _static_parts(node, axis, [int(size) for size in sizes if isinstance(size, int)])
    require_equal(node, [(simple(_sum(sizes)), total)])
    begins = [product([]) if n == 0 else simple(_sum(sizes[:n])) for n in range(count)]
    shape = node.shape()
    return [
        node.builder.call_te(_part, node[0], axis, begin, [*shape[:axis], size, *shape[axis + 1 :]])
        for begin, size in zip([0, *begins[1:]], sizes, strict=True)
    ]


def _sum(sizes: Sequence[Dim]) -> Dim:
    total: Dim = 0
    for size in sizes:
        total = total + size
    return total


def _given_parts(node: OnnxNode) -> list[Dim]:
    return list(node.attribute("split")) if "split" in node.attributes else node.sizes(1)


def _equal_parts(node: OnnxNode, total: Dim, count: int) -> list[Dim]:
    """Equal sizes. From version 18 on the last may be smaller; before, the standard asks for equal ones."""
    count = node.attribute("num_outputs", count)
    if isinstance(total, int) and total % count and node.version < 18:
        node.refuse(f"a size of {total} cannot be split into {count} equal parts")
    size = -(-total // count) if isinstance(total, int) else simple((total + (count - 1)) // count)
    if isinstance(total, int) and isinstance(size, int):
        return [min(size, max(total - n * size, 0)) for n in range(count)]
    # The size is free. Parts are equal if the standard says so, or the last one has the rest.
    if node.version < 18:
        return [simple(total // count)] * count
    return [*[size] * (count - 1), simple(total - size * (count - 1))]


def _static_parts(node: OnnxNode, axis: int, sizes: list[int]) -> list[relax.Expr]:
    shape = node.shape()
    if sum(sizes) != shape[axis]:
        node.refuse(f"its split {sizes} does not add up to the size {shape[axis]}")
    if len(sizes) == 1:
        return [node[0]]
    if 0 in sizes:
        begins = [sum(sizes[:n]) for n in range(len(sizes))]
        return [
            relax.op.strided_slice(node[0], [axis], [begin], [begin + size])
            if size
            else empty(node, [*shape[:axis], 0, *shape[axis + 1 :]], node.dtype())
            for begin, size in zip(begins, sizes, strict=True)
        ]
    equal = len(set(sizes)) == 1
    cuts = len(sizes) if equal else [sum(sizes[: n + 1]) for n in range(len(sizes) - 1)]
    parts = node.emit(relax.op.split(node[0], cuts, axis))
    return [relax.TupleGetItem(parts, n) for n in range(len(sizes))]


def _part(data: te.Tensor, axis: int, begin: Any, shape: list[Any]) -> te.Tensor:
    def element(*place: Any) -> Any:
        return data(*place[:axis], place[axis] + as_int64(begin), *place[axis + 1 :])

    return te.compute(shape, element, name="part")


def _tile(node: OnnxNode) -> Converted:
    if node.numbers(1) is not None:
        repeats = [int(item) for item in node.needed(1, "repeats").reshape(-1)]
        sizes = [simple(dim * count) for dim, count in zip(node.shape(), repeats, strict=True)]
        return empty(node, sizes, node.dtype()) if is_empty(sizes) else relax.op.tile(node[0], repeats)
    sizes = [simple(dim * count) for dim, count in zip(node.shape(), node.sizes(1), strict=True)]
    return node.builder.call_te(_tiled, node[0], sizes)


def _tiled(data: te.Tensor, sizes: list[Any]) -> te.Tensor:
    def element(*place: Any) -> Any:
        return data(*[tirx.floormod(at, as_int64(dim)) for at, dim in zip(place, data.shape, strict=True)])

    return te.compute(sizes, element, name="tile")


def _blocks(node: OnnxNode) -> tuple[list[Dim], int]:
    if node.rank() != 4:
        node.refuse(f"its operand has rank {node.rank()}, not 4")
    return node.shape(), int(node.required("blocksize"))


def _depth_to_space(node: OnnxNode) -> Converted:
    (batch, depth, height, width), block = _blocks(node)
    less = _divided(node, depth, block * block, "number of channels")
    if node.attribute("mode", "DCR") == "DCR":
        inner, axes = [batch, block, block, less, height, width], [0, 3, 4, 1, 5, 2]
    else:
        inner, axes = [batch, less, block, block, height, width], [0, 1, 4, 2, 5, 3]
    moved = node.emit(relax.op.permute_dims(node.reshaped(node[0], inner), axes))
    return relax.op.reshape(moved, [batch, less, simple(height * block), simple(width * block)])


def _space_to_depth(node: OnnxNode) -> Converted:
    (batch, depth, height, width), block = _blocks(node)
    rows, columns = _divided(node, height, block, "height"), _divided(node, width, block, "width")
    inner = [batch, depth, rows, block, columns, block]
    # DCR, the only mode before version 28: the blocks' places are the outer part of the new channels.
    axes = [0, 3, 5, 1, 2, 4] if node.attribute("mode", "DCR") == "DCR" else [0, 1, 3, 5, 2, 4]
    moved = node.emit(relax.op.permute_dims(node.reshaped(node[0], inner), axes))
    return relax.op.reshape(moved, [batch, simple(depth * (block * block)), rows, columns])


def _divided(node: OnnxNode, size: Dim, divisor: int, what: str) -> Dim:
    if isinstance(size, int) and size % divisor:
        node.refuse(f"its {what} {size} is not a multiple of {divisor}")
    if not isinstance(size, ir.Expr):
        return size // divisor
    less = simple(size // divisor)
    require_equal(node, [(simple(less * divisor), size)])
    return less


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "Concat": _concat,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Tile": _tile,
    "Transpose": _transpose,
}
