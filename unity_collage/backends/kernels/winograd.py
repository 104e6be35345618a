"""Convolutions by Winograd's minimal filtering: fewer multiplications, at some cost in the last digits.

Tiles of 2x2 need 2.25 times fewer multiplications and have errors like a plain sum; tiles of 4x4 need 4 times fewer
and have errors about ten times as large, some 1e-6 of the largest number.
"""

from __future__ import annotations

from tvm import relax

from ..native.program import Step
from ..native.values import attrs_of
from .convolution import WIDEST, convolution

TILES = (4, 2)
"""Edges of the tiles that there are kernels for."""


def winograd(call: relax.Call, tile: int) -> Step | str:
    """A convolution with a stride of 1, and of several groups one with whole vectors in each -> winograd, or the reason
    why not."""
    step = convolution("winograd", call)
    if isinstance(step, str):
        return step
    attrs = attrs_of(call)
    if any(stride != 1 for stride in attrs.strides):
        return "strides leave pixels out, Winograd's tiles do not"
    groups, weights = int(attrs.groups), step.arg("weights")
    if groups == 1:
        return step.with_attrs(tile=tile)
    assert weights is not None
    results, channels = weights.dims[0] // groups, weights.dims[1]
    if results % WIDEST or channels % WIDEST:
        return f"a group has {results} results of {channels} channels, which are not multiples of {WIDEST}"
    return step.with_attrs(tile=tile, groups=groups)
