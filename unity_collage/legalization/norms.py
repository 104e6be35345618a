"""Normalisations that TVM's own legalization cannot make: over all axes, in float64, and of bfloat16.

And group and instance norms of any type: TVM computes the variance as E[x^2] - E[x]^2, which cancels where the mean is
large. Chan, Golub and LeVeque 1983, "Algorithms for Computing the Sample Variance", compare it with two passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from tvm import relax, te, tirx, topi

from .stock import Legalization, legalized_by_tvm

_topi: Any = topi
"""Its stubs have few of its functions."""

_COMPUTED_IN = {"float64": "float64", "bfloat16": "float32"}
"""The element types that TVM does not take, and in which they are computed."""

_ALL_COMPUTED_IN = {**_COMPUTED_IN, "float32": "float32", "float16": "float32"}


def _rms_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Like TVM's legalization, which fails if all axes are in one row: it indexes the mean square of each row."""
    kind, axes = call.args[0].ty, [int(axis) for axis in call.attrs.axes]
    assert isinstance(kind, relax.TensorType)
    rank = kind.ndim
    if len(axes) < rank:
        return legalized_by_tvm(builder, call)

    def one_row(data: te.Tensor, weight: te.Tensor) -> te.Tensor:
        row = topi.expand_dims(data, 0)
        made = topi.nn.rms_norm(row, weight, [axis % rank + 1 for axis in axes], call.attrs.epsilon)
        return topi.squeeze(made, [0])

    return builder.call_te(one_row, *call.args)


def _layer_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    def made(data: te.Tensor, scale: te.Tensor, shift: te.Tensor) -> te.Tensor:
        axes = _axes(call, len(data.shape))
        found = _standardised(data, axes, call.attrs.epsilon)
        return _scaled(found, _along(scale, data, axes), _along(shift, data, axes), call)

    return _in_steps(builder, call, made)


def _group_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``axes`` are those of the rows besides the channels of a group."""

    def made(data: te.Tensor, scale: te.Tensor, shift: te.Tensor) -> te.Tensor:
        rank, groups = len(data.shape), int(call.attrs.num_groups)
        channels = int(call.attrs.channel_axis) % rank
        shape = list(data.shape)
        apart = [*shape[:channels], groups, shape[channels] // groups, *shape[channels + 1 :]]
        rows = [channels + 1, *(axis + (axis > channels) for axis in _axes(call, rank))]
        found = _standardised(_topi.reshape(data, apart), rows, call.attrs.epsilon)
        whole = _topi.reshape(found, shape)
        return _scaled(whole, _along(scale, data, [channels]), _along(shift, data, [channels]), call)

    return _in_steps(builder, call, made, _ALL_COMPUTED_IN)


def _instance_norm(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    def made(data: te.Tensor, scale: te.Tensor, shift: te.Tensor) -> te.Tensor:
        rank = len(data.shape)
        channels = [int(call.attrs.channel_axis) % rank]
        found = _standardised(data, _axes(call, rank), call.attrs.epsilon)
        return _scaled(found, _along(scale, data, channels), _along(shift, data, channels), call)

    return _in_steps(builder, call, made, _ALL_COMPUTED_IN)


def _in_steps(
    builder: relax.BlockBuilder, call: relax.Call, made: Any, computed_in: Mapping[str, str] = _COMPUTED_IN
) -> relax.Expr:
    """The norm that ``made`` makes, for the types of ``computed_in``; others are left to TVM."""
    kind = call.ty
    if not isinstance(kind, relax.TensorType) or (dtype := str(kind.dtype)) not in computed_in:
        return legalized_by_tvm(builder, call)

    def cast(*given: te.Tensor) -> te.Tensor:
        return _topi.cast(made(*(_topi.cast(each, computed_in[dtype]) for each in given)), dtype)

    return builder.call_te(cast, *call.args)


def _axes(call: relax.Call, rank: int) -> list[int]:
    return [int(axis) % rank for axis in call.attrs.axes]


def _standardised(data: te.Tensor, axes: Sequence[int], epsilon: float) -> te.Tensor:
    """``data`` with mean 0 and variance 1 along ``axes``, computed in two passes."""
    dtype = str(data.dtype)
    count = prod(data.shape[axis] for axis in axes)
    divisor = tirx.const(count, dtype) if isinstance(count, int) else count.astype(dtype)
    centred = _topi.subtract(data, _topi.divide(_topi.sum(data, axes, True), divisor))
    variance = _topi.divide(_topi.sum(_topi.multiply(centred, centred), axes, True), divisor)
    return _topi.divide(centred, _topi.sqrt(_topi.add(variance, tirx.const(epsilon, dtype))))


def _along(factors: te.Tensor, data: te.Tensor, axes: Sequence[int]) -> te.Tensor:
    """Factors in the shape that broadcasts along ``axes``."""
    return _topi.reshape(factors, [size if axis in axes else 1 for axis, size in enumerate(data.shape)])


def _scaled(data: te.Tensor, scale: te.Tensor, shift: te.Tensor, call: relax.Call) -> te.Tensor:
    scaled = _topi.multiply(data, scale) if call.attrs.scale else data
    return _topi.add(scaled, shift) if call.attrs.center else scaled


LEGALIZATIONS: dict[str, Legalization] = {
    "relax.nn.rms_norm": _rms_norm,
    "relax.nn.layer_norm": _layer_norm,
    "relax.nn.group_norm": _group_norm,
    "relax.nn.instance_norm": _instance_norm,
}
