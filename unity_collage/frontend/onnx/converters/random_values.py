"""Random numbers, from counters: the n-th number of a node is a function of its seed and of n.

A node without a seed gets one from its name and place, so a program gives the same numbers whenever it is called. No
generator of numpy or of another runtime is reproduced. SplitMix64 mixes the bits (Steele, Lea and Flood 2014, "Fast
splittable pseudorandom number generators").
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import ir, relax, te, tirx

from ..arrays import dtype_of
from ..node import Converted, OnnxNode
from ..values import Dim
from .precise import widened
from .runtime_shapes import computed, flat_index, scalar

Uniform = Callable[..., ir.Expr]
"""A function of a place and of the number of a draw, which gives float64 in [0, 1)."""


def seed_of(node: OnnxNode) -> int:
    """The bits of the attribute ``seed``, or a number made of the result's name and of the node's place."""
    seed = node.attribute("seed")
    if seed is None:
        return zlib.crc32(node.proto.output[0].encode(), node.importer.model.converted)
    return int(np.float32(seed).view(np.uint32))


def _numbers(node: OnnxNode) -> relax.Expr:
    """The operand of generators: the start of the sequence and SplitMix64's increment and factors.

    They are a tensor, because TVM computes bounds of expressions with numbers in 63 bits, and wrongly simplifies these.
    """
    step = 0x9E3779B97F4A7C15
    start = seed_of(node) * step % 2**64
    return node.constant(np.array([start, step, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], "uint64"), "uint64")


def _uniform(numbers: te.Tensor, shape: Sequence[Any]) -> Uniform:
    start, step, *factors = (numbers(n) for n in range(4))

    def draw(place: Sequence[ir.Expr], which: int = 0) -> ir.Expr:
        index = flat_index(place, shape).astype("uint64") * _uint64(2) + _uint64(which + 1)
        bits = start + index * step
        for shift, factor in zip((30, 27), factors, strict=True):
            bits = (bits ^ tirx.shift_right(bits, _uint64(shift))) * factor
        bits = bits ^ tirx.shift_right(bits, _uint64(31))
        return tirx.shift_right(bits, _uint64(11)).astype("float64") * tirx.const(2.0**-53, "float64")

    return draw


def _uint64(value: int) -> ir.Expr:
    return tirx.const(value, "uint64")


def _drawn(node: OnnxNode, shape: Sequence[Dim], dtype: str, element: Callable[[Any], ir.Expr]) -> relax.Expr:
    """A tensor of ``element(draw)``, where ``draw(which)`` is uniform in [0, 1) for each place."""

    def kernel(numbers: te.Tensor, sizes: Sequence[Any]) -> te.Tensor:
        uniform = _uniform(numbers, sizes)
        return te.compute(
            sizes, lambda *place: element(lambda which=0: uniform(place, which)).astype(dtype), name="random"
        )

    return computed(node, kernel, _numbers(node), relax.ShapeExpr(list(shape)))


def _random_uniform(low: float, high: float) -> Callable[[Any], ir.Expr]:
    return lambda draw: draw() * _number(high - low) + _number(low)


def _random_normal(mean: float, scale: float) -> Callable[[Any], ir.Expr]:
    """Box and Muller's transform of two uniform numbers."""

    def element(draw: Any) -> ir.Expr:
        radius = tirx.sqrt(_number(-2) * tirx.log(_number(1) - draw(0)))
        return radius * tirx.cos(_number(2 * math.pi) * draw(1)) * _number(scale) + _number(mean)

    return element


def _number(value: float) -> ir.Expr:
    return tirx.const(value, "float64")


def _distribution(node: OnnxNode) -> Callable[[Any], ir.Expr]:
    if node.op.startswith("RandomNormal"):
        return _random_normal(node.attribute("mean", 0.0), node.attribute("scale", 1.0))
    return _random_uniform(node.attribute("low", 0.0), node.attribute("high", 1.0))


def _random(node: OnnxNode) -> Converted:
    return _drawn(node, node.required("shape"), dtype_of(node.attribute("dtype", 1)), _distribution(node))


def _random_like(node: OnnxNode) -> Converted:
    dtype = dtype_of(node.attribute("dtype")) if "dtype" in node.attributes else node.dtype()
    return _drawn(node, node.shape(), dtype, _distribution(node))


def _multinomial(node: OnnxNode) -> Converted:
    """Classes drawn by the unnormalised logarithms of their probabilities: the inverse of the distribution."""
    dtype, samples = dtype_of(node.attribute("dtype", 6)), node.attribute("sample_size", 1)
    chances = node.emit(relax.op.nn.softmax(widened(node, node[0]), -1))
    below = node.emit(relax.op.cumsum(chances, 1))

    def kernel(below: te.Tensor, numbers: te.Tensor) -> te.Tensor:
        shape = [below.shape[0], tirx.const(samples, "int64")]
        uniform, last = _uniform(numbers, shape), below.shape[1] - 1
        among = te.reduce_axis((0, below.shape[1] - 1), name="among")

        def passed(row: ir.Expr, sample: ir.Expr) -> ir.Expr:
            drawn = uniform((row, sample)) * below(row, last).astype("float64")
            is_passed = below(row, among).astype("float64") <= drawn
            return te.sum(is_passed.astype(dtype), axis=among)

        return te.compute(shape, passed, name="multinomial")

    return computed(node, kernel, below, _numbers(node))


def _bernoulli(node: OnnxNode) -> Converted:
    """1 with the probability that is the element, else 0."""
    dtype = dtype_of(node.attribute("dtype")) if "dtype" in node.attributes else node.dtype()

    def kernel(x: te.Tensor, numbers: te.Tensor) -> te.Tensor:
        uniform = _uniform(numbers, x.shape)
        return te.compute(
            x.shape,
            lambda *place: (uniform(place) < x(*place).astype("float64")).astype(dtype),
            name="bernoulli",
        )

    return computed(node, kernel, widened(node, node[0]), _numbers(node))


def _dropout(node: OnnxNode) -> Converted:
    """The operand itself, unless the node is in training mode; the mask is true where elements are kept."""
    training = node.numbers(2) if node.has(2) else np.array(False)
    if training is not None and not training.any():
        return [node.value(0), _full_mask(node) if node.is_asked(1) else None]
    return _dropped(node, training is None)


def _full_mask(node: OnnxNode) -> relax.Expr:
    dtype = "bool" if node.version >= 10 else node.dtype()
    return relax.op.full(node.shape(), node.constant(1, dtype), dtype)


def _dropped(node: OnnxNode, at_run_time: bool) -> Converted:
    """Each element is kept with the probability 1 - ratio and divided by it."""
    dtype = node.dtype()
    ratio = node[1] if node.has(1) else node.constant(0.5, "float32")
    training = [node.cast(node[2], "uint8")] if at_run_time else []

    def mask(numbers: te.Tensor, sizes: Sequence[Any], ratio: te.Tensor, *training: te.Tensor) -> te.Tensor:
        uniform, share = _uniform(numbers, sizes), scalar(ratio).astype("float64")

        def is_kept(*place: ir.Expr) -> ir.Expr:
            kept = uniform(place) >= share
            return tirx.any(kept, scalar(training[0]).equal(tirx.const(0, "uint8"))) if training else kept

        return te.compute(sizes, is_kept, name="mask")

    kept = computed(node, mask, _numbers(node), relax.ShapeExpr(node.shape()), ratio, *training)

    def drop(x: te.Tensor, kept: te.Tensor, ratio: te.Tensor, *training: te.Tensor) -> te.Tensor:
        wide = "float64" if dtype == "float64" else "float32"
        scale = tirx.const(1, wide) / (tirx.const(1, wide) - scalar(ratio).astype(wide))
        if training:
            scale = tirx.Select(scalar(training[0]).equal(tirx.const(0, "uint8")), tirx.const(1, wide), scale)
        return te.compute(
            x.shape,
            lambda *place: tirx.Select(
                kept(*place), x(*place).astype(wide) * scale, tirx.const(0, wide)
            ).astype(dtype),
            name="dropout",
        )

    return [node.builder.call_te(drop, node[0], kept, ratio, *training), kept]


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {
    "Bernoulli": _bernoulli,
    "Dropout": _dropout,
    "Multinomial": _multinomial,
    "RandomNormal": _random,
    "RandomNormalLike": _random_like,
    "RandomUniform": _random,
    "RandomUniformLike": _random_like,
}
