"""Element-wise operators: they compute in the layout that their operands have.

Before: ``add(x, bias[1, C, 1, 1])``
After:  ``add(x_nhwc, bias[1, 1, 1, C])``
"""

from __future__ import annotations

from tvm import relax

from ...rewrites.why_not import WhyNot
from ..axes import plain
from ..block import Block
from ..calls import changed
from ..values import Tensor, Value

_UNARY = """abs acos acosh asin asinh atan atanh bitwise_not ceil clip cos cosh erf exp floor isfinite isinf
isnan log logical_not negative round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc astype full_like
ones_like zeros_like nn.relu nn.leakyrelu nn.gelu nn.gelu_tanh nn.selu nn.silu nn.softplus nn.dropout
to_vdevice"""

_BROADCAST = """add atan2 bitwise_and bitwise_or bitwise_xor divide equal ewise_fma floor_divide floor_mod
greater greater_equal left_shift less less_equal log_add_exp logical_and logical_or logical_xor maximum
minimum mod multiply not_equal power right_shift subtract where"""


_UNALIGNED = "an operand has fewer axes than the result, and its shape is not known"


def elementwise(block: Block, call: relax.Call) -> Value | WhyNot | None:
    """Any number of tensors that broadcast against each other; other operands stay."""
    operands = [block.tensor(arg) for arg in call.args]
    tensors = [operand for operand in operands if operand is not None]
    rank = max((tensor.rank for tensor in tensors), default=0)
    layout = block.cheapest(tensors, rank)
    if layout == plain(rank):
        return None
    if not all(_aligns(tensor, rank) for tensor in tensors):
        return WhyNot(_UNALIGNED)
    args = [
        arg if operand is None else block.aligned(operand, layout)
        for arg, operand in zip(call.args, operands, strict=True)
    ]
    if isinstance(call.ty, relax.TupleType):
        return block.results(changed(call, args), [layout] * len(call.ty.fields))
    return block.result(changed(call, args), layout)


def _aligns(tensor: Tensor, rank: int) -> bool:
    """Whether unit axes can be put in front of an operand, which takes its extents when it has fewer axes."""
    return tensor.rank == rank or tensor.extents is not None


def broadcast_to(block: Block, call: relax.Call) -> Value | WhyNot | None:
    """``broadcast_to(x, shape)`` with the shape permuted like the operand."""
    x = block.tensor(call.args[0])
    target = call.args[1]
    if x is None or not isinstance(target, relax.ShapeExpr):
        return None
    extents = target.values
    layout = block.cheapest([x], len(extents))
    if layout == plain(len(extents)):
        return None
    if not _aligns(x, len(extents)):
        return WhyNot(_UNALIGNED)
    shape = relax.ShapeExpr([extents[axis] for axis in layout])
    return block.result(changed(call, [block.aligned(x, layout), shape]), layout)


def take(block: Block, call: relax.Call) -> Value | WhyNot | None:
    """A look into a table of one axis, in the layout of the indexes."""
    table, places = (block.tensor(arg) for arg in call.args)
    if table is None or table.rank != 1 or places is None:
        return None
    layout = block.cheapest([places], places.rank)
    if layout == plain(places.rank):
        return None
    return block.result(changed(call, [block.operand(call.args[0]), block.form(places, layout)]), layout)


RULES = dict.fromkeys((_UNARY + " " + _BROADCAST).split(), elementwise) | {
    "broadcast_to": broadcast_to,
    "take": take,
}
