"""Strides of dimensions of one element.

They address nothing, but oneDNN 3.2 reads layouts off them: an image of one batch whose batch has a stride of 1, as a
reshape may leave it, is neither channels first nor channels last to it, and a reference kernel takes it. Its cache of
primitives does not compare them: which kernel runs then depends on what was made before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..native.program import NativeStep, PostOp, View

_IMAGES = frozenset({"convolution", "deconvolution", "pooling", "batch_normalization", "resampling", "lrn"})
"""Where both layouts describe an image, as of one pixel, these run faster with channels last."""


def with_nested_strides(step: NativeStep) -> NativeStep:
    """The step with such strides as in a dense tensor whose axes are nested as its operands and result are."""
    orders = _orders(len(step.result.dims))
    if step.primitive in _IMAGES:
        orders = orders[::-1]
    images = [view for name, view in step.args if name.startswith(("src", "dst"))]
    shared = next((order for order in orders if all(_fits(view, order) for view in images)), None)

    def settle(view: View) -> View:
        if shared is not None and _fits(view, shared):
            return _nested(view, shared)
        own = _orders(len(view.dims))
        return _nested(view, next((order for order in own if _fits(view, order)), _by_strides(view)))

    def settle_operand(post: PostOp) -> PostOp:
        return post if post.arg is None else replace(post, arg=settle(post.arg))

    return replace(
        step,
        args=tuple((name, settle(view)) for name, view in step.args),
        post_ops=tuple(settle_operand(post) for post in step.post_ops),
        before=tuple(with_nested_strides(earlier) for earlier in step.before),
    )


def _orders(rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Axes from outermost to innermost, channels first and channels last."""
    return tuple(range(rank)), (0, *range(2, rank), 1) if rank > 1 else (0,)


def _fits(view: View, order: Sequence[int]) -> bool:
    """Whether each axis of more than one element lies inside of those before it in ``order``."""
    if len(order) != len(view.dims):
        return False
    inner = 1
    for axis in reversed(order):
        if view.dims[axis] != 1:
            if view.strides[axis] < inner:
                return False
            inner = view.strides[axis] * view.dims[axis]
    return True


def _by_strides(view: View) -> list[int]:
    """Axes by their strides; those of one element are outermost."""
    return sorted(range(len(view.dims)), key=lambda axis: (view.dims[axis] != 1, -view.strides[axis], axis))


def _nested(view: View, order: Sequence[int]) -> View:
    strides = list(view.strides)
    inner = 1
    for axis in reversed(order):
        if view.dims[axis] == 1:
            strides[axis] = inner
        else:
            inner = strides[axis] * view.dims[axis]
    return replace(view, strides=tuple(strides))
