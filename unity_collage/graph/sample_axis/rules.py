"""For each operator, the axis of the samples in its result, from those of its operands.

A rule takes the call and the samples of each operand, of which at least one has some. It returns the samples of the
result, or of each field of a tuple. It raises :class:`Mixed` if a sample of the result may depend on another sample
of an operand. A wrong rule gives wrong results, so there are rules only for operators where this is certain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import relax

from . import moves
from .axes import (
    Mixed,
    Operand,
    SampleAxis,
    Samples,
    alone,
    apart,
    axes_in,
    broadcast,
    for_each,
    has_samples,
    rank_of,
    some,
)

Operands = Sequence[Any]
"""An :data:`~.axes.Operand` for each operand."""
Rule = Callable[[relax.Call, Operands], Operand]

_ELEMENTWISE = """abs acos acosh add asin asinh astype atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor
ceil clip cos cosh divide equal erf ewise_fma exp floor floor_divide floor_mod greater greater_equal isfinite isinf
isnan left_shift less less_equal log log_add_exp logical_and logical_not logical_or logical_xor maximum minimum mod
multiply negative not_equal power right_shift round rsqrt sigmoid sign sin sinh sqrt square subtract tan tanh trunc
where ones_like zeros_like full_like
nn.relu nn.leakyrelu nn.gelu nn.gelu_tanh nn.selu nn.silu nn.softplus"""

_ALONG = "nn.softmax nn.log_softmax nn.layer_norm nn.rms_norm cumsum cumprod sort argsort topk"
"""Operators that work along axes, which they name, and keep all axes."""

_REDUCTIONS = "sum mean max min prod std variance argmax argmin"

_IMAGES = """nn.conv1d nn.conv2d nn.conv3d nn.conv1d_transpose nn.conv2d_transpose nn.conv3d_transpose
nn.max_pool1d nn.max_pool2d nn.max_pool3d nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d
nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d image.resize2d image.resize3d"""
"""Operators that compute each image of a batch alone; all operands but the first are the same for all."""


def _elementwise(call: relax.Call, operands: Operands) -> Operand:
    typed = [
        (arg.ty, samples)
        for arg, samples in zip(call.args, operands, strict=True)
        if isinstance(arg.ty, relax.TensorType)
    ]
    return broadcast(typed, max(rank_of(ty) for ty, _ in typed))


def _along(call: relax.Call, operands: Operands) -> Operand:
    attrs, rank = call.attrs, rank_of(call.args[0])
    named = attrs.axes if hasattr(attrs, "axes") else attrs.axis
    found = apart(alone(operands), axes_in(named, rank))
    return for_each(call.ty, found) if isinstance(call.ty, relax.TupleType) else found


def _batch_norm(call: relax.Call, operands: Operands) -> Operand:
    if getattr(call.attrs, "training", True):
        raise Mixed("it takes statistics of all samples")
    found = apart(alone(operands), axes_in(call.attrs.axis, rank_of(call.args[0])))
    return [found, None, None]


def _group_norm(call: relax.Call, operands: Operands) -> Operand:
    rank, attrs = rank_of(call.args[0]), call.attrs
    channel = axes_in(attrs.channel_axis, rank)
    return apart(alone(operands), [*channel, *axes_in(attrs.axes, rank)])


def _reduction(call: relax.Call, operands: Operands) -> Operand:
    rank = rank_of(call.args[0])
    axes = axes_in(call.attrs.axis, rank)
    found = apart(alone(operands), axes, "reduces")
    if call.attrs.keepdims:
        return found
    return found.at(found.axis - sum(axis < found.axis for axis in set(axes)))


def _image(call: relax.Call, operands: Operands) -> Operand:
    attrs = call.attrs
    layout = attrs.data_layout if hasattr(attrs, "data_layout") else attrs.layout
    out = getattr(attrs, "out_layout", "") or layout
    found = alone(operands)
    if found.axis != str(layout).find("N") or str(out).find("N") != found.axis:
        raise Mixed("the samples are not its batch")
    return found


def _matmul(call: relax.Call, operands: Operands) -> Operand:
    left, right = operands
    ranks = rank_of(call.args[0]), rank_of(call.args[1])
    if min(ranks) < 2:
        return _product_of_vector(ranks, left, right)
    rank = max(ranks)
    if left is not None and left.axis >= ranks[0] - 2:
        if left.axis == ranks[0] - 1 or right is not None:
            raise Mixed("a product adds up over the samples, or has two axes of them")
        return left.at(rank - 2)
    if right is not None and right.axis >= ranks[1] - 2:
        if right.axis == ranks[1] - 2 or left is not None:
            raise Mixed("a product adds up over the samples, or has two axes of them")
        return right.at(rank - 1)
    return broadcast([(call.args[0].ty, left), (call.args[1].ty, right)], rank)


def _product_of_vector(ranks: tuple[int, int], left: Samples, right: Samples) -> Operand:
    if ranks[1] == 1 and right is None and left is not None and left.axis != ranks[0] - 1:
        return left
    raise Mixed("a product with a vector adds up over the samples, or the vector depends on them")


def _attention(call: relax.Call, operands: Operands) -> Operand:
    if any(map(has_samples, operands[3:])):
        raise Mixed("its mask depends on the samples")
    if {some(each) for each in operands[:3]} != {SampleAxis(0)}:
        raise Mixed("the samples are not its batch")
    return SampleAxis(0)


def _recurrent(call: relax.Call, operands: Operands) -> Operand:
    """Inputs and states are (steps, batch, ...), all others of one step (batch, ...) or the same for all."""
    inputs = operands[0]
    if inputs != SampleAxis(1):
        raise Mixed("the samples are not the batch of a recurrent layer")
    if any(each not in (None, SampleAxis(0)) for each in operands[1:]):
        raise Mixed("the samples are not the batch of a recurrent layer's state")
    return (
        [SampleAxis(1), SampleAxis(0), SampleAxis(0)]
        if isinstance(call.ty, relax.TupleType)
        else SampleAxis(1)
    )


RULES: Mapping[str, Rule] = {
    f"relax.{name}": rule
    for names, rule in (
        (_ELEMENTWISE, _elementwise),
        (_ALONG, _along),
        ("nn.batch_norm", _batch_norm),
        ("nn.group_norm nn.instance_norm", _group_norm),
        (_REDUCTIONS, _reduction),
        (_IMAGES, _image),
        ("matmul", _matmul),
        ("permute_dims", moves.permute_dims),
        ("expand_dims", moves.expand_dims),
        ("squeeze", moves.squeeze),
        ("reshape flatten", moves.reshape),
        ("concat", moves.concat),
        ("stack", moves.stack),
        ("split", moves.split),
        ("strided_slice", moves.strided_slice),
        ("take", moves.take),
        ("gather_elements", moves.gather_elements),
        ("broadcast_to", moves.broadcast_to),
        ("nn.pad", moves.pad),
        ("nn.attention", _attention),
        ("collage.recurrent collage.lstm collage.gru collage.rnn", _recurrent),
    )
    for name in names.split()
}

FILLED = frozenset(f"relax.{name}" for name in ("full", "zeros", "ones", "broadcast_to"))
"""Operators that write one value at all positions of an axis that their operand lacks."""
