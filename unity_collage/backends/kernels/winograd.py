"""Convolutions by Winograd's minimal filtering: fewer multiplications, at some cost in the last digits.

Tiles of 2x2 need 2.25 times fewer multiplications and have errors like a plain sum; tiles of 4x4 need 4 times fewer
and have errors about ten times as large, some 1e-6 of the largest number.
"""

from __future__ import annotations

from tvm import relax

from ..native.program import Step
from ..native.values import attrs_of
from .convolution import convolution

TILES = (4, 2)
"""Edges of the tiles that there are kernels for."""


def winograd(call: relax.Call, tile: int) -> Step | str:
    """A convolution with a stride of 1 and one group -> winograd, or the reason why not."""
    step = convolution("winograd", call)
    if isinstance(step, str):
        return step
    attrs = attrs_of(call)
    if int(attrs.groups) != 1:
        return f"there are {int(attrs.groups)} groups, Winograd's products are of one"
    if any(stride != 1 for stride in attrs.strides):
        return "strides leave pixels out, Winograd's tiles do not"
    return step.with_attrs(tile=tile)
