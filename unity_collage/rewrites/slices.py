"""slices: reading every n-th element is one ``strided_slice``, or the stride of the 1x1 convolution behind it.

Normal form: a ``strided_slice`` with positive steps of something that is no slice itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from tvm import relax, tirx

from .padding import padding_of
from .rule import Rule
from .scope import Call, Expr, Scope, op, static_shape
from .windows import (
    AVG_POOLS,
    CONVOLUTIONS,
    MAX_POOLS,
    data_layout,
    kernel_sizes,
    spatial_axes,
    window,
    with_attrs,
)


@dataclass(frozen=True, slots=True)
class Slice:
    """Along each axis of ``source``: ``count`` elements from ``begin``, every ``step``-th."""

    source: Expr
    begin: tuple[int, ...]
    step: tuple[int, ...]
    count: tuple[int, ...]

    def expr(self) -> Expr:
        """It as an operator, on the axes where it leaves something out."""
        shape = static_shape(self.source)
        assert shape is not None, "a Slice is made of static shapes only"
        axes = [axis for axis, size in enumerate(shape) if self.count[axis] != size]
        ends = [self.begin[axis] + (self.count[axis] - 1) * self.step[axis] + 1 for axis in axes]
        return op.strided_slice(
            self.source, axes, [self.begin[axis] for axis in axes], ends, [self.step[axis] for axis in axes]
        )

    def after(self, inner: Slice) -> Slice:
        """This slice of what ``inner`` gives, as one slice of the source of ``inner``."""
        begin = [b + s * mine for b, s, mine in zip(inner.begin, inner.step, self.begin, strict=True)]
        step = [s * mine for s, mine in zip(inner.step, self.step, strict=True)]
        return Slice(inner.source, tuple(begin), tuple(step), self.count)


def slice_of(call: Call | None) -> Slice | None:
    """A ``strided_slice`` of known numbers and positive steps."""
    shape = None if call is None else static_shape(call.args[0])
    count = None if call is None else static_shape(call)
    if call is None or shape is None or count is None:
        return None
    numbers = [_numbers(arg) for arg in call.args[1:]]
    if any(number is None for number in numbers):
        return None
    axes, begins, _, steps = [*numbers, [1] * len(numbers[0] or [])][:4]
    begin, step = [0] * len(shape), [1] * len(shape)
    for axis, first, stride in zip(axes or [], begins or [], steps or [], strict=True):
        axis %= len(shape)
        begin[axis] = min(max(first + shape[axis] if first < 0 else first, 0), shape[axis])
        step[axis] = stride
    return Slice(call.args[0], tuple(begin), tuple(step), count) if min(step) > 0 and min(count) > 0 else None


def _numbers(arg: Expr) -> list[int] | None:
    if not isinstance(arg, relax.Tuple) or not all(isinstance(field, tirx.IntImm) for field in arg.fields):
        return None
    return [int(getattr(field, "value", 0)) for field in arg.fields]


def _merge(call: Expr, scope: Scope) -> Expr | None:
    """strided_slice(strided_slice(x)) -> strided_slice(x)."""
    outer = slice_of(call)
    inner = slice_of(scope.call(call.args[0], "relax.strided_slice"))
    return None if outer is None or inner is None else outer.after(inner).expr()


def _of_pad(call: Expr, scope: Scope) -> Expr | None:
    """strided_slice(pad(x)) -> strided_slice(x), padded by as much as the slice reads of the padding."""
    outer = slice_of(call)
    padding = None if outer is None else padding_of(outer.source, scope)
    shape = None if padding is None else static_shape(padding.source)
    if outer is None or padding is None or shape is None or not isfinite(padding.value):
        return None
    widths, begin, count = [], [], []
    for axis, size in enumerate(shape):
        first, step = outer.begin[axis] - padding.before[axis], outer.step[axis]
        places = range(first, first + step * outer.count[axis], step)
        real = [place for place in places if 0 <= place < size]
        if not real:
            return None
        widths += [places.index(real[0]), len(places) - 1 - places.index(real[-1])]
        begin.append(real[0])
        count.append(len(real))
    return op.nn.pad(
        Slice(padding.source, tuple(begin), outer.step, tuple(count)).expr(),
        widths,
        "constant",
        padding.value,
    )


def _pool_of_one(call: Expr, scope: Scope) -> Expr | None:
    """A pool with a window of one element and no padding -> strided_slice, or its operand."""
    before, after = static_shape(call.args[0]), static_shape(call)
    axes = spatial_axes(data_layout(call))
    if before is None or after is None or axes is None or set(kernel_sizes(call)) != {1}:
        return None
    if any(window(call, "padding")) or call.attrs.ceil_mode or call.attrs.layout != call.attrs.out_layout:
        return None
    step = [1] * len(before)
    for axis, stride in zip(axes, window(call, "strides"), strict=True):
        step[axis] = stride
    return Slice(call.args[0], (0,) * len(before), tuple(step), after).expr()


def _into_convolution(call: Expr, scope: Scope) -> Expr | None:
    """conv_1x1(x[::2, ::2]) -> conv_1x1(x) with stride 2, if nobody else reads the slice."""
    taken = slice_of(scope.own_call(call.args[0], "relax.strided_slice"))
    axes = spatial_axes(data_layout(call))
    if taken is None or axes is None or any(taken.begin) or set(kernel_sizes(call)) != {1}:
        return None
    shape = static_shape(taken.source)
    others = [axis for axis in range(len(taken.count)) if axis not in axes]
    if (
        shape is None
        or any(window(call, "padding"))
        or any(taken.count[axis] != shape[axis] for axis in others)
    ):
        return None
    if any((shape[axis] - 1) // taken.step[axis] + 1 != taken.count[axis] for axis in axes):
        return None
    steps = [stride * taken.step[axis] for axis, stride in zip(axes, window(call, "strides"), strict=True)]
    return with_attrs(call, taken.source, strides=steps)


def _take(call: Expr, scope: Scope) -> Expr | None:
    """take(x, constant scalar, axis) -> reshape(strided_slice(x)), which needs no copy to be a view."""
    index, shape, after = scope.scalar(call.args[1]), static_shape(call.args[0]), static_shape(call)
    if index is None or shape is None or after is None or call.args[1].ty.ndim != 0:
        return None
    axis = int(call.attrs.axis or 0) % len(shape)
    if not 0 <= index < shape[axis] or (call.attrs.axis is None and len(shape) > 1):
        return None
    one = op.strided_slice(call.args[0], [axis], [int(index)], [int(index) + 1], [1])
    return op.reshape(one, after)


MERGE_SLICES = Rule("merge_slices", ("relax.strided_slice",), _merge)
SLICE_OF_PAD = Rule("slice_of_pad", ("relax.strided_slice",), _of_pad)
POOL_OF_ONE = Rule("pool_of_one", (*AVG_POOLS, *MAX_POOLS), _pool_of_one)
SLICE_INTO_CONVOLUTION = Rule("slice_into_convolution", CONVOLUTIONS, _into_convolution)
TAKE_AS_SLICE = Rule("take_as_slice", ("relax.take",), _take)
