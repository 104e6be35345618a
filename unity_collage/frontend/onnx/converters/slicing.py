"""Slice: bounds that are attributes, constants, sizes, or computed when the program runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import ir, relax, te, tirx

from ..node import Converted, OnnxNode
from ..symbolic import are_equal, is_nonnegative
from ..values import Dim
from .runtime_shapes import as_int64, computed, empty, fixed, is_empty, simple, sizes_of

_ENDLESS = (1 << 31) - 1
"""Bounds from here on, and from minus this on, stand for the end and the begin of an axis of any size."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """``size`` elements of an axis from ``begin`` on, each ``step`` after the one before."""

    axis: int
    begin: Dim
    step: int
    size: Dim


def _slice(node: OnnxNode) -> Converted:
    if any(_is_computed(node, position) for position in (1, 2, 3, 4)):
        return _at_run_time(node)
    begins, ends, axes, steps = _bounds(node)
    shape = node.shape()
    cuts = [
        _cut(axis, shape[axis], begin, end, step)
        for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True)
    ]
    cuts = [cut for cut in cuts if cut.step < 0 or not are_equal(cut.size, shape[cut.axis])]
    sizes = _sizes(shape, cuts)
    if not cuts:
        return node.value(0)
    if is_empty(sizes):
        return empty(node, sizes, node.dtype())
    if all(isinstance(item, int) for cut in cuts for item in (cut.begin, cut.size, shape[cut.axis])):
        return _static(node, cuts)
    order = [cut.axis for cut in cuts]
    return node.builder.call_te(
        _sliced, node[0], order, [cut.begin for cut in cuts], [cut.step for cut in cuts], sizes
    )


def _is_computed(node: OnnxNode, position: int) -> bool:
    """Whether an operand is computed when the program runs."""
    return node.has(position) and node.value(position).known is None


def _bounds(node: OnnxNode) -> tuple[list[Dim], list[Dim], list[int], list[int]]:
    """Begins, ends, axes and steps, one for each axis that is cut."""
    if node.version < 10:
        begins, ends = list(node.required("starts")), list(node.required("ends"))
        axes, steps = node.attribute("axes"), None
    else:
        begins, ends = node.sizes(1), node.sizes(2)
        axes, steps = node.integers("axes", 3), node.integers("steps", 4)
    axes = list(range(len(begins))) if axes is None else [node.axis(axis) for axis in axes]
    steps = [1] * len(begins) if steps is None else steps
    if 0 in steps:
        node.refuse("it has a step of 0")
    if len({len(begins), len(ends), len(axes), len(steps)}) > 1 or len(set(axes)) < len(axes):
        node.refuse("its starts, ends, axes and steps do not belong together")
    return begins, ends, axes, steps


def _cut(axis: int, dim: Dim, begin: Dim, end: Dim, step: int) -> _Cut:
    if isinstance(dim, int) and isinstance(begin, int) and isinstance(end, int):
        # Python reads an end of -1 - dim as the place before the first element only as None. It knows that place as a
        # begin too, which is the first element in ONNX.
        last = None if step < 0 and end < -dim else end
        part = range(dim)[slice(max(begin, -dim), last, step)]
        return _Cut(axis, part.start if len(part) else 0, step, len(part))
    low, high = _clamped(begin, dim, step, 0), _clamped(end, dim, step, -1 if step < 0 else 0)
    gap = simple(_expr(high) - _expr(low) if step > 0 else _expr(low) - _expr(high))
    if isinstance(low, int) and low == 0 and step > 0 and is_nonnegative(high):
        count = high
    else:
        count = simple(tirx.max(_expr(gap), as_int64(0)))
    pace = abs(step)
    return _Cut(
        axis, low, step, count if pace == 1 else simple(tirx.floordiv(_expr(count) + (pace - 1), pace))
    )


def _expr(size: Dim) -> ir.Expr:
    return as_int64(size)


def _clamped(bound: Dim, dim: Dim, step: int, least: int) -> Dim:
    """A bound counted from the front, from ``least`` to dim, or to dim - 1 if the step is negative."""
    if isinstance(bound, int):
        if bound >= _ENDLESS:
            return dim if step > 0 else simple(_expr(dim) - 1)
        if bound <= -_ENDLESS:
            return least if step > 0 or least < 0 else simple(tirx.min(as_int64(0), _expr(dim) - 1))
        if bound == 0:
            return 0
    elif are_equal(bound, dim):
        return dim if step > 0 else simple(_expr(dim) - 1)
    size, place = _expr(dim), _expr(bound)
    lowest, highest = as_int64(least), size if step > 0 else size - 1
    if isinstance(bound, int):
        # One side of the range cannot be passed, unless the axis is empty and the step negative.
        if bound >= 0:
            return simple(tirx.min(place, highest))
        from_front = tirx.max(size + bound, lowest)
        return simple(from_front if step > 0 or least < 0 else tirx.min(from_front, highest))
    if is_nonnegative(bound):
        return simple(tirx.min(place, highest))
    place = tirx.Select(place < 0, place + size, place)
    return tirx.min(tirx.max(place, lowest), highest)


def _sizes(shape: Sequence[Dim], cuts: Sequence[_Cut]) -> list[Dim]:
    sizes = list(shape)
    for cut in cuts:
        sizes[cut.axis] = cut.size
    return sizes


def _static(node: OnnxNode, cuts: Sequence[_Cut]) -> relax.Expr:
    shape = node.static_shape() if all(isinstance(d, int) for d in node.shape()) else node.shape()
    begins, ends = [], []
    for cut in cuts:
        begin, size, dim = (
            fixed(cut.begin),
            fixed(cut.size),
            fixed(shape[cut.axis]),
        )  # numbers, as the caller checked
        last = begin + (size - 1) * cut.step
        begins.append(begin)
        # The end before the first element is a negative one that is out of the range of the axis.
        ends.append(last + 1 if cut.step > 0 else (last - 1 if last else -dim - 1))
    return relax.op.strided_slice(
        node[0], [cut.axis for cut in cuts], begins, ends, [cut.step for cut in cuts]
    )


def _sliced(
    data: te.Tensor, axes: list[int], begins: list[Any], steps: list[Any], sizes: list[Any]
) -> te.Tensor:
    chosen = {int(axis): (begin, step) for axis, begin, step in zip(axes, begins, steps, strict=True)}

    def element(*place: Any) -> Any:
        where = list(place)
        for axis, (begin, step) in chosen.items():
            where[axis] = as_int64(begin) + place[axis] * as_int64(step)
        return data(*where)

    return te.compute(sizes, element, name="slice")


def _at_run_time(node: OnnxNode) -> Converted:
    shape, rank = node.shape(), node.rank()
    count = node.shape(1)[0]
    if not isinstance(count, int):
        node.refuse("how many axes it cuts is not known before the program runs")
    operands = [node.cast(node[position], "int64") for position in (1, 2)]
    computed_axes = node.has(3) and node.numbers(3) is None
    axes = node.cast(node[3], "int64") if node.has(3) else node.constant(np.arange(count), "int64")
    steps = node.cast(node[4], "int64") if node.has(4) else node.constant(np.ones(count), "int64")
    bounds = computed(node, _run_time_bounds, *operands, axes, steps, shape)
    sizes = sizes_of(node, computed(node, _run_time_counts, bounds, rank))
    if not computed_axes:
        cut = [node.axis(int(axis)) for axis in (node.needed(3, "axes") if node.has(3) else range(count))]
        sizes = [size if axis in cut else shape[axis] for axis, size in enumerate(sizes)]

    def picked(data: te.Tensor, bounds: te.Tensor, sizes: list[Any]) -> te.Tensor:
        def element(*place: Any) -> Any:
            return data(*[bounds(axis, 0) + at * bounds(axis, 1) for axis, at in enumerate(place)])

        return te.compute(sizes, element, name="slice")

    return node.builder.call_te(picked, node[0], bounds, sizes)


def _run_time_bounds(
    begins: te.Tensor, ends: te.Tensor, axes: te.Tensor, steps: te.Tensor, shape: list[Any]
) -> te.Tensor:
    """For each axis the first element, the step and how many elements there are."""
    rank, rows = len(shape), []
    for axis, dim in enumerate(shape):
        size = as_int64(dim)
        begin, end, step = as_int64(0), size, as_int64(1)
        for n in range(fixed(begins.shape[0])):
            hit = tirx.any(axes(n) == axis, axes(n) == axis - rank)
            begin, end, step = (
                tirx.Select(hit, new(n), old) for new, old in ((begins, begin), (ends, end), (steps, step))
            )
        first, last = _run_time_clamped(begin, size, step, 0), _run_time_clamped(end, size, step, -1)
        pace = tirx.max(tirx.Select(step < 0, -step, step), as_int64(1))
        gap = tirx.max(tirx.Select(step < 0, first - last, last - first), as_int64(0))
        rows.append((first, step, tirx.floordiv(gap + pace - 1, pace)))

    def element(axis: Any, column: Any) -> Any:
        found: Any = as_int64(0)
        for n, row in enumerate(rows):
            for m, item in enumerate(row):
                found = tirx.Select(tirx.all(axis == n, column == m), item, found)
        return found

    return te.compute((rank, 3), element, name="bounds")


def _run_time_clamped(bound: Any, size: Any, step: Any, least: int) -> Any:
    """``least``: the smallest bound for a negative step."""
    place = tirx.Select(bound < 0, bound + size, bound)
    lowest = tirx.Select(step < 0, as_int64(least), as_int64(0))
    # A begin is clamped to dim - 1 for a negative step; so is an end.
    return tirx.min(tirx.max(place, lowest), tirx.Select(step < 0, size - 1, size))


def _run_time_counts(bounds: te.Tensor, rank: int) -> te.Tensor:
    return te.compute((rank,), lambda axis: bounds(axis, 2), name="sizes")


CONVERTERS: Mapping[str, Callable[[OnnxNode], Converted]] = {"Slice": _slice}
