"""Pools over windows and over whole images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from math import prod

from tvm import relax

from ..node import Converted, OnnxNode
from ..symbolic import are_equal
from ..values import Dim
from . import pooling_loops
from .precise import dtype_of, narrowed, widened
from .windows import SlidingWindow, at_least, padded, window_of

_MAX = (relax.op.nn.max_pool1d, relax.op.nn.max_pool2d, relax.op.nn.max_pool3d)
_AVG = (relax.op.nn.avg_pool1d, relax.op.nn.avg_pool2d, relax.op.nn.avg_pool3d)
_MOST_FACTORS = 8
"""Up to this power, powers are products."""
_LAYOUTS = ("NCW", "NCHW", "NCDHW")


def _max_pool(node: OnnxNode) -> Converted:
    window, sizes = _window(node)
    if node.is_asked(1):
        column_major = bool(node.attribute("storage_order", 0))
        return pooling_loops.max_with_indices(node, node[0], window, sizes, column_major)
    reaching = _reaching(window, node.shape()[2:], sizes)
    if not _is_relax(reaching, node.shape()[2:], sizes):
        return pooling_loops.maximum(node, node[0], window, sizes)
    return _pool(_MAX, node[0], reaching)


def _average_pool(node: OnnxNode) -> Converted:
    window, sizes = _window(node)
    return narrowed(
        node, _average(node, widened(node, node[0]), window, sizes, bool(node.attribute("count_include_pad", 0))),
        node.dtype(),
    )  # fmt: skip


def _average(
    node: OnnxNode, image: relax.Expr, window: SlidingWindow, sizes: Sequence[Dim], counts_padding: bool
) -> relax.Expr:
    """The mean of each window; elements behind the padding, where ceil_mode reaches, never count."""
    reaching = _reaching(window, node.dims(image)[2:], sizes)
    if counts_padding and reaching != window:
        image = padded(node, image, window.before, window.after)
        window = window.unpadded()
        reaching, counts_padding = _reaching(window, node.dims(image)[2:], sizes), False
    if not _is_relax(reaching, node.dims(image)[2:], sizes):
        return pooling_loops.average(node, image, window, sizes, counts_padding)
    return _pool(_AVG, image, reaching, count_include_pad=counts_padding)


def _is_relax(window: SlidingWindow, image: Sequence[Dim], sizes: Sequence[Dim]) -> bool:
    """Whether Relax has a pool of this window with a result of these sizes."""
    if not window.is_static or len(sizes) > len(_LAYOUTS):
        return False
    return all(are_equal(a, b) for a, b in zip(window.results(image), sizes, strict=True))


def _pool(
    kinds: Sequence[Callable[..., relax.Expr]], image: relax.Expr, window: SlidingWindow, **options: bool
) -> relax.Expr:
    axes = len(window.sizes)
    make, layout = kinds[axes - 1], _LAYOUTS[axes - 1]
    return make(
        image, window.sizes, window.strides, window.padding, window.dilations, layout=layout, **options
    )


def _window(node: OnnxNode) -> tuple[SlidingWindow, list[Dim]]:
    """The window, and the sizes of the result."""
    image = node.shape()[2:]
    if not image:
        node.refuse(f"its image has rank {node.rank()}; it has no axes along which a window slides")
    window = window_of(node, node.required("kernel_shape"), image)
    is_same = node.attribute("auto_pad", "NOTSET").startswith("SAME")
    sizes = window.results(image)
    if node.attribute("ceil_mode", 0) and not is_same:
        parts = zip(image, window.before, window.after, window.extents, window.strides, strict=True)
        sizes = [_rounded_up(*part) for part in parts]
    if 0 in sizes and 0 not in image:
        texts = ("x".join(map(str, each)) for each in (window.extents, image))
        node.refuse("its window of {} does not fit into its image of {}: take a larger input".format(*texts))
    return window, sizes


def _rounded_up(size: Dim, before: Dim, after: Dim, extent: int, step: int) -> Dim:
    """The number of windows with ceil_mode: the last one may reach beyond the padding, but starts before the padding
    behind the image."""
    count = at_least(-(-(size + before + after - extent) // step), -1) + 1
    starting = -(-(size + before) // step)
    if isinstance(count, int) and isinstance(starting, int):
        return min(count, starting)
    return starting - at_least(starting - count, 0)


def _reaching(window: SlidingWindow, image: Sequence[Dim], sizes: Sequence[Dim]) -> SlidingWindow:
    """The window with padding behind up to the end of the last window, so that as many fit as ``sizes`` says."""
    after = []
    found = zip(image, sizes, window.before, window.after, window.extents, window.strides, strict=True)
    for size, count, before, behind, extent, step in found:
        need = (count - 1) * step + extent - size - before
        if not isinstance(need, int) or not isinstance(behind, int):
            after.append(behind)
        else:
            # Less than the declared padding only if one window fewer is needed.
            whole = (size + before + behind - extent) // step + 1
            after.append(behind if whole == count else max(need, 0))
    return replace(window, after=tuple(after))


def _lp_pool(node: OnnxNode) -> Converted:
    """The root of the sum of powers of the elements of a window."""
    window, sizes = _window(node)
    image, power = widened(node, node[0]), float(node.attribute("p", 2))
    powers = node.emit(_power(node, image, power))
    reaching = _reaching(window, node.shape()[2:], sizes)
    if _is_relax(reaching, node.shape()[2:], sizes):
        mean = node.emit(_pool(_AVG, powers, reaching, count_include_pad=True))
        total = relax.op.multiply(mean, node.constant(prod(window.sizes), dtype_of(mean)))
    else:
        total = pooling_loops.total(node, powers, window, sizes)
    return narrowed(node, _root(node, node.emit(total), power), node.dtype())


def _power(node: OnnxNode, x: relax.Expr, power: float) -> relax.Expr:
    if power == 2:
        return relax.op.multiply(x, x)
    positive = node.emit(relax.op.abs(x))
    if power != int(power) or not 1 <= power <= _MOST_FACTORS:
        return relax.op.power(positive, node.constant(power, dtype_of(x)))
    return reduce(
        lambda made, _: node.emit(relax.op.multiply(made, positive)), range(int(power) - 1), positive
    )


def _root(node: OnnxNode, x: relax.Expr, power: float) -> relax.Expr:
    if power == 1:
        return x
    return relax.op.sqrt(x) if power == 2 else relax.op.power(x, node.constant(1 / power, dtype_of(x)))


def _spatial(node: OnnxNode) -> list[int]:
    return list(range(2, node.rank()))


def _global_average(node: OnnxNode) -> Converted:
    return narrowed(node, relax.op.mean(widened(node, node[0]), _spatial(node), keepdims=True), node.dtype())


def _global_max(node: OnnxNode) -> Converted:
    return relax.op.max(node[0], _spatial(node), keepdims=True)


def _global_lp(node: OnnxNode) -> Converted:
    power = float(node.attribute("p", 2))
    powers = node.emit(_power(node, widened(node, node[0]), power))
    total = node.emit(relax.op.sum(powers, _spatial(node), keepdims=True))
    return narrowed(node, _root(node, total, power), node.dtype())


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_average,
    "GlobalLpPool": _global_lp,
    "GlobalMaxPool": _global_max,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
}
