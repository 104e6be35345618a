"""Convolutions by Winograd's minimal filtering (Lavin and Gray, 2016): fewer multiplications, larger rounding errors.

For 3x3 filters, tiles of 2x2 need 2.25 times fewer multiplications and have errors like a plain sum. Tiles of 4x4 need
4 times fewer and have errors about ten times as large, about 1e-6 of the largest number. With a stride of 2 the factors
are 1.44 and 1.78; for 2x2 filters they are 1.78 and 2.56.
"""

from __future__ import annotations

from tvm import relax

from ..native.joining import MOST_FIELDS
from ..native.program import NativeStep
from ..native.values import attrs_of
from .convolution import WIDEST, convolution, equal_strides, why_not_filters

TILES = (4, 2)
"""The edges of tiles for which there are kernels."""


def winograd(call: relax.Call, tile: int) -> NativeStep | str:
    """A convolution -> winograd, or the reason why not.

    Filters are 3x3 with a stride of 1 or 2, or 2x2 with a stride of 1. Convolutions with several groups need a stride
    of 1 and whole vectors of channels in each group. A convolution of volumes is a sum of convolutions of images, one
    for each tap along the depth. It may have any stride along the depth, and at most ``MOST_FIELDS`` taps.
    """
    step = convolution("winograd", call)
    if isinstance(step, str):
        return step
    stride = equal_strides(call)
    if isinstance(stride, str):
        return stride
    if reason := why_not_filters(step, *((3, 2) if stride == 1 else (3,))):
        return reason
    step = step.with_attrs(tile=tile, stride=stride)
    groups, weights = int(attrs_of(call).groups), step.arg("weights")
    assert weights is not None
    if len(weights.dims) == 5:
        return _of_volumes(step, call, weights.dims, groups)
    if groups == 1:
        return step
    if stride != 1:
        return "the filters of several groups have a stride, and were slower than other kernels wherever measured"
    results, channels = weights.dims[0] // groups, weights.dims[1]
    if results % WIDEST or channels % WIDEST:
        return f"a group has {results} results of {channels} channels, which are not multiples of {WIDEST}"
    return step.with_attrs(groups=groups)


def _of_volumes(
    step: NativeStep, call: relax.Call, filters: tuple[int, ...], groups: int
) -> NativeStep | str:
    """The step with the stride along the depth, or the reason why the kernel does not take the ``filters``."""
    channels, taps = filters[1:3]
    if groups != 1:
        return "the filters of volumes are of several groups"
    if taps > MOST_FIELDS:
        return f"the filters are {taps} deep, the kernel's at most {MOST_FIELDS}"
    if taps > 1 and channels % WIDEST:
        return f"a volume has {channels} channels, which is not a multiple of {WIDEST}"
    return step.with_attrs(depth_stride=int(attrs_of(call).strides[0]))
