"""Operators that write elements at indexes which are operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import relax, te, tirx

from ..equal_sizes import require_shape
from ..node import Converted, OnnxNode
from ..values import Dim
from .indexing import require_fitting_indices
from .kernels import kernel, loop, store, when
from .pointwise import larger, smaller
from .runtime_shapes import as_int64, flat_index, from_the_end, is_empty, place_of, product

_REDUCTIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "none": lambda _, update: update,
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "max": larger,
    "min": smaller,
}
"""How an update changes an element. The maximum or minimum of NaN and a number is NaN."""


def _reduction(node: OnnxNode) -> Callable[[Any, Any], Any]:
    name = node.attribute("reduction", "none")
    if name not in _REDUCTIONS:
        node.refuse(f"its reduction {name!r} is not one of {', '.join(_REDUCTIONS)}")
    if node.dtype() == "bool":
        return {**_REDUCTIONS, "add": tirx.any, "max": tirx.any, "mul": tirx.all, "min": tirx.all}[name]
    return _REDUCTIONS[name]


def _copied(data: Any, out: Any, count: Any) -> None:
    with loop(count) as i:
        store(out, i, data[i])


def _scatter_elements(node: OnnxNode) -> Converted:
    axis, reduce = node.axis(node.attribute("axis", 0)), _reduction(node)
    if is_empty(node.shape()) or is_empty(node.shape(1)):
        return node.value(0)
    require_fitting_indices(node, axis)
    require_shape(node, "its updates", node.shape(2), node.shape(1))

    def scattered(data: te.Tensor, indices: te.Tensor, updates: te.Tensor) -> te.Tensor:
        def steps(source: Any, where: Any, new: Any, out: Any) -> None:
            _copied(source, out, product(data.shape))
            with loop(product(indices.shape)) as i:
                place = place_of(i, indices.shape)
                place[axis] = from_the_end(where[i], data.shape[axis])
                at = flat_index(place, data.shape)
                store(out, at, reduce(out[at], new[i]))

        return kernel("scatter_elements", [data, indices, updates], [(data.shape, data.dtype)], steps)[0]

    return node.builder.call_te(scattered, node[0], node[1], node[2])


def _scatter_nd(node: OnnxNode) -> Converted:
    reduce, shape = _reduction(node), node.shape()
    *leading, count = node.shape(1)
    if not isinstance(count, int):
        node.refuse("the last size of its indices is not known")
    if count > len(shape):
        node.refuse(f"it has {count} indexes for a tensor of rank {len(shape)}")
    if is_empty(shape) or is_empty(leading):
        return node.value(0)
    require_shape(node, "its updates", node.shape(2), [*leading, *shape[count:]])

    def scattered(data: te.Tensor, indices: te.Tensor, updates: te.Tensor) -> te.Tensor:
        rows, inner = product(list(indices.shape)[:-1]), product(list(data.shape)[count:])

        def steps(source: Any, where: Any, new: Any, out: Any) -> None:
            _copied(source, out, product(data.shape))
            with loop(rows) as row:
                picked = [from_the_end(where[row * count + n], data.shape[n]) for n in range(count)]
                begin = flat_index(picked, list(data.shape)[:count]) * as_int64(inner)
                with loop(inner) as i:
                    store(out, begin + i, reduce(out[begin + i], new[row * as_int64(inner) + i]))

        return kernel("scatter_nd", [data, indices, updates], [(data.shape, data.dtype)], steps)[0]

    return node.builder.call_te(scattered, node[0], node[1], node[2])


def _tensor_scatter(node: OnnxNode) -> Converted:
    axis, mode = node.axis(node.attribute("axis", -2)), node.attribute("mode", "linear")
    if axis == 0 or mode not in ("linear", "circular"):
        node.refuse(f"it writes along axis {axis} in the mode {mode!r}")
    shape, length = node.shape(), node.shape(1)[axis]
    require_shape(node, "its update", node.shape(1), [*shape[:axis], length, *shape[axis + 1 :]])
    if node.has(2):
        require_shape(node, "write_indices", node.shape(2), shape[:1])
    starts = [node[2]] if node.has(2) else []

    def written(cache: te.Tensor, update: te.Tensor, *starts: te.Tensor) -> te.Tensor:
        def element(*place: Any) -> Any:
            after = as_int64(place[axis]) - (as_int64(starts[0](place[0])) if starts else as_int64(0))
            if mode == "circular":
                after = tirx.floormod(after, as_int64(cache.shape[axis]))
            inside = tirx.all(after >= 0, after < as_int64(update.shape[axis]))
            new = update(*place[:axis], after, *place[axis + 1 :])
            return tirx.if_then_else(inside, new, cache(*place))

        return te.compute(cache.shape, element, name="tensor_scatter")

    return node.builder.call_te(written, node[0], node[1], *starts)


def _max_unpool(node: OnnxNode) -> Converted:
    """Each element at the place that its index names in the result, which is zero elsewhere."""
    shape, spatial = node.shape(), node.rank() - 2
    require_shape(node, "a tensor of indices", node.shape(1), shape)
    kernel_shape = node.required("kernel_shape")
    strides = node.attribute("strides", [1] * spatial)
    pads = node.attribute("pads", [0] * (2 * spatial))
    plain: list[Dim] = [
        (shape[2 + n] - 1) * strides[n] + kernel_shape[n] - pads[n] - pads[n + spatial]
        for n in range(spatial)
    ]
    sizes = [*shape[:2], *plain]
    wanted = node.sizes(2) if node.has(2) else sizes
    if len(wanted) != len(shape):
        node.refuse(f"its output_shape has {len(wanted)} sizes, and its operand rank {len(shape)}")
    return _unpooled(node, sizes, wanted)


def _unpooled(node: OnnxNode, sizes: Sequence[Dim], wanted: Sequence[Dim]) -> relax.Expr:
    """Indexes are for a tensor of the shape ``sizes``, and the result has the shape ``wanted``."""

    def unpooled(data: te.Tensor, indices: te.Tensor, inner: list[Any], outer: list[Any]) -> te.Tensor:
        def steps(source: Any, where: Any, out: Any) -> None:
            with loop(product(outer)) as i:
                store(out, i, tirx.const(0, data.dtype))
            with loop(product(data.shape)) as i:
                place = place_of(as_int64(where[i]), inner)
                inside = [tirx.all(at < as_int64(size)) for at, size in zip(place, outer, strict=True)]
                with when(
                    tirx.all(as_int64(where[i]) >= 0, as_int64(where[i]) < as_int64(product(inner)), *inside)
                ):
                    store(out, flat_index(place, outer), source[i])

        return kernel("max_unpool", [data, indices], [(outer, data.dtype)], steps)[0]

    return node.builder.call_te(unpooled, node[0], node[1], list(sizes), list(wanted))


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "MaxUnpool": _max_unpool,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TensorScatter": _tensor_scatter,
}
