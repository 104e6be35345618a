"""Canonical strides for dimensions with one element.

These strides do not address anything, but oneDNN 3.2 derives the layout from them. If the batch of one image has a
stride of 1, as after a reshape, the layout is neither channels first nor channels last. Then a reference kernel
runs. The primitive cache ignores these strides, so which kernel runs also depends on the primitives that were made
before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...graph.free_sizes import ascending
from ..native.program import NativeStep, PostOp, View

_IMAGES = frozenset({"convolution", "deconvolution", "pooling", "batch_normalization", "resampling", "lrn"})
"""If both layouts describe an image, for instance one of a single pixel, these run faster with channels last."""


def with_nested_strides(step: NativeStep) -> NativeStep:
    """The step with the strides of dimensions with one element as in a dense tensor.

    The axes of that tensor are nested in one order for operands and result, if there is a common one.
    """
    orders = _orders(len(step.result.dims))
    if step.primitive in _IMAGES:
        orders = orders[::-1]
    images = [view for name, view in step.args if name.startswith(("src", "dst"))]
    shared = next((order for order in orders if all(_fits(view, order) for view in images)), None)

    def nest(view: View) -> View:
        if shared is not None and _fits(view, shared):
            return _nested(view, shared)
        own = _orders(len(view.dims))
        odd = _by_strides(view, columns_last=step.primitive == "matmul")
        return _nested(view, next((order for order in own if _fits(view, order)), odd))

    def nest_operand(post: PostOp) -> PostOp:
        return post if post.arg is None else replace(post, arg=nest(post.arg))

    return replace(
        step,
        args=tuple((name, nest(view)) for name, view in step.args),
        post_ops=tuple(nest_operand(post) for post in step.post_ops),
        before=tuple(with_nested_strides(earlier) for earlier in step.before),
    )


def _orders(rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Axes from outermost to innermost, channels first and channels last."""
    return tuple(range(rank)), (0, *range(2, rank), 1) if rank > 1 else (0,)


def _fits(view: View, order: Sequence[int]) -> bool:
    """Whether the axes with more than one element are nested in ``order``, outermost first."""
    if len(order) != len(view.dims):
        return False
    inner = 1
    for axis in reversed(order):
        if view.dims[axis] != 1:
            if view.strides[axis] < inner:
                return False
            inner = view.strides[axis] * view.dims[axis]
    return True


def _by_strides(view: View, columns_last: bool) -> list[int]:
    """Axes by descending stride; those with one element come first, as the outermost.

    With ``columns_last`` a last axis of one element comes last: a matrix of one column has rows of one element, and
    oneDNN has no kernel for rows that are apart otherwise.
    """
    last = len(view.dims) - 1

    def place(axis: int) -> tuple[bool, bool, Any, int]:
        is_column = columns_last and axis == last and view.dims[axis] == 1
        return is_column, view.dims[axis] != 1, ascending(-view.strides[axis]), axis

    return sorted(range(len(view.dims)), key=place)


def _nested(view: View, order: Sequence[int]) -> View:
    strides = list(view.strides)
    inner = 1
    for axis in reversed(order):
        if view.dims[axis] == 1:
            strides[axis] = inner
        else:
            inner = strides[axis] * view.dims[axis]
    return replace(view, strides=tuple(strides))
