"""Primitives of oneDNN 3.2 that turn NaN into a number, or infinity into NaN.

Their instructions return the second operand if one is NaN: the constant, or the maximum so far. Max pooling also
returns the lowest finite number for a window of -infinity. "Greater" is computed as "not less or equal", which is true
of NaN. TVM's kernels are right at the same speed, so these primitives are declined.

ReLU, clip and GELU are taken behind products and convolutions, where a separate kernel would cost up to 1.6 times as
much as the convolution: there a NaN becomes the lower bound, and the GELU of infinity is NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

from ..native.program import NativeStep, PostOp

_Args = ParamSpec("_Args")

_LOSING = {
    "eltwise": frozenset({"relu", "clip", "clip_v2", "exp"}),
    "binary": frozenset({"max", "min", "gt", "ge"}),
    "reduction": frozenset({"max", "min"}),
    "pooling": frozenset({"max"}),
    "softmax": frozenset({"accurate", "log"}),
}
"""Primitive -> algorithms."""

_OF_INFINITY = frozenset({"gelu_erf"})
"""Algorithms with the result NaN for infinity, which is infinite."""

_PRODUCTS = frozenset({"convolution", "deconvolution", "matmul"})
_BEHIND_PRODUCTS = frozenset({"relu", "clip", "clip_v2", "gelu_erf"})


def keeping_nan(lowering: Callable[_Args, NativeStep | str]) -> Callable[_Args, NativeStep | str]:
    """``lowering`` that declines steps which lose NaN."""

    def checked(*args: _Args.args, **named: _Args.kwargs) -> NativeStep | str:
        made = lowering(*args, **named)
        return made if isinstance(made, str) else why_nan_lost(made) or made

    return checked


def why_nan_lost(step: NativeStep) -> str | None:
    """Why a NaN in an operand of the step would not reach its result, or None."""
    for part in (*step.before, step):
        if reason := _why_lost(part):
            return reason
    return None


def _why_lost(step: NativeStep) -> str | None:
    attrs = dict(step.attrs)
    name = str(attrs.get("algorithm"))
    if name in _LOSING.get(step.primitive, ()) and not _leaks(name, attrs.get("alpha")):
        return f"oneDNN's {step.primitive} {name} turns NaN into a number"
    if name in _OF_INFINITY:
        return f"oneDNN's {step.primitive} {name} turns infinity into NaN"
    for post in step.post_ops:
        if step.primitive in _PRODUCTS and post.algorithm in _BEHIND_PRODUCTS:
            continue
        if _loses(post):
            return f"oneDNN's {post.algorithm} behind {step.primitive} turns NaN into a number"
        if post.algorithm in _OF_INFINITY:
            return f"oneDNN's {post.algorithm} behind {step.primitive} turns infinity into NaN"
    return None


def _loses(post: PostOp) -> bool:
    return post.algorithm in _LOSING.get(post.kind, ()) and not _leaks(post.algorithm, post.alpha)


def _leaks(algorithm: str, slope: object) -> bool:
    """Whether it is a ReLU with a slope for negative numbers, which keeps NaN."""
    return algorithm == "relu" and slope != 0.0
