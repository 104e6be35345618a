"""Layout changes read and written through strides: such a permutation, slice or reshape costs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import relax

from .program import NativeStep, View
from .values import attrs_of, dtype_of, ints, op_name, scalar_of, shape_of, static_shape, view_dtype
from .views import merged, remap, row_major

RESHAPES = frozenset(
    {
        "relax.reshape",
        "relax.expand_dims",
        "relax.squeeze",
        "relax.flatten",
        "relax.nn.batch_flatten",
    }
)
"""Operators that change the shape only."""

LAYOUT_CHANGES = RESHAPES | {"relax.permute_dims", "relax.strided_slice"}
"""Operators with a result that is a strided view of their operand. So is a part of a ``relax.split``."""

CAST = "relax.astype"
"""The operator that changes the element type; a library may cast while it reads or writes."""


@dataclass(frozen=True, slots=True)
class StridedSource:
    """A value as a strided view of ``source``: it begins at element ``offset`` and has the ``strides``."""

    source: Any
    strides: tuple[int, ...]
    offset: int = 0


def strided_source(producer: relax.Expr) -> StridedSource | str:
    """The result of a layout change as a view of its operand, or the reason why it is not one."""
    if isinstance(producer, relax.TupleGetItem):
        return _part(producer)
    if not isinstance(producer, relax.Call) or op_name(producer) not in LAYOUT_CHANGES:
        return "not a layout change"
    source, result = producer.args[0], shape_of(producer)
    if shape_of(source) is None or result is None:
        return "a layout change of a tensor without static shape"
    if op_name(producer) == "relax.permute_dims":
        inner = row_major(static_shape(source))
        return StridedSource(source, tuple(inner[axis] for axis in _permutation(producer)))
    if op_name(producer) == "relax.strided_slice":
        return _slice(producer, result)
    return StridedSource(source, row_major(result))


def read_through(step: NativeStep, value: relax.Expr, producer: relax.Expr) -> NativeStep | str:
    """The step that reads the operand of the layout change ``producer`` instead of its result ``value``."""
    seen = strided_source(producer)
    if isinstance(seen, str):
        return seen
    if all(view.buffer != value for view in step.views()):
        return "the step does not read it"
    shape = static_shape(value)
    moved = {
        view: remap(view, shape, seen.strides, seen.source, seen.offset)
        for view in step.views()
        if view.buffer == value
    }
    if None in moved.values():
        return "no strides describe the operand as the primitive sees it"
    return step.map_views(lambda view: moved.get(view) or view)


def write_through(step: NativeStep, call: relax.Call) -> NativeStep | str:
    """The step that writes its result as ``call``, a permutation or a reshape of it, would leave it."""
    op = op_name(call)
    if op not in RESHAPES and op != "relax.permute_dims":
        return "not a layout change that results can be written through"
    shape, wanted = shape_of(call.args[0]), shape_of(call)
    if shape is None or wanted is None:
        return "a layout change of a tensor without static shape"
    strides = row_major(shape)
    if op == "relax.permute_dims":
        outer = dict(zip(_permutation(call), row_major(wanted), strict=True))
        strides = tuple(outer[axis] for axis in range(len(shape)))
    moved = remap(step.result, shape, strides, call)
    return (
        "no strides describe the result as the primitive sees it"
        if moved is None
        else step.with_result(moved)
    )


def copied(value: relax.Expr, producer: relax.Expr) -> tuple[View, View] | str:
    """Source and result views of a copy that executes a layout change, with as few dims as possible."""
    seen = strided_source(producer)
    if isinstance(seen, str):
        return seen
    shape, dtype = static_shape(value), view_dtype(dtype_of(value))
    dims, (source, target) = merged(shape, seen.strides, row_major(shape))
    return View(seen.source, dims, source, dtype, seen.offset), View(value, dims, target, dtype)


def _permutation(call: relax.Call) -> tuple[int, ...]:
    rank = len(static_shape(call))
    axes = attrs_of(call).axes
    return tuple(reversed(range(rank))) if axes is None else tuple(axis % rank for axis in ints(axes))


def _slice(call: relax.Call, result: tuple[int, ...]) -> StridedSource | str:
    source = call.args[0]
    shape = static_shape(source)
    strides = list(row_major(shape))
    numbers = [[scalar_of(v) for v in arg.fields] for arg in call.args[1:] if isinstance(arg, relax.Tuple)]
    if len(numbers) < 3 or any(n is None for column in numbers for n in column):
        return "a slice by values that are not constant"
    axes, begins = numbers[0], numbers[1]
    steps = numbers[3] if len(numbers) > 3 else [1] * len(axes)
    offset = 0
    for axis, begin, step in zip(axes, begins, steps, strict=True):
        k, first, by = int(axis or 0) % len(shape), int(begin or 0), int(step or 1)
        if by < 0:
            return "a slice that runs backwards"
        offset += min(max(first + shape[k] if first < 0 else first, 0), shape[k]) * strides[k]
        strides[k] *= by
    return "the slice is empty" if 0 in result else StridedSource(source, tuple(strides), offset)


def _part(item: relax.TupleGetItem) -> StridedSource | str:
    call = item.tuple_value
    if not isinstance(call, relax.Call) or op_name(call) != "relax.split":
        return "a field of a tuple that is not the result of a split"
    source = call.args[0]
    shape = shape_of(source)
    if shape is None:
        return "a split of a tensor without static shape"
    axis = int(attrs_of(call).axis) % len(shape)
    sections = attrs_of(call).indices_or_sections
    if hasattr(sections, "__len__"):
        begin = (0, *ints(sections))[item.index]
    else:
        begin = item.index * -(-shape[axis] // int(sections))
    return StridedSource(source, row_major(shape), begin * row_major(shape)[axis])
