"""Convolutions by Winograd's minimal filtering: fewer multiplications, at some cost in the last digits.

Of 3x3 filters, tiles of 2x2 need 2.25 times fewer multiplications and have errors like a plain sum; tiles of 4x4 need
4 times fewer and have errors about ten times as large, some 1e-6 of the largest number. With a stride of 2 it is 1.44
and 1.78 times fewer, of 2x2 filters 1.78 and 2.56.
"""

from __future__ import annotations

from tvm import relax

from ..native.joining import MOST_FIELDS
from ..native.program import Step
from ..native.values import attrs_of
from .convolution import WIDEST, convolution, equal_strides, why_not_filters

TILES = (4, 2)
"""Edges of the tiles that there are kernels for."""


def winograd(call: relax.Call, tile: int) -> Step | str:
    """A convolution of 3x3 with a stride of 1 or 2, or of 2x2 with a stride of 1 -> winograd, or the reason why not.

    Of several groups one with a stride of 1 and whole vectors in each. Of volumes each tap along the depth is a sum of
    convolutions of images: there the depth of the filter and its stride are any.
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


def _of_volumes(step: Step, call: relax.Call, filters: tuple[int, ...], groups: int) -> Step | str:
    """The step with the stride along the depth, or the reason why the kernel does not take its ``filters``."""
    channels, taps = filters[1:3]
    if groups != 1:
        return "the filters of volumes are of several groups"
    if taps > MOST_FIELDS:
        return f"the filters are {taps} deep, the kernel's at most {MOST_FIELDS}"
    if taps > 1 and channels % WIDEST:
        return f"a volume has {channels} channels, which are no multiple of {WIDEST}"
    return step.with_attrs(depth_stride=int(attrs_of(call).strides[0]))
