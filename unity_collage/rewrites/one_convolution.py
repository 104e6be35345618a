"""one_convolution: a sum of convolutions of one input is one convolution.

Structural re-parameterization (RepVGG, Ding et al. 2021, section 3.3), for networks that were exported with the
branches they were trained with, and for shortcuts around a single convolution. The input itself, or a factor per
channel of it, is a convolution with windows of one element.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm_ffi import Array, structural_equal

from .constants import constant
from .linear import Linear, linear_of, per_channel
from .rewrite import Rewrite
from .scope import Call, Expr, Scope, op
from .why_not import WhyNot, first_of, shape_text
from .windows import CONVOLUTIONS, kernel_sizes, window

_SAME = ("strides", "groups", "data_layout", "kernel_layout", "out_layout", "out_dtype")
"""Attributes in which two convolutions must agree to be one."""

_Widths = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Branch:
    """A summand: a convolution, or ``factor`` times ``source``, and the constant that is added to it."""

    source: Expr
    linear: Linear | None
    factor: np.ndarray
    shift: np.ndarray | None


def _merge(call: Call, scope: Scope) -> Expr | WhyNot | None:
    """conv(x, v) + a + conv(x, w) + b -> conv(x, v + w) + (a + b).

    The smaller of two windows is added at its place in the larger one. Also, at the middle of the window:
    conv(x, v) + s * x -> conv(x, v + s), and conv(x, v) + x -> conv(x, v + 1).
    """
    if not all(structural_equal(call.ty, arg.ty) for arg in call.args):
        return None
    left, right = (_branch(arg, scope) for arg in call.args)
    if not left.source.same_as(right.source):
        return _why_shared(call, left, right, scope)
    return first_of(_merged(base, other) for base, other in ((left, right), (right, left)))


def _merged(base: Branch, other: Branch) -> Expr | WhyNot | None:
    """``base + other`` as the convolution of ``base`` with more weights, if it is one."""
    if base.linear is None:
        return None
    weights = _weights_of(base.linear, other)
    if isinstance(weights, str):
        return WhyNot(weights, 3 if other.linear is not None else 2)
    bias = _bias(base.linear, base.shift, other.shift)
    if isinstance(bias, str):
        return WhyNot(bias, 4)
    merged = base.linear.with_weights(base.linear.weights + weights)
    return merged if bias is None else op.add(merged, bias)


def _why_shared(call: Call, left: Branch, right: Branch, scope: Scope) -> WhyNot | None:
    """Why one of two branches is not a convolution of the other's source: it has another reader."""
    for branch, other in ((left, right), (right, left)):
        convolution = scope.call(branch.source, *CONVOLUTIONS)
        if branch.linear is None and convolution is not None and convolution.args[0].same_as(other.source):
            shared = scope.why_not_own(branch.source)
            return None if shared is None else WhyNot(shared, 3)
    return None


def _branch(expr: Expr, scope: Scope) -> Branch:
    """``expr`` as a summand; a value with other readers can only be a source."""
    shift, one = None, np.ones((), "float32")
    summed = scope.own_call(expr, "relax.add")
    if summed is not None and (array := scope.array(summed.args[1])) is not None:
        expr, shift = summed.args[0], array
    linear = linear_of(scope.own_call(expr, *CONVOLUTIONS), scope)
    if linear is not None:
        return Branch(linear.call.args[0], linear, one, shift)
    scaled = scope.own_call(expr, "relax.multiply")
    factor = None if scaled is None else scope.array(scaled.args[1])
    if scaled is not None and factor is not None:
        return Branch(scaled.args[0], None, factor, shift)
    return Branch(expr, None, one, shift)


def _weights_of(base: Linear, other: Branch) -> np.ndarray | str:
    """The weights that ``other`` adds to those of ``base``, if the windows of ``base`` contain its windows; else the
    reason.
    """
    if other.linear is None:
        one = [1] * (base.rank - 2)
        weights, widths = _diagonal(base, other.factor), _widths(base, one, [0] * len(one), one)
    else:
        attrs, theirs = base.call.attrs, other.linear.call
        for name in _SAME:
            ours, its = getattr(attrs, name), getattr(theirs.attrs, name)
            if not structural_equal(ours, its):
                return f"two convolutions of one input have the {name} {_shown(ours)} and {_shown(its)}"
        weights = other.linear.weights
        widths = _widths(base, kernel_sizes(theirs), window(theirs, "padding"), window(theirs, "dilation"))
    if isinstance(weights, str):
        return weights
    return widths if isinstance(widths, str) else np.pad(weights, widths)


def _shown(attr: object) -> str:
    """An attribute of a convolution: numbers in brackets, or as it prints."""
    return shape_text(attr) if isinstance(attr, (Array, list, tuple)) else str(attr)


def _widths(base: Linear, kernel: list[int], padding: list[int], dilation: list[int]) -> _Widths | str:
    """How far, along each axis of the weights, the windows of ``base`` reach beyond those described; or why not."""
    widths: dict[str, tuple[int, int]] = dict.fromkeys(str(base.call.attrs.kernel_layout), (0, 0))
    spatial = [letter for letter in "DHW" if letter in widths]
    places = zip(spatial, kernel_sizes(base.call), window(base.call, "dilation"), strict=True)
    for i, (letter, size, step) in enumerate(places):
        before, between = divmod(window(base.call, "padding")[i] - padding[i], step)
        after = size - kernel[i] - before
        if between or min(before, after) < 0 or (kernel[i] > 1 and dilation[i] != step):
            inner, outer = shape_text(kernel), shape_text(kernel_sizes(base.call))
            return f"windows of {inner} do not lie on taps of the windows of {outer}"
        widths[letter] = (before, after)
    return list(widths.values())


def _diagonal(base: Linear, factor: np.ndarray) -> np.ndarray | str:
    """The weights, in windows of one element, that give ``factor`` times the input of ``base``; or why none do."""
    attrs, layout = base.call.attrs, str(base.call.attrs.kernel_layout)
    scale = per_channel(factor, base)
    if scale is None or not np.all(np.isfinite(scale)):
        return "the factor of the input is not one finite number for each channel"
    if attrs.data_layout != attrs.out_layout:
        return f"the convolution makes {attrs.out_layout} of {attrs.data_layout}"
    if any(step != 1 for step in window(base.call, "strides")):
        return f"the convolution has the strides {shape_text(window(base.call, 'strides'))}, not 1"
    inputs = base.weights.shape[layout.index("I")]
    if inputs * int(attrs.groups) != base.channels:
        return f"the convolution makes {base.channels} channels of {inputs * int(attrs.groups)}"
    table = np.zeros((base.channels, inputs), base.weights.dtype)
    channels = np.arange(base.channels)
    table[channels, channels % inputs] = scale
    table = table if layout.index("O") < layout.index("I") else table.T
    letters = iter(table.shape)
    return table.reshape([next(letters) if letter in "OI" else 1 for letter in layout])


def _bias(linear: Linear, *shifts: np.ndarray | None) -> Expr | str | None:
    """The constant that adds all ``shifts``, None if there are none, or why they are not one bias."""
    known = [per_channel(shift, linear) for shift in shifts if shift is not None]
    if any(shift is None for shift in known):
        return "a summand differs from pixel to pixel"
    if not known:
        return None
    total = np.sum([shift for shift in known if shift is not None], axis=0)
    return constant(total.reshape(linear.bias_shape()).astype(linear.weights.dtype))


ONE_CONVOLUTION = Rewrite("one_convolution", ("relax.add",), _merge)
