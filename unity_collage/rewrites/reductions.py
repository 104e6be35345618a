"""reductions: means over an image and softmax, put together from their parts.

Normal form: the axes of a reduction are counted from the front and in order; the mean over a whole image is
``mean`` with ``keepdims``, however it was pooled; ``nn.softmax`` and ``nn.log_softmax``.
"""

from __future__ import annotations

from .rule import Rule
from .scope import Call, Expr, Scope, op, static_shape
from .windows import AVG_POOLS, data_layout, spatial_axes, window

_REDUCTIONS = {
    "relax.max": op.max,
    "relax.mean": op.mean,
    "relax.min": op.min,
    "relax.prod": op.prod,
    "relax.std": op.std,
    "relax.sum": op.sum,
    "relax.variance": op.variance,
}
_ADAPTIVE = ("relax.nn.adaptive_avg_pool1d", "relax.nn.adaptive_avg_pool2d", "relax.nn.adaptive_avg_pool3d")


def reduced_axes(call: Call) -> list[int]:
    """The axes a reduction runs over, from the front and in order."""
    rank = call.args[0].ty.ndim
    axes = range(rank) if call.attrs.axis is None else [int(axis) % rank for axis in call.attrs.axis]
    return sorted(axes)


def _axes_in_order(call: Expr, scope: Scope) -> Expr | None:
    """mean(x, axis=[-1, -2]) -> mean(x, axis=[2, 3])."""
    axes = call.attrs.axis
    if axes is None or call.args[0].ty.ndim < 0 or [int(axis) for axis in axes] == reduced_axes(call):
        return None
    return _REDUCTIONS[call.op.name](call.args[0], reduced_axes(call), bool(call.attrs.keepdims))


def _global_mean(call: Expr, scope: Scope) -> Expr | None:
    """avg_pool(x) with one window over all of the image -> mean(x, axis=[2, 3], keepdims=True)."""
    before, after = static_shape(call.args[0]), static_shape(call)
    axes = spatial_axes(data_layout(call))
    if before is None or after is None or axes is None or any(after[axis] != 1 for axis in axes):
        return None
    if call.attrs.layout != call.attrs.out_layout or not _covers(call, [before[axis] for axis in axes]):
        return None
    return op.mean(call.args[0], axes, keepdims=True)


def _covers(call: Call, image: list[int]) -> bool:
    """Whether the first window takes in the image and counts nothing else."""
    if call.op.name in _ADAPTIVE:
        return True
    sizes, padding = window(call, "pool_size"), window(call, "padding")
    if set(window(call, "dilation")) != {1} or (any(padding) and call.attrs.count_include_pad):
        return False
    inner = all(size - before >= width for size, before, width in zip(sizes, padding, image, strict=False))
    return inner and (any(padding) or sizes == image)


def _softmax(call: Expr, scope: Scope) -> Expr | None:
    """exp(x - max(x)) / sum(exp(x - max(x))) -> softmax(x), over one axis."""
    power = scope.call(call.args[0], "relax.exp")
    total = scope.own_call(call.args[1], "relax.sum")
    if power is None or total is None or not total.args[0].same_as(call.args[0]) or not total.attrs.keepdims:
        return None
    axes = reduced_axes(total)
    x = _less_its_maximum(power.args[0], axes, scope)
    return op.nn.softmax(x, axes[0]) if x is not None and len(axes) == 1 else None


def _less_its_maximum(expr: Expr, axes: list[int], scope: Scope) -> Expr | None:
    """``x`` where ``expr`` is ``x - max(x, axes)``."""
    difference = scope.call(expr, "relax.subtract")
    top = None if difference is None else scope.call(difference.args[1], "relax.max")
    if difference is None or top is None or not top.args[0].same_as(difference.args[0]):
        return None
    return top.args[0] if reduced_axes(top) == axes and top.attrs.keepdims else None


def _log_softmax(call: Expr, scope: Scope) -> Expr | None:
    """log(softmax(x)) -> log_softmax(x), which does not lose what rounds to zero."""
    inner = scope.own_call(call.args[0], "relax.nn.softmax")
    return None if inner is None else op.nn.log_softmax(inner.args[0], int(inner.attrs.axis))


REDUCED_AXES = Rule("reduced_axes", tuple(_REDUCTIONS), _axes_in_order)
GLOBAL_MEAN = Rule("global_mean", (*AVG_POOLS, *_ADAPTIVE), _global_mean)
SOFTMAX_FORM = Rule("softmax_form", ("relax.divide",), _softmax)
LOG_SOFTMAX_FORM = Rule("log_softmax_form", ("relax.log",), _log_softmax)
