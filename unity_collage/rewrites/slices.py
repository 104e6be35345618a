"""slices: reading every n-th element is one ``strided_slice``, or the stride of the 1x1 convolution behind it.

Normal form: a ``strided_slice`` with positive steps of something that is not a slice itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from tvm import relax, tirx

from .padding import Padding, padding_of
from .rewrite import Rewrite
from .scope import Call, Expr, Scope, op, rank_of, static_shape
from .why_not import WhyNot, number_text, shape_text
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
        """The slice as an operator, on the axes where it leaves elements out."""
        shape = static_shape(self.source)
        assert shape is not None, "a Slice is made of static shapes only"
        axes = [axis for axis, size in enumerate(shape) if self.count[axis] != size]
        ends = [self.begin[axis] + (self.count[axis] - 1) * self.step[axis] + 1 for axis in axes]
        return op.strided_slice(
            self.source, axes, [self.begin[axis] for axis in axes], ends, [self.step[axis] for axis in axes]
        )

    def after(self, inner: Slice) -> Slice:
        """This slice of the result of ``inner``, as one slice of the source of ``inner``."""
        begin = [b + s * mine for b, s, mine in zip(inner.begin, inner.step, self.begin, strict=True)]
        step = [s * mine for s, mine in zip(inner.step, self.step, strict=True)]
        return Slice(inner.source, tuple(begin), tuple(step), self.count)


def slice_of(call: Call | None) -> Slice | None:
    """A ``strided_slice`` of known numbers and positive steps."""
    if call is None or why_no_slice(call) is not None:
        return None
    shape = static_shape(call.args[0]) or ()
    axes, begins, _, steps = _arguments(call)
    begin, step = [0] * len(shape), [1] * len(shape)
    for axis, first, stride in zip(axes or [], begins or [], steps or [], strict=True):
        axis %= len(shape)
        begin[axis] = min(max(first + shape[axis] if first < 0 else first, 0), shape[axis])
        step[axis] = stride
    return Slice(call.args[0], tuple(begin), tuple(step), static_shape(call) or ())


def why_no_slice(call: Call) -> str | None:
    """Why a ``strided_slice`` is not one of known numbers and positive steps, or None."""
    count = static_shape(call)
    if static_shape(call.args[0]) is None or count is None:
        return "the shape of strided_slice or of its operand is not known"
    arguments = _arguments(call)
    if any(numbers is None for numbers in arguments):
        return "a bound or step of strided_slice is not a number that is written in the program"
    if min(arguments[3] or [], default=1) <= 0:
        return f"strided_slice has the steps {shape_text(arguments[3])}, not positive ones"
    return None if min(count, default=1) > 0 else "strided_slice is empty"


def _arguments(call: Call) -> list[list[int] | None]:
    """Axes, begins, ends and steps of a ``strided_slice``; None for those that are not known."""
    numbers = [_numbers(arg) for arg in call.args[1:]]
    return [*numbers, [1] * len(numbers[0] or [])][:4]


def _numbers(arg: Expr) -> list[int] | None:
    if not isinstance(arg, relax.Tuple) or not all(isinstance(field, tirx.IntImm) for field in arg.fields):
        return None
    return [int(getattr(field, "value", 0)) for field in arg.fields]


def _merge(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """strided_slice(strided_slice(x)) -> strided_slice(x)."""
    first = scope.call(call.args[0], "relax.strided_slice")
    if first is None:
        return None
    outer, inner = slice_of(call), slice_of(first)
    if outer is None or inner is None:
        return WhyNot(why_no_slice(call) or why_no_slice(first) or "", 2)
    return outer.after(inner).expr()


def _of_pad(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """strided_slice(pad(x)) -> strided_slice(x), padded by the part of the padding that the slice reads."""
    padding = padding_of(call.args[0], scope)
    if not isinstance(padding, Padding):
        return padding
    outer, shape = slice_of(call), static_shape(padding.source)
    if outer is None or shape is None:
        return WhyNot(why_no_slice(call) or "the shape of what is padded is not known", 2)
    if not isfinite(padding.value):
        return WhyNot(
            f"the value of the padding is {number_text(padding.value)}, which nn.pad cannot hold", 2
        )
    widths, begin, count = [], [], []
    for axis, size in enumerate(shape):
        first, step = outer.begin[axis] - padding.before[axis], outer.step[axis]
        places = range(first, first + step * outer.count[axis], step)
        real = [place for place in places if 0 <= place < size]
        if not real:
            return WhyNot(f"strided_slice reads nothing but padding along axis {axis}", 2)
        widths += [places.index(real[0]), len(places) - 1 - places.index(real[-1])]
        begin.append(real[0])
        count.append(len(real))
    inner = Slice(padding.source, tuple(begin), outer.step, tuple(count))
    return op.nn.pad(inner.expr(), widths, "constant", padding.value)


def _pool_of_one(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """A pool with a window of one element and no padding -> strided_slice, or its operand."""
    if set(kernel_sizes(call)) != {1}:
        return None
    before, after = static_shape(call.args[0]), static_shape(call)
    axes = spatial_axes(data_layout(call))
    if before is None or after is None or axes is None:
        unknown = "layout is blocked" if axes is None else "shape is not known"
        return WhyNot(f"a pool of one element reads an image, and its {unknown}")
    if any(window(call, "padding")) or call.attrs.ceil_mode or call.attrs.layout != call.attrs.out_layout:
        return WhyNot("a pool of one element has padding, ceil_mode or another layout of its result")
    step = [1] * len(before)
    for axis, stride in zip(axes, window(call, "strides"), strict=True):
        step[axis] = stride
    return Slice(call.args[0], (0,) * len(before), tuple(step), after).expr()


def _into_convolution(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """conv_1x1(x[::2, ::2]) -> conv_1x1(x) with stride 2, if nothing else reads the slice."""
    sliced = scope.call(call.args[0], "relax.strided_slice")
    if sliced is None:
        return None
    taken, axes = slice_of(sliced), spatial_axes(data_layout(call))
    if taken is None or axes is None:
        return WhyNot(why_no_slice(sliced) or f"the layout {data_layout(call)} is blocked", 2)
    why = _why_no_stride(call, taken, axes) or scope.why_not_own(call.args[0])
    if why is not None:
        return WhyNot(why, 2)
    steps = [stride * taken.step[axis] for axis, stride in zip(axes, window(call, "strides"), strict=True)]
    return with_attrs(call, taken.source, strides=steps)


def _why_no_stride(call: Call, taken: Slice, axes: list[int]) -> str | None:
    """Why a convolution cannot read every n-th pixel by itself in place of ``taken``."""
    sizes = kernel_sizes(call)
    if set(sizes) != {1}:
        return f"the convolution has windows of {shape_text(sizes)}, not of one pixel"
    if any(window(call, "padding")):
        return f"the convolution has the padding {shape_text(window(call, 'padding'))}, not 0"
    shape = static_shape(taken.source) or ()
    others = [axis for axis in range(len(taken.count)) if axis not in axes]
    if any(taken.begin) or any(taken.count[axis] != shape[axis] for axis in others):
        return "strided_slice does not begin at the first pixel, or leaves out images or channels"
    if any((shape[axis] - 1) // taken.step[axis] + 1 != taken.count[axis] for axis in axes):
        return "strided_slice leaves out pixels at the end of the image"
    return None


def _take(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """take(x, constant scalar, axis) -> reshape(strided_slice(x)), which needs no copy to be a view."""
    index, shape, after = scope.scalar(call.args[1]), static_shape(call.args[0]), static_shape(call)
    if index is None:
        return None
    if shape is None or after is None:
        return WhyNot("the shape of take or of its operand is not known")
    if rank_of(call.args[1]) != 0:
        return WhyNot(f"the index of take has {rank_of(call.args[1])} axes, not 0")
    if call.attrs.axis is None and len(shape) > 1:
        return WhyNot("take counts the elements of all axes, not those of one")
    axis = int(call.attrs.axis or 0) % len(shape)
    at = _from_the_front(int(index), shape[axis], str(call.attrs.mode))
    if not 0 <= at < shape[axis]:
        return WhyNot(f"the index of take is {index:.0f}, not from 0 to {shape[axis] - 1}")
    one = op.strided_slice(call.args[0], [axis], [at], [at + 1], [1])
    return op.reshape(one, after)


def _from_the_front(index: int, extent: int, mode: str) -> int:
    """``index`` counted from the front, where ``mode`` lets it count from the end."""
    if mode == "wrap" and extent:
        return index % extent
    return index + extent if mode == "fast" and index < 0 else index


MERGE_SLICES = Rewrite("merge_slices", ("relax.strided_slice",), _merge)
SLICE_OF_PAD = Rewrite("slice_of_pad", ("relax.strided_slice",), _of_pad)
POOL_OF_ONE = Rewrite("pool_of_one", (*AVG_POOLS, *MAX_POOLS), _pool_of_one)
SLICE_INTO_CONVOLUTION = Rewrite("slice_into_convolution", CONVOLUTIONS, _into_convolution)
TAKE_AS_SLICE = Rewrite("take_as_slice", ("relax.take",), _take)
