"""Layout changes read and written through strides: a permutation, slice or reshape that costs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import relax

from .program import Step, View
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
"""Operators that only rename the dimensions."""

LAYOUT_CHANGES = RESHAPES | {"relax.permute_dims", "relax.strided_slice"}
"""Operators whose result is their operand seen with other strides. A part of a ``relax.split`` is one too."""

CAST = "relax.astype"
"""The operator that changes the element type: a library may do it while it reads or writes."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A value as a view of another: element by element at ``offset`` plus ``strides`` of ``source``."""

    source: Any
    strides: tuple[int, ...]
    offset: int = 0


def seen_through(producer: relax.Expr) -> Seen | str:
    """What the result of a layout change is of its operand, or the reason why it is no such view."""
    if isinstance(producer, relax.TupleGetItem):
        return _part(producer)
    if not isinstance(producer, relax.Call) or op_name(producer) not in LAYOUT_CHANGES:
        return "not a layout change"
    source, result = producer.args[0], shape_of(producer)
    if shape_of(source) is None or result is None:
        return "a layout change of a tensor without static shape"
    if op_name(producer) == "relax.permute_dims":
        inner = row_major(static_shape(source))
        return Seen(source, tuple(inner[axis] for axis in _permutation(producer)))
    if op_name(producer) == "relax.strided_slice":
        return _slice(producer, result)
    return Seen(source, row_major(result))


def read_through(step: Step, value: relax.Expr, producer: relax.Expr) -> Step | str:
    """The step that reads, instead of ``value``, the operand of the layout change which makes it."""
    seen = seen_through(producer)
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


def write_through(step: Step, call: relax.Call) -> Step | str:
    """The step that writes the result of a permutation or reshape of its result."""
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
    """Source and result views of a copy that makes a layout change real, with as few dims as possible."""
    seen = seen_through(producer)
    if isinstance(seen, str):
        return seen
    shape, dtype = static_shape(value), view_dtype(dtype_of(value))
    dims, (source, target) = merged(shape, seen.strides, row_major(shape))
    return View(seen.source, dims, source, dtype, seen.offset), View(value, dims, target, dtype)


def _permutation(call: relax.Call) -> tuple[int, ...]:
    rank = len(static_shape(call))
    axes = attrs_of(call).axes
    return tuple(reversed(range(rank))) if axes is None else tuple(axis % rank for axis in ints(axes))


def _slice(call: relax.Call, result: tuple[int, ...]) -> Seen | str:
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
    return "the slice is empty" if 0 in result else Seen(source, tuple(strides), offset)


def _part(item: relax.TupleGetItem) -> Seen | str:
    call = item.tuple_value
    if not isinstance(call, relax.Call) or op_name(call) != "relax.split":
        return "a field of a tuple that no split makes"
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
    return Seen(source, row_major(shape), begin * row_major(shape)[axis])
