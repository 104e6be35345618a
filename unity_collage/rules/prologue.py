"""What a product or a convolution of TVM may compute in front of itself: what costs it little where it reads."""

from __future__ import annotations

from typing import Any

from tvm import relax

from ..graph import Node
from .taken_back import PERMUTATION

_FACTOR = "relax.multiply"
_PRODUCT = "relax.matmul"
_CONVOLUTION = "relax.nn.conv2d"


def reads_through(anchor: Node, source: Node) -> bool:
    """Whether ``anchor`` may compute ``source``: another order of what it reads, or a factor for each channel.

    Such a factor moves to the weights, ``sum((x[i, c] * s[c]) * w[c, j]) = sum(x[i, c] * (w[c, j] * s[c]))``, and is
    multiplied once for all rows of a tile: the gates of squeeze-and-excitation blocks. Static shapes are assumed.
    """
    return source.op == PERMUTATION or (
        _sums_channels_of(anchor, source) and _has_factors_of_channels(source)
    )


def _sums_channels_of(anchor: Node, source: Node) -> bool:
    """Whether ``anchor`` sums over the last axis of ``source`` alone, with weights for each result."""
    if anchor.call is None or not anchor.call.args[0].same_as(source.var):
        return False
    if anchor.op == _PRODUCT:
        return True
    if anchor.op != _CONVOLUTION:
        return False
    attrs, weights = anchor.call.attrs, _shape(anchor.call.args[1])
    window = [weights[str(attrs.kernel_layout).index(axis)] for axis in "HW"]
    plain = int(attrs.groups) == 1 and not any(int(pad) for pad in attrs.padding)
    return plain and window == [1, 1] and str(attrs.data_layout) == "NHWC"


def _has_factors_of_channels(node: Node) -> bool:
    """Whether it multiplies float32 values, wherever the last axis is the same by the same."""
    if node.call is None or node.op != _FACTOR or str(node.call.ty.dtype) != "float32":
        return False
    whole = _shape(node.call)
    factors = [shape for shape in map(_shape, node.call.args) if shape != whole]
    return (
        len(factors) == 1 and all(extent == 1 for extent in factors[0][:-1]) and factors[0][-1:] == whole[-1:]
    )


def _shape(expr: relax.Expr) -> list[int]:
    ty: Any = expr.ty
    return [int(extent) for extent in ty.shape.values]
