"""Convolutions and their transposes in one, two or three dimensions and every layout.

A convolution is one matrix product for each group, of the windows of the padded input and the weights (im2col). BLAS
multiplies floats in their own precision, and integers of up to 16 bits in double precision, which is exact.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from unity_collage.reference.layout import from_order, spatial, to_order
from unity_collage.reference.linear_algebra import exact
from unity_collage.reference.values import Call, Operator, whole_numbers


def sides(padding: tuple[int, ...], rank: int) -> list[tuple[int, int]]:
    """(before, after) of each spatial axis, from an attribute of 1, ``rank`` or ``2 * rank`` numbers."""
    whole = padding * rank if len(padding) == 1 else padding
    after = whole[rank:] if len(whole) == 2 * rank else whole
    return list(zip(whole[:rank], after, strict=True))


def windows(
    x: np.ndarray, kernel: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> np.ndarray:
    """A view (N, C, out..., kernel...) of the windows of ``x``, (N, C, in...)."""
    rank = len(kernel)
    spans = [(taps - 1) * step + 1 for taps, step in zip(kernel, dilation, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(x, spans, axis=tuple(range(2, 2 + rank)))
    steps = [slice(None, None, step) for step in (*strides, *dilation)]
    return view[(slice(None), slice(None), *steps)]


_COLUMN_BYTES = 1 << 28
"""The most memory for columns."""

_CACHE_BYTES = 1 << 28
_cache: OrderedDict[tuple[object, ...], np.ndarray] = OrderedDict()
"""The last results of :func:`convolve`, by a digest of its arguments. Candidate kernels that differ only in the
operators fused behind a convolution need the same result."""


def convolve(
    x: np.ndarray,
    weight: np.ndarray,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    groups: int,
) -> np.ndarray:
    """(N, C, in...) with (O, C / groups, kernel...) to (N, O, out...), as an array that is read-only."""
    asked = (_digest(x), _digest(weight), tuple(strides), tuple(padding), tuple(dilation), groups)
    if asked not in _cache:
        _cache[asked] = _convolved(x, weight, strides, padding, dilation, groups)
        _cache[asked].flags.writeable = False
    _cache.move_to_end(asked)
    result = _cache[asked]
    while sum(array.nbytes for array in _cache.values()) > _CACHE_BYTES:
        _cache.popitem(last=False)
    return result


def _digest(array: np.ndarray) -> tuple[object, ...]:
    content = hashlib.sha1(
        np.ascontiguousarray(array).data, usedforsecurity=False
    )  # the fastest one in hashlib
    return array.shape, str(array.dtype), content.digest()


def _convolved(
    x: np.ndarray,
    weight: np.ndarray,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    groups: int,
) -> np.ndarray:
    rank, batch, outputs = weight.ndim - 2, x.shape[0], weight.shape[0]
    view = windows(np.pad(x, [(0, 0), (0, 0), *padding]), weight.shape[2:], strides, dilation)
    out = view.shape[2 : 2 + rank]
    view = view.reshape(batch, groups, -1, *view.shape[2:])
    order = (0, 1, 2, *range(3 + rank, 3 + 2 * rank), *range(3, 3 + rank))
    columns = view.transpose(order)
    matrix = weight.reshape(groups, outputs // groups, -1)
    if columns.nbytes <= _COLUMN_BYTES:
        flat = columns.reshape(batch, groups, weight[0].size, math.prod(out))
        return (matrix @ flat).reshape(batch, outputs, *out)
    return _in_parts(matrix, columns, out).reshape(batch, outputs, *out)


def _in_parts(matrix: np.ndarray, columns: np.ndarray, out: Sequence[int]) -> np.ndarray:
    """``matrix`` times ``columns``, (batch, groups, ..., out...), for a few places of the first output axis at a time.

    The columns of a large convolution take gigabytes, and pages that are new take longer than the product.
    """
    batch, groups, rest = *columns.shape[:2], math.prod(out[1:])
    step = max(1, _COLUMN_BYTES * out[0] // columns.nbytes)
    result = np.empty((batch, groups, matrix.shape[1], out[0], rest), np.result_type(matrix, columns))
    buffer = np.empty(columns.size // out[0] * step, columns.dtype)
    for first in range(0, out[0], step):
        part = columns[(..., slice(first, first + step), *(slice(None) for _ in out[1:]))]
        held = buffer[: part.size].reshape(part.shape)
        np.copyto(held, part)
        product = matrix @ held.reshape(batch, groups, matrix.shape[2], -1)
        result[..., first : first + step, :] = product.reshape(batch, groups, matrix.shape[1], -1, rest)
    return result


def convolve_transpose(
    x: np.ndarray,
    weight: np.ndarray,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> np.ndarray:
    """(N, C, in...) with (C, O / groups, kernel...) to (N, O, out...).

    Every input element adds a multiple of the kernel to the output. Then padding cuts off the border.
    """
    kernel, size = weight.shape[2:], x.shape[2:]
    columns = weight.reshape(groups, weight.shape[0] // groups, -1).swapaxes(1, 2) @ x.reshape(
        len(x), groups, x.shape[1] // groups, -1
    )
    outputs = groups * weight.shape[1]
    columns = columns.reshape(len(x), outputs, *kernel, *size)
    reach = [
        (count - 1) * stride + (taps - 1) * step + 1 + extra
        for count, stride, taps, step, extra in zip(
            size, strides, kernel, dilation, output_padding, strict=True
        )
    ]
    total = np.zeros((len(x), outputs, *reach), columns.dtype)
    for tap in np.ndindex(*kernel):
        places = tuple(
            slice(at * step, at * step + (count - 1) * stride + 1, stride)
            for at, step, count, stride in zip(tap, dilation, size, strides, strict=True)
        )
        total[(..., *places)] += columns[(slice(None), slice(None), *tap)]
    return total[
        (..., *(slice(before, end - after) for (before, after), end in zip(padding, reach, strict=True)))
    ]


def _conv(call: Call, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    attrs = call.attrs
    axes = spatial(attrs.data_layout)
    result = convolve(
        to_order(exact(x), attrs.data_layout, "NC" + axes),
        to_order(exact(weight), attrs.kernel_layout, "OI" + axes),
        whole_numbers(attrs.strides),
        sides(whole_numbers(attrs.padding), len(axes)),
        whole_numbers(attrs.dilation),
        attrs.groups,
    )
    return from_order(result, "NC" + axes, attrs.out_layout or attrs.data_layout)


def _conv_transpose(call: Call, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    attrs = call.attrs
    axes = spatial(attrs.data_layout)
    result = convolve_transpose(
        to_order(exact(x), attrs.data_layout, "NC" + axes),
        to_order(exact(weight), attrs.kernel_layout, "IO" + axes),
        whole_numbers(attrs.strides),
        sides(whole_numbers(attrs.padding), len(axes)),
        whole_numbers(attrs.dilation),
        whole_numbers(attrs.output_padding),
        attrs.groups,
    )
    return from_order(result, "NC" + axes, attrs.out_layout or attrs.data_layout)


OPERATORS: dict[str, Operator] = {
    **{f"relax.nn.conv{rank}d": Operator(_conv) for rank in (1, 2, 3)},
    **{f"relax.nn.conv{rank}d_transpose": Operator(_conv_transpose) for rank in (1, 2, 3)},
}
