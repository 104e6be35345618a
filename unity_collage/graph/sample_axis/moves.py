"""The rules of operators that move elements, and compute nothing; see :mod:`.rules`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, relax

from ..shapes import ints
from .axes import Mixed, Operand, SampleAxis, alone, apart, axes_in, dims_of, for_each, is_one, rank_of, some

Operands = Sequence[Any]


def permute_dims(call: relax.Call, operands: Operands) -> Operand:
    found, rank = alone(operands), rank_of(call.args[0])
    axes = list(reversed(range(rank))) if call.attrs.axes is None else axes_in(call.attrs.axes, rank)
    return found.at(axes.index(found.axis))


def expand_dims(call: relax.Call, operands: Operands) -> Operand:
    found, rank = alone(operands), rank_of(call)
    new = set(axes_in(call.attrs.axis, rank))
    kept = [axis for axis in range(rank) if axis not in new]
    return found.at(kept[found.axis])


def squeeze(call: relax.Call, operands: Operands) -> Operand:
    found, dims = alone(operands), dims_of(call.args[0])
    units = [axis for axis, dim in enumerate(dims) if is_one(dim)]
    gone = units if call.attrs.axis is None else axes_in(call.attrs.axis, len(dims))
    apart(found, gone, "squeezes")
    return found.at(found.axis - sum(axis < found.axis for axis in set(gone)))


def reshape(call: relax.Call, operands: Operands) -> Operand:
    """Elements keep their order: the number of elements before a sample, and in a row of a sample, must not change."""
    found = some(operands[0])
    source, target = dims_of(call.args[0]), dims_of(call)
    before = found.outer * _product(source[: found.axis])
    inner = found.each * _product(source[found.axis + 1 :])
    axis = next((axis for axis, dim in enumerate(target) if ints([dim]) is None), None)
    if axis is None:
        raise Mixed("the samples of a reshape's result are not known")
    front, behind = _product(target[:axis]), _product(target[axis + 1 :])
    if not front or not behind or before % front or inner % behind:
        raise Mixed("a reshape does not keep the samples along one axis")
    return SampleAxis(axis, inner // behind, before // front)


def _product(dims: Sequence[ir.Expr]) -> int:
    found = ints(dims)
    if found is None:
        raise Mixed("two axes have unknown extents")
    result = 1
    for each in found:
        result *= each
    return result


def concat(call: relax.Call, operands: Operands) -> Operand:
    (fields,) = operands
    found = {some(field, "a joined value") for field in fields}
    if len(found) > 1:
        raise Mixed("joined values have their samples along different axes")
    (samples,) = found
    if call.attrs.axis is None:
        raise Mixed("it joins flat values")
    return apart(samples, axes_in(call.attrs.axis, rank_of(call)), "joins")


def stack(call: relax.Call, operands: Operands) -> Operand:
    (fields,) = operands
    found = {some(field, "a joined value") for field in fields}
    if len(found) > 1:
        raise Mixed("joined values have their samples along different axes")
    (samples,) = found
    (axis,) = axes_in(call.attrs.axis, rank_of(call))
    return samples.at(samples.axis + (axis <= samples.axis))


def split(call: relax.Call, operands: Operands) -> Operand:
    found = apart(alone(operands), axes_in(call.attrs.axis, rank_of(call.args[0])), "splits")
    assert isinstance(call.ty, relax.TupleType)
    return for_each(call.ty, found)


def strided_slice(call: relax.Call, operands: Operands) -> Operand:
    found, named = alone(operands), call.args[1]
    if not isinstance(named, relax.Tuple):
        raise Mixed("its axes are not known")
    axes = ints(named.fields)
    if axes is None:
        raise Mixed("its axes are not known")
    rank = rank_of(call.args[0])
    return apart(found, [axis % rank for axis in axes], "slices")


def take(call: relax.Call, operands: Operands) -> Operand:
    data, indices = operands
    rank = rank_of(call.args[0])
    if call.attrs.axis is None and rank != 1:
        raise Mixed("it takes from a flat value")
    (axis,) = axes_in(call.attrs.axis or 0, rank)
    if data is None:
        return some(indices).at(indices.axis + axis)
    if indices is not None:
        raise Mixed("its indices depend on the samples, too")
    apart(data, [axis], "takes")
    return data if data.axis < axis else data.at(data.axis + rank_of(call.args[1]) - 1)


def gather_elements(call: relax.Call, operands: Operands) -> Operand:
    data, indices = (some(each) for each in operands)
    if data != indices:
        raise Mixed("data and indices have their samples along different axes")
    return apart(data, axes_in(call.attrs.axis, rank_of(call)), "gathers")


def broadcast_to(call: relax.Call, operands: Operands) -> Operand:
    found = some(operands[0])
    return found.at(found.axis + rank_of(call) - rank_of(call.args[0]))


def pad(call: relax.Call, operands: Operands) -> Operand:
    found = alone(operands)
    width = [int(each) for each in call.attrs.pad_width]
    if any(width[2 * found.axis : 2 * found.axis + 2]):
        raise Mixed("it pads along the axis of the samples")
    return found
