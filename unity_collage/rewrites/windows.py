"""Convolutions and pools as windows: which axes they slide along, and the same call with other attributes."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from ..graph.shapes import ints, tensor_type
from .scope import Call, Expr, op, op_name

CONVOLUTIONS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")
AVG_POOLS = ("relax.nn.avg_pool1d", "relax.nn.avg_pool2d", "relax.nn.avg_pool3d")
MAX_POOLS = ("relax.nn.max_pool1d", "relax.nn.max_pool2d", "relax.nn.max_pool3d")

_CONVOLUTION_FIELDS = (
    "strides",
    "padding",
    "dilation",
    "groups",
    "data_layout",
    "kernel_layout",
    "out_layout",
    "out_dtype",
)
_POOL_FIELDS = (
    "pool_size",
    "strides",
    "dilation",
    "padding",
    "ceil_mode",
    "count_include_pad",
    "layout",
    "out_layout",
)


def with_attrs(call: Call, source: Expr, **changes: object) -> Expr:
    """A convolution or pool like ``call`` of ``source``, with some attributes changed."""
    return with_operands(call, [source, *call.args[1:]], **changes)


def with_operands(call: Call, operands: Sequence[Expr], **changes: object) -> Expr:
    """A convolution or pool like ``call`` of other operands, with some attributes changed."""
    names = _CONVOLUTION_FIELDS if op_name(call) in CONVOLUTIONS else _POOL_FIELDS
    fields = {name: getattr(call.attrs, name) for name in names} | changes
    make = getattr(op.nn, op_name(call).rpartition(".")[2])
    return make(*operands, **fields)


def spatial_axes(layout: str) -> list[int] | None:
    """The axes of D, H and W, in the order of the attributes; None for blocked layouts."""
    return [layout.index(letter) for letter in "DHW" if letter in layout] if layout.isalpha() else None


def data_layout(call: Call) -> str:
    """The layout of the operand of a convolution or pool."""
    return str(call.attrs.data_layout if op_name(call) in CONVOLUTIONS else call.attrs.layout)


def kernel_sizes(call: Call) -> list[int]:
    """The extent of the window along each spatial axis."""
    if op_name(call) not in CONVOLUTIONS:
        return [int(size) for size in call.attrs.pool_size]
    layout = str(call.attrs.kernel_layout)
    shape = tensor_type(call.args[1]).shape
    assert isinstance(shape, relax.ShapeExpr)
    sizes = ints(shape.values[layout.index(letter)] for letter in "DHW" if letter in layout)
    assert sizes is not None
    return list(sizes)


def window(call: Call, name: str) -> list[int]:
    """An attribute of one or two numbers a spatial axis."""
    return [int(number) for number in getattr(call.attrs, name)]
