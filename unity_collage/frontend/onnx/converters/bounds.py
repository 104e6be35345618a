"""Clip."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

import numpy as np
from tvm import relax

from ..node import Converted, OnnxNode

_LARGEST = float(np.finfo("float32").max)


def _clip(node: OnnxNode) -> Converted:
    """min(max(x, low), high), so ``high`` wins where the bounds cross.

    A bound that is missing or NaN has no effect. Where a bound is missing, the infinity on its side stays infinity.
    """
    if node.version < 11:
        low, high = (node.attribute(name, default) for name, default in (("min", -inf), ("max", inf)))
        return _within(node, -inf if low <= -_LARGEST else low, inf if high >= _LARGEST else high)
    known = [node.numbers(position) for position in (1, 2)]
    for name, bound in zip(("min", "max"), known, strict=True):
        if bound is not None and bound.size != 1:
            node.refuse(f"{name} has {bound.size} elements, and the standard takes one number")
    if any(node.has(position) and known[position - 1] is None for position in (1, 2)):
        return _of_operands(node)
    low, high = (None if bound is None else bound.reshape(-1)[0] for bound in known)
    if "float" not in node.dtype():
        return _of_operands(node)
    return _within(
        node,
        -inf if low is None or low != low else float(low),
        inf if high is None or high != high else float(high),
    )


def _within(node: OnnxNode, low: float, high: float) -> Converted:
    """A floating point tensor within numbers."""
    if (low, high) == (-inf, inf):
        return node.value(0)
    return relax.op.clip(node[0], min(low, high), high)


def _of_operands(node: OnnxNode) -> Converted:
    x = node[0]
    for position, extremum, unbounded in ((1, relax.op.maximum, -inf), (2, relax.op.minimum, inf)):
        if node.has(position):
            x = node.emit(extremum(x, _bound(node, position, unbounded)))
    return x if node.has(1) or node.has(2) else node.value(0)


def _bound(node: OnnxNode, position: int, unbounded: float) -> relax.Expr:
    """A bound as a tensor of no dimensions; infinite where it is NaN."""
    bound = node.reshaped(node[position], []) if node.rank(position) else node[position]
    if node.numbers(position) is not None or "float" not in node.dtype(position):
        return bound
    is_nan = node.emit(relax.op.isnan(node.cast(bound, "float32")))
    return node.emit(relax.op.where(is_nan, node.constant(unbounded, node.dtype(position)), bound))


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {"Clip": _clip}
