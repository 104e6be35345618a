"""Normalizations and softmax as primitives of oneDNN."""

from __future__ import annotations

import math
from typing import Any

from tvm import relax

from ..native.program import NativeStep, PostOp, ScratchTensor
from ..native.values import attrs_of, dtype_of, ints, op_name, static_shape, view_of
from .limits import why_not_operand


def layer_norm(call: relax.Call) -> NativeStep | str:
    """layer_norm over the last axes -> layer_normalization of [rows, normalized]."""
    reason = _why_not(call, "layer_normalization")
    if reason is not None:
        return reason
    shape = static_shape(call.args[0])
    axes = sorted(axis % len(shape) for axis in ints(attrs_of(call).axes))
    if axes != list(range(len(shape) - len(axes), len(shape))):
        return "the normalized axes are not the last ones"
    size = math.prod(shape[axes[0] :])
    dims = (math.prod(shape) // size, size)
    source, result = view_of(call.args[0], dims), view_of(call, dims)
    args = (("src", source), *_affine(call, size), ("dst", result))
    return NativeStep("layer_normalization", args, (("epsilon", float(attrs_of(call).epsilon)),))


def batch_norm(call: relax.Call) -> NativeStep | str:
    """batch_norm with given statistics -> batch_normalization; the result is the first field of the tuple."""
    reason = _why_not(call, "batch_normalization")
    if reason is not None:
        return reason
    if attrs_of(call).training:
        return "the statistics are those of the batch"
    data, _, _, mean, variance = call.args
    shape = static_shape(data)
    axis = int(attrs_of(call).axis) % len(shape)
    channels, inner = shape[axis], math.prod(shape[axis + 1 :])
    outer = math.prod(shape[:axis])
    # With channels innermost, all pixels of the batch form one image in the library's channels-last layout.
    dims = (1, channels, outer) if inner == 1 else (outer, channels, inner)
    strides = (outer * channels, 1, channels) if inner == 1 else (channels * inner, inner, 1)
    args = (
        ("src", view_of(data, dims, strides)),
        ("mean", view_of(mean, (channels,))),
        ("variance", view_of(variance, (channels,))),
        *_affine(call, channels),
        ("dst", view_of(call, dims, strides)),
    )
    return NativeStep("batch_normalization", args, (("epsilon", float(attrs_of(call).epsilon)),))


def group_norm(call: relax.Call) -> NativeStep | str:
    """group_norm, instance_norm with channels first -> layer_normalization of groups, then scale and shift.

    oneDNN 3.2 has no group normalization, and its layer normalization scales along the normalized axis only.
    """
    reason = _why_not(call, "layer_normalization")
    if reason is not None:
        return reason
    shape, attrs = static_shape(call.args[0]), attrs_of(call)
    axes = sorted(axis % len(shape) for axis in ints(attrs.axes))
    spatial = list(range(2, len(shape)))
    if int(attrs.channel_axis) % len(shape) != 1 or axes not in (spatial, [1, *spatial]):
        return "channels are not the second axis, or not all axes behind them are normalized"
    channels, size = shape[1], math.prod(shape[2:])
    groups = int(attrs.num_groups) if op_name(call) == "relax.nn.group_norm" else channels
    rows, dims = (shape[0] * groups, channels // groups * size), (shape[0], channels, size)
    normalized = ScratchTensor(shape, dtype_of(call))
    normalize = NativeStep(
        "layer_normalization",
        (("src", view_of(call.args[0], rows)), ("dst", view_of(normalized, rows))),
        (("epsilon", float(attrs.epsilon)),),
    )
    scale, shift = (view_of(arg, (1, channels, 1)) for arg in call.args[1:3])
    args = (("src0", view_of(normalized, dims)), ("src1", scale), ("dst", view_of(call, dims)))
    added = PostOp("binary", "add", arg=shift)
    return NativeStep("binary", args, (("algorithm", "mul"),), (added,), (normalize,))


def softmax(call: relax.Call) -> NativeStep | str:
    """softmax, log_softmax -> softmax of [outer, axis, inner]; only the last axis is fast."""
    if reason := why_not_operand("softmax", "operand", call.args[0]):
        return reason
    shape = static_shape(call.args[0])
    axis = int(attrs_of(call).axis) % len(shape)
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    dims = (outer, shape[axis]) if inner == 1 else (outer, shape[axis], inner)
    algorithm = "log" if "log" in op_name(call) else "accurate"
    args = (("src", view_of(call.args[0], dims)), ("dst", view_of(call, dims)))
    return NativeStep("softmax", args, (("axis", 1), ("algorithm", algorithm)))


def _why_not(call: relax.Call, primitive: str) -> str | None:
    attrs = attrs_of(call)
    if primitive == "layer_normalization" and not (attrs.center and attrs.scale):
        # TVM's kernels ignore these attributes: they always scale and shift.
        return "a normalization without scale or shift"
    names = ("data", "gamma", "beta", "mean", "variance")
    reasons = (why_not_operand(primitive, name, arg) for name, arg in zip(names, call.args, strict=False))
    return next((reason for reason in reasons if reason is not None), None)


def _affine(call: relax.Call, size: int) -> list[tuple[str, Any]]:
    """The scale and shift that the attributes enable, as vectors."""
    used = (("scale", attrs_of(call).scale, 1), ("shift", attrs_of(call).center, 2))
    return [(name, view_of(call.args[at], (size,))) for name, wanted, at in used if wanted]


ENTRIES = {
    "relax.nn.layer_norm": layer_norm,
    "relax.nn.batch_norm": batch_norm,
    "relax.nn.group_norm": group_norm,
    "relax.nn.instance_norm": group_norm,
    "relax.nn.softmax": softmax,
    "relax.nn.log_softmax": softmax,
}
