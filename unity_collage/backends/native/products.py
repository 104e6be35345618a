"""The operands of a matrix product as views, for every form that ``relax.matmul`` has, and for 1x1 convolutions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm import relax

from .program import View
from .values import attrs_of, ints, static_shape, view_of
from .views import row_major


@dataclass(frozen=True, slots=True)
class ProductViews:
    """[batch..., rows, inner] times [batch..., inner, columns] is [batch..., rows, columns], all of equal rank.

    A batch dimension of 1 is broadcast to that of the other operand.
    """

    left: View
    right: View
    result: View


def product_views(call: relax.Call) -> ProductViews:
    """Views of the operands and the result of a call with static shapes.

    A vector on the left becomes a matrix of one row, a vector on the right a matrix of one column. If the right operand
    is a single matrix, the batches of the left one become rows of one product.
    """
    left, right = call.args
    left_dims, right_dims = static_shape(left), static_shape(right)
    left_dims = (1, *left_dims) if len(left_dims) == 1 else left_dims
    right_dims = (*right_dims, 1) if len(right_dims) == 1 else right_dims
    inner, columns = right_dims[-2:]
    if math.prod(right_dims[:-2]) == 1:
        rows = math.prod(left_dims[:-1])
        return ProductViews(
            view_of(left, (rows, inner)), view_of(right, (inner, columns)), view_of(call, (rows, columns))
        )
    rank = max(len(left_dims), len(right_dims))
    left_dims = (1,) * (rank - len(left_dims)) + left_dims
    right_dims = (1,) * (rank - len(right_dims)) + right_dims
    batch = tuple(max(a, b) for a, b in zip(left_dims[:-2], right_dims[:-2], strict=True))
    result = (*batch, left_dims[-2], columns)
    return ProductViews(
        view_of(left, left_dims, row_major(left_dims)),
        view_of(right, right_dims, row_major(right_dims)),
        view_of(call, result, row_major(result)),
    )


def pointwise_views(call: relax.Call) -> ProductViews | str:
    """A 1x1 convolution with channels innermost as (pixels, channels) times (channels, outputs), or why it is not that.

    Operands and result have static shapes and no dimension of 0.
    """
    if reason := _why_not_pointwise(call):
        return reason
    data, kernel = call.args
    *extents, inner = static_shape(data)
    pixels, out = math.prod(extents), math.prod(static_shape(kernel)) // inner
    layout = str(attrs_of(call).kernel_layout)
    strides = (1, inner) if layout.index("O") < layout.index("I") else (out, 1)
    weights = view_of(kernel, (inner, out), strides)
    return ProductViews(view_of(data, (pixels, inner)), weights, view_of(call, (pixels, out)))


def _why_not_pointwise(call: relax.Call) -> str | None:
    attrs = attrs_of(call)
    layout = str(attrs.data_layout)
    if layout[-1] != "C" or str(attrs.out_layout or layout) != layout:
        return f"layout {layout} does not keep channels innermost, and only then is a convolution one product"
    extents = zip(static_shape(call.args[1]), str(attrs.kernel_layout), strict=True)
    if any(extent != 1 for extent, letter in extents if letter not in "OI"):
        return "the kernel has more than one tap"
    if int(attrs.groups) != 1 or any(s != 1 for s in ints(attrs.strides)) or any(ints(attrs.padding)):
        return "with groups, strides or padding it is not one product"
    return None
