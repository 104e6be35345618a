"""reductions: means over an image and softmax, put together from their parts.

Normal form: the axes of a reduction are counted from the front and in order; the mean over a whole image is
``mean`` with ``keepdims``, however it was pooled; ``nn.softmax`` and ``nn.log_softmax``.
"""

from __future__ import annotations

from .rewrite import Rewrite
from .scope import Call, Expr, Scope, op, op_name, rank_of, static_shape, static_sizes
from .why_not import WhyNot, is_no, shape_text
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
    rank = rank_of(call.args[0])
    axes = range(rank) if call.attrs.axis is None else [int(axis) % rank for axis in call.attrs.axis]
    return sorted(axes)


def _axes_in_order(call: Call, scope: Scope) -> Expr | None:
    """mean(x, axis=[-1, -2]) -> mean(x, axis=[2, 3])."""
    axes = call.attrs.axis
    if axes is None or rank_of(call.args[0]) < 0 or [int(axis) for axis in axes] == reduced_axes(call):
        return None
    return _REDUCTIONS[op_name(call)](call.args[0], reduced_axes(call), bool(call.attrs.keepdims))


def why_not_last(expr: Expr, axes: list[int]) -> str | None:
    """Why ``axes`` are not known to be the last ones of ``expr``, with known sizes."""
    rank = rank_of(expr)
    if axes != list(range(rank - len(axes), rank)):
        return f"the mean is over the axes {axes} of {rank}, which are not the last ones"
    return None if static_sizes(expr, axes) is not None else f"the sizes of the axes {axes} are not known"


def why_not_trailing(norm: Call) -> str | None:
    """Why the parameters of a norm are not known to belong to the last axes of its result, in their order."""
    rank = rank_of(norm)
    axes, name = [int(axis) % rank for axis in norm.attrs.axes], op_name(norm).removeprefix("relax.nn.")
    if axes == list(range(rank - len(axes), rank)):
        return None
    return f"{name} is over the axes {axes} of {rank}, which are not the last ones"


def _global_mean(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """avg_pool(x) with one window over all of the image -> mean(x, axis=[2, 3], keepdims=True)."""
    before, after = static_shape(call.args[0]), static_shape(call)
    axes = spatial_axes(data_layout(call))
    if before is None or after is None or axes is None:
        unknown = "layout is blocked" if axes is None else "shape is not known"
        return WhyNot(f"{op_name(call).removeprefix('relax.')} pools an image, and its {unknown}")
    if any(after[axis] != 1 for axis in axes):
        return None
    if call.attrs.layout != call.attrs.out_layout:
        return WhyNot(f"the pool makes {call.attrs.out_layout} of {call.attrs.layout}")
    why = _why_not_all(call, [before[axis] for axis in axes])
    return op.mean(call.args[0], axes, keepdims=True) if why is None else WhyNot(why)


def _why_not_all(call: Call, image: list[int]) -> str | None:
    """Why the first window does not cover exactly the image, or None."""
    if op_name(call) in _ADAPTIVE:
        return None
    sizes, padding = window(call, "pool_size"), window(call, "padding")
    if set(window(call, "dilation")) != {1}:
        return "the window of the pool is dilated"
    if any(padding) and call.attrs.count_include_pad:
        return "the pool counts its padding"
    inner = all(size - before >= width for size, before, width in zip(sizes, padding, image, strict=False))
    if inner and (any(padding) or sizes == image):
        return None
    return f"the window of the pool is {shape_text(sizes)}, and the image {shape_text(image)}"


def _softmax(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """exp(x - max(x)) / sum(exp(x - max(x))) -> softmax(x), over one axis."""
    power, total = scope.call(call.args[0], "relax.exp"), scope.call(call.args[1], "relax.sum")
    if power is None or total is None or scope.call(total.args[0], "relax.exp") is None:
        return None
    why = _why_not_softmax(call, power, total, scope)
    difference = scope.call(power.args[0], "relax.subtract")
    if why is not None or difference is None:
        return WhyNot(why or "", 2)
    return op.nn.softmax(difference.args[0], reduced_axes(total)[0])


def _why_not_softmax(call: Call, power: Call, total: Call, scope: Scope) -> str | None:
    """Why the quotient of an exponential by a sum is not a softmax."""
    if not total.args[0].same_as(call.args[0]):
        return f"sum is of {scope.title(total.args[0])}, not of the exp that it divides"
    axes = reduced_axes(total)
    if len(axes) != 1 or not total.attrs.keepdims:
        return f"sum is over the axes {axes}" + ("" if total.attrs.keepdims else " and does not keep them")
    difference = scope.call(power.args[0], "relax.subtract")
    top = None if difference is None else scope.call(difference.args[1], "relax.max")
    if difference is None or top is None or not top.args[0].same_as(difference.args[0]):
        return f"exp is of {scope.title(power.args[0])}, not of a tensor less its own maximum"
    if reduced_axes(top) != axes or not top.attrs.keepdims:
        return f"max is over the axes {reduced_axes(top)}, and sum over {axes}; both must be kept"
    return scope.why_not_own(call.args[1])


def _log_softmax(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """log(softmax(x)) -> log_softmax(x), which does not lose what rounds to zero."""
    inner = scope.own(call.args[0], "relax.nn.softmax", matched=2)
    return inner if is_no(inner) else op.nn.log_softmax(inner.args[0], int(inner.attrs.axis))


REDUCED_AXES = Rewrite("reduced_axes", tuple(_REDUCTIONS), _axes_in_order)
GLOBAL_MEAN = Rewrite("global_mean", (*AVG_POOLS, *_ADAPTIVE), _global_mean)
SOFTMAX_FORM = Rewrite("softmax_form", ("relax.divide",), _softmax)
LOG_SOFTMAX_FORM = Rewrite("log_softmax_form", ("relax.log",), _log_softmax)
