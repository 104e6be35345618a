"""Normalisations of ONNX: one Relax operator where Relax has the same, in float32 for 16-bit floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from tvm import relax

from ..node import Converted, OnnxNode
from ..symbolic import are_equal
from ..values import Dim
from .precise import dtype_of, narrowed, rank_of, widened


def _instance_norm(node: OnnxNode) -> Converted:
    rank = node.rank()
    if rank < 3:
        node.refuse(f"its operand has rank {rank}; it needs axes behind the channels")
    made = relax.op.nn.instance_norm(
        *(widened(node, node[n]) for n in range(3)), 1, list(range(2, rank)), node.attribute("epsilon", 1e-5)
    )
    return narrowed(node, made, node.dtype())


def _group_norm(node: OnnxNode) -> Converted:
    """Before version 21, scale and bias have a value for each group."""
    rank, groups, channels = node.rank(), node.required("num_groups"), node.shape()[1]
    if not isinstance(channels, int) or channels % groups:
        node.refuse(f"{channels} channels are not known to be divisible by its {groups} groups")
    x, scale, shift = (widened(node, node[n]) for n in range(3))
    if node.version < 21:
        scale, shift = (_repeated(node, value, channels // groups) for value in (scale, shift))
    axes = list(range(2, rank))
    made = relax.op.nn.group_norm(x, scale, shift, groups, 1, axes, node.attribute("epsilon", 1e-5))
    return narrowed(node, made, node.dtype())


def _repeated(node: OnnxNode, value: relax.Expr, times: int) -> relax.Expr:
    if times == 1:
        return value
    count = node.dims(value)[0]
    rows = node.emit(relax.op.broadcast_to(node.reshaped(value, [count, 1]), [count, times]))
    return node.reshaped(rows, [count * times])


def _layer_norm(node: OnnxNode) -> Converted:
    axes = _normalised(node)
    x = widened(node, node[0])
    made = layer_norm(node, x, node[1], node.optional(2), axes)
    results: list[relax.Expr | None] = [narrowed(node, made, node.dtype()), None, None]
    if node.is_asked(1) or node.is_asked(2):
        stash = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}[node.attribute("stash_type", 1)]
        results[1:] = [narrowed(node, value, stash) for value in statistics(node, x, axes)]
    return results


def _normalised(node: OnnxNode) -> list[int]:
    """The axes that are normalised: those from the attribute ``axis`` on."""
    return list(range(node.axis(node.attribute("axis", -1)), node.rank()))


def layer_norm(
    node: OnnxNode,
    x: relax.Expr,
    scale: relax.Expr,
    shift: relax.Expr | None,
    axes: Sequence[int],
    default: float = 1e-5,
) -> relax.Expr:
    """(x - mean) / sqrt(variance + epsilon) * scale + shift, over the last ``axes`` of ``x``, in the type of ``x``.

    ``default`` is the epsilon of a node without this attribute, as below.
    """
    sizes, epsilon = [node.dims(x)[axis] for axis in axes], node.attribute("epsilon", default)
    dtype, last = dtype_of(x), [axis - rank_of(x) for axis in axes]
    factor, summand = (_fitted(node, value, sizes, dtype) for value in (scale, shift))
    none = _filled(node, 0, sizes, dtype)
    if factor is not None and (shift is None or summand is not None):
        return relax.op.nn.layer_norm(x, factor, none if summand is None else summand, last, epsilon)
    made = relax.op.nn.layer_norm(x, _filled(node, 1, sizes, dtype), none, last, epsilon)
    made = relax.op.multiply(node.emit(made), node.cast(scale, dtype))
    return made if shift is None else relax.op.add(node.emit(made), node.cast(shift, dtype))


def _fitted(node: OnnxNode, value: relax.Expr | None, sizes: Sequence[Dim], dtype: str) -> relax.Expr | None:
    """``value`` in the shape ``sizes`` if it has this shape except for leading axes of size 1."""
    if value is None:
        return None
    shape = node.dims(value)
    surplus = len(shape) - len(sizes)
    if surplus < 0 or any(dim != 1 for dim in shape[:surplus] if isinstance(dim, int)):
        return None
    if not all(isinstance(dim, int) for dim in shape[:surplus]):
        return None
    if not all(are_equal(a, b) for a, b in zip(shape[surplus:], sizes, strict=True)):
        return None
    return node.cast(node.reshaped(value, sizes) if surplus else value, dtype)


def _filled(node: OnnxNode, number: float, sizes: Sequence[Dim], dtype: str) -> relax.Expr:
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) == len(sizes):
        return node.constant(np.full(known, number), dtype)
    return node.emit(relax.op.full(list(sizes), node.constant(number, dtype), dtype))


def statistics(
    node: OnnxNode, x: relax.Expr, axes: Sequence[int], default: float = 1e-5
) -> tuple[relax.Expr, relax.Expr]:
    """The mean, and 1 / sqrt(variance + epsilon), over axes that are kept with size 1."""
    mean = node.emit(relax.op.mean(x, list(axes), keepdims=True))
    variance = node.emit(relax.op.variance(x, list(axes), keepdims=True))
    epsilon = node.constant(node.attribute("epsilon", default), dtype_of(x))
    return mean, node.emit(relax.op.rsqrt(node.emit(relax.op.add(variance, epsilon))))


def _rms_norm(node: OnnxNode) -> Converted:
    return narrowed(node, rms_norm(node, widened(node, node[0]), node[1], _normalised(node)), node.dtype())


def rms_norm(
    node: OnnxNode, x: relax.Expr, scale: relax.Expr, axes: Sequence[int], default: float = 1e-5
) -> relax.Expr:
    """x / sqrt(mean(x^2) + epsilon) * scale, over the last ``axes`` of ``x``, in the type of ``x``."""
    sizes, epsilon, dtype = (
        [node.dims(x)[a] for a in axes],
        node.attribute("epsilon", default),
        dtype_of(x),
    )
    factor, last = _fitted(node, scale, sizes, dtype), [axis - rank_of(x) for axis in axes]
    if dtype == "float32" and len(axes) == rank_of(x):
        # Relax's norm needs an axis that it does not normalise.
        shape = node.dims(x)
        row, behind = node.reshaped(x, [1, *shape]), [axis + 1 for axis in axes]
        return relax.op.reshape(node.emit(rms_norm(node, row, scale, behind, default)), shape)
    if dtype == "float32":
        one = _filled(node, 1, sizes, dtype) if factor is None else factor
        made = relax.op.nn.rms_norm(x, one, last, epsilon)
        return made if factor is not None else relax.op.multiply(node.emit(made), node.cast(scale, dtype))
    # Relax computes this norm in float32.
    normalised = node.emit(relax.op.multiply(x, inverse_root(node, x, axes, default)))
    return relax.op.multiply(normalised, node.cast(scale, dtype))


def inverse_root(node: OnnxNode, x: relax.Expr, axes: Sequence[int], default: float = 1e-5) -> relax.Expr:
    """1 / sqrt(mean(x^2) + epsilon), over axes that are kept with size 1."""
    epsilon = node.constant(node.attribute("epsilon", default), dtype_of(x))
    squares = node.emit(relax.op.mean(node.emit(relax.op.multiply(x, x)), list(axes), keepdims=True))
    return node.emit(relax.op.rsqrt(node.emit(relax.op.add(squares, epsilon))))


def _simplified(node: OnnxNode) -> Converted:
    """SimplifiedLayerNormalization, which ONNX Runtime writes into the standard's domain, too: an RMS norm."""
    x, axes = widened(node, node[0]), _normalised(node)
    made = narrowed(node, rms_norm(node, x, node[1], axes), node.dtype())
    return [made, inverse_root(node, x, axes) if node.is_asked(1) else None]


def _mean_variance(node: OnnxNode) -> Converted:
    """(x - mean) / (sqrt(variance) + 1e-9), as the standard's function."""
    x = widened(node, node[0])
    axes = [node.axis(axis) for axis in node.attribute("axes", [0, 2, 3])]
    mean = node.emit(relax.op.mean(x, axes, keepdims=True))
    spread = node.emit(relax.op.sqrt(node.emit(relax.op.variance(x, axes, keepdims=True))))
    divisor = node.emit(relax.op.add(spread, node.constant(1e-9, dtype_of(x))))
    return narrowed(node, relax.op.divide(node.emit(relax.op.subtract(x, mean)), divisor), node.dtype())


def _lp_norm(node: OnnxNode) -> Converted:
    """x over its norm along an axis; 0 where the norm is 0."""
    x, axis, power = widened(node, node[0]), node.axis(node.attribute("axis", -1)), node.attribute("p", 2)
    if power not in (1, 2):
        node.refuse(f"its order is {power}, and only 1 and 2 are defined")
    parts = node.emit(relax.op.abs(x) if power == 1 else relax.op.multiply(x, x))
    norm = node.emit(relax.op.sum(parts, [axis], keepdims=True))
    norm = norm if power == 1 else node.emit(relax.op.sqrt(norm))
    zero, one = (node.constant(number, dtype_of(x)) for number in (0, 1))
    divisor = node.emit(relax.op.where(node.emit(relax.op.equal(norm, zero)), one, norm))
    return narrowed(node, relax.op.divide(x, divisor), node.dtype())


def _lrn(node: OnnxNode) -> Converted:
    """x / (bias + alpha * mean of the squares of ``size`` neighbouring channels) ^ beta.

    The channels are the depth of an image of one channel, so that the mean is a pool.
    """
    x, size = widened(node, node[0]), node.required("size")
    shape, before = node.dims(x), (size - 1) // 2
    deep = [shape[0], 1, *shape[1:]] if len(shape) == 4 else [shape[0], 1, shape[1], _product(shape[2:]), 1]
    squares = node.reshaped(node.emit(relax.op.multiply(x, x)), deep)
    padding = [before, 0, 0, size - 1 - before, 0, 0]
    mean = relax.op.nn.avg_pool3d(squares, (size, 1, 1), (1, 1, 1), padding, count_include_pad=True)
    mean = node.reshaped(node.emit(mean), shape)
    alpha, bias, beta = (
        node.constant(node.attribute(name, default), dtype_of(x))
        for name, default in (("alpha", 1e-4), ("bias", 1.0), ("beta", 0.75))
    )
    total = node.emit(relax.op.add(node.emit(relax.op.multiply(mean, alpha)), bias))
    return narrowed(node, relax.op.divide(x, node.emit(relax.op.power(total, beta))), node.dtype())


def _product(sizes: Sequence[Dim]) -> Dim:
    total: Dim = 1
    for size in sizes:
        total = total * size
    return total


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LRN": _lrn,
    "LayerNormalization": _layer_norm,
    "LpNormalization": _lp_norm,
    "MeanVarianceNormalization": _mean_variance,
    "RMSNormalization": _rms_norm,
    "SimplifiedLayerNormalization": _simplified,
}
