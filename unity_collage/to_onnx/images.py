"""Convolutions, poolings, normalisations and resizes: ONNX has them with channels behind the batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from ..graph.shapes import dtype_of
from ..reference.convolution import sides
from ..reference.layout import spatial
from ..reference.values import axes_of, whole_numbers
from .elementwise import Handler
from .writer import NotExported, Writer, floats, number, rank_of, static_shape


def _in_order(writer: Writer, value: str, layout: str, order: str) -> str:
    """``value`` of ``layout`` with its axes in ``order``."""
    if sorted(layout) != sorted(order):
        raise NotExported(f"its layout is {layout}")
    return writer.transposed(value, [layout.index(axis) for axis in order])


def _window(attrs: Any, rank: int) -> dict[str, list[int]]:
    pairs = sides(whole_numbers(attrs.padding), rank)
    return {
        "strides": list(whole_numbers(attrs.strides)),
        "dilations": list(whole_numbers(attrs.dilation)),
        "pads": [before for before, _ in pairs] + [after for _, after in pairs],
    }


def _checked_out(call: relax.Call) -> None:
    """Raises NotExported where the result has another layout or element type than the operand."""
    attrs = call.attrs
    layout = getattr(attrs, "data_layout", None) or attrs.layout
    if str(attrs.out_layout or layout) != str(layout) or dtype_of(call) != dtype_of(call.args[0]):
        raise NotExported("its result has another layout or element type than its operand")


def _convolution(op: str, kernel_order: str) -> Handler:
    def handler(writer: Writer, call: relax.Call) -> str:
        floats(call)
        _checked_out(call)
        attrs = call.attrs
        layout = str(attrs.data_layout)
        axes = spatial(layout)
        x = _in_order(writer, writer.operand(call.args[0]), layout, f"NC{axes}")
        order = f"{kernel_order}{axes}"
        weight = _in_order(writer, writer.operand(call.args[1]), str(attrs.kernel_layout), order)
        more: dict[str, Any] = _window(attrs, len(axes))
        if op == "ConvTranspose":
            more["output_padding"] = list(whole_numbers(attrs.output_padding))
        result = writer.node(op, x, weight, group=int(attrs.groups), **more)
        return _in_order(writer, result, f"NC{axes}", layout)

    return handler


def _pooling(op: str) -> Handler:
    def handler(writer: Writer, call: relax.Call) -> str:
        floats(call)
        _checked_out(call)
        attrs = call.attrs
        layout, axes = str(attrs.layout), spatial(str(attrs.layout))
        x = _in_order(writer, writer.operand(call.args[0]), layout, f"NC{axes}")
        more: dict[str, Any] = _window(attrs, len(axes))
        more["kernel_shape"] = sizes = list(whole_numbers(attrs.pool_size))
        if any(pad >= size for pad, size in zip(more["pads"], sizes * 2, strict=True)):
            raise NotExported("a window lies in the padding alone")
        more["ceil_mode"] = int(bool(attrs.ceil_mode))
        if op == "AveragePool":
            if more["ceil_mode"] or any(dilation != 1 for dilation in more.pop("dilations")):
                raise NotExported("a mean over windows that are dilated or cut off")
            more["count_include_pad"] = int(bool(attrs.count_include_pad))
        return _in_order(writer, writer.node(op, x, **more), f"NC{axes}", layout)

    return handler


def _adaptive_average(writer: Writer, call: relax.Call) -> str:
    layout, axes = str(call.attrs.layout), spatial(str(call.attrs.layout))
    at = [layout.index(axis) for axis in axes]
    if any(static_shape(call)[axis] != 1 for axis in at):
        raise NotExported("an adaptive mean has more than one result a channel")
    return writer.node("ReduceMean", writer.operand(call.args[0]), writer.numbers(at), keepdims=1)


def _along(writer: Writer, value: str, axes: Sequence[int], expr: relax.Expr) -> str:
    """A parameter with the sizes of ``axes``, reshaped so that it broadcasts to a tensor like ``expr``."""
    shape = static_shape(expr)
    return writer.reshaped(value, [size if axis in axes else 1 for axis, size in enumerate(shape)])


def _batch_norm(writer: Writer, call: relax.Call) -> list[str]:
    x, gamma, beta, mean, variance = writer.operands(call)
    dtype, attrs = floats(call.args[0]), call.attrs
    if attrs.training:
        raise NotExported("it is in training")
    axis = axes_of(int(attrs.axis), rank_of(call.args[0]))
    if axis != (1,):
        raise NotExported("its channels are not behind the batch")
    size = static_shape(call.args[3])
    if not attrs.scale:
        gamma = writer.constant(np.ones(size, dtype))
    if not attrs.center:
        beta = writer.constant(np.zeros(size, dtype))
    result = writer.node("BatchNormalization", x, gamma, beta, mean, variance, epsilon=float(attrs.epsilon))
    return [result, mean, variance]


def _normalised(writer: Writer, x: str, axes: Sequence[int], epsilon: float, dtype: str) -> str:
    over = writer.numbers(axes)
    centred = writer.node("Sub", x, writer.node("ReduceMean", x, over, keepdims=1))
    spread = writer.node("ReduceMean", writer.node("Mul", centred, centred), over, keepdims=1)
    spread = writer.node("Sqrt", writer.node("Add", spread, writer.scalar(epsilon, dtype)))
    return writer.node("Div", centred, spread)


def _scaled(writer: Writer, call: relax.Call, value: str, axes: Sequence[int]) -> str:
    """``value`` with the scale and the offset of the call, which have the sizes of ``axes``."""
    x = call.args[0]
    if call.attrs.scale:
        value = writer.node("Mul", value, _along(writer, writer.operand(call.args[1]), axes, x))
    if call.attrs.center:
        value = writer.node("Add", value, _along(writer, writer.operand(call.args[2]), axes, x))
    return value


def _layer_norm(writer: Writer, call: relax.Call) -> str:
    dtype, rank = floats(call.args[0]), rank_of(call.args[0])
    axes, attrs = axes_of(call.attrs.axes, rank), call.attrs
    x = writer.operand(call.args[0])
    if axes == tuple(range(rank - len(axes), rank)) and attrs.scale and attrs.center:
        return writer.node(
            "LayerNormalization", *writer.operands(call), axis=axes[0], epsilon=float(attrs.epsilon)
        )
    return _scaled(writer, call, _normalised(writer, x, axes, float(attrs.epsilon), dtype), axes)


def _instance_norm(writer: Writer, call: relax.Call) -> str:
    dtype, rank = floats(call.args[0]), rank_of(call.args[0])
    axes = axes_of(call.attrs.axes, rank)
    value = _normalised(writer, writer.operand(call.args[0]), axes, float(call.attrs.epsilon), dtype)
    return _scaled(writer, call, value, axes_of(int(call.attrs.channel_axis), rank))


def _group_norm(writer: Writer, call: relax.Call) -> str:
    dtype, shape = floats(call.args[0]), static_shape(call.args[0])
    (channel,) = axes_of(int(call.attrs.channel_axis), len(shape))
    groups = int(call.attrs.num_groups)
    grouped = (*shape[:channel], groups, shape[channel] // groups, *shape[channel + 1 :])
    moved = [axis + (axis > channel) for axis in axes_of(call.attrs.axes, len(shape))]
    x = writer.reshaped(writer.operand(call.args[0]), grouped)
    over = sorted({*moved, channel + 1})
    value = writer.reshaped(_normalised(writer, x, over, float(call.attrs.epsilon), dtype), shape)
    return _scaled(writer, call, value, (channel,))


def _rms_norm(writer: Writer, call: relax.Call) -> str:
    dtype, rank = floats(call.args[0]), rank_of(call.args[0])
    axes = axes_of(call.attrs.axes, rank)
    x = writer.operand(call.args[0])
    size = writer.node("ReduceMean", writer.node("Mul", x, x), writer.numbers(axes), keepdims=1)
    size = writer.node("Sqrt", writer.node("Add", size, writer.scalar(float(call.attrs.epsilon), dtype)))
    weight = _along(writer, writer.operand(call.args[1]), axes, call.args[0])
    return writer.node("Mul", writer.node("Div", x, size), weight)


_METHODS = {"nearest_neighbor": "nearest", "linear": "linear", "cubic": "cubic"}
_COORDINATES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
_ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def _resize(writer: Writer, call: relax.Call) -> str:
    attrs = call.attrs
    layout, axes = str(attrs.layout), spatial(str(attrs.layout))
    method, mode = _METHODS.get(str(attrs.method)), str(attrs.coordinate_transformation_mode)
    rounding = str(attrs.rounding_method)
    if method is None or mode not in _COORDINATES or (method == "nearest" and rounding not in _ROUNDINGS):
        raise NotExported(f"it resizes by {attrs.method} with coordinates {mode} and rounding {rounding}")
    x = _in_order(writer, writer.operand(call.args[0]), layout, f"NC{axes}")
    batch, channels = (static_shape(call.args[0])[layout.index(axis)] for axis in "NC")
    sizes = writer.numbers([batch, channels, *number(call.args[1])])
    more: dict[str, Any] = {"mode": method, "coordinate_transformation_mode": mode}
    if method == "nearest":
        more["nearest_mode"] = rounding
    if method == "cubic":
        more["cubic_coeff_a"] = float(attrs.cubic_alpha)
        more["exclude_outside"] = int(bool(attrs.cubic_exclude))
    return _in_order(writer, writer.node("Resize", x, "", "", sizes, **more), f"NC{axes}", layout)


def _pixel_shuffle(writer: Writer, call: relax.Call) -> str:
    if rank_of(call.args[0]) != 4:
        raise NotExported("it shuffles pixels of a tensor whose rank is not 4")
    factor = int(call.attrs.upscale_factor)
    return writer.node("DepthToSpace", writer.operand(call.args[0]), blocksize=factor, mode="CRD")


def _matmul(writer: Writer, call: relax.Call) -> str:
    floats(call)
    if dtype_of(call) != dtype_of(call.args[0]):
        raise NotExported("its result has another element type than its operands")
    return writer.node("MatMul", *writer.operands(call))


def _attention(writer: Writer, call: relax.Call) -> str:
    """Products of (batch, heads, length, size) tensors around a softmax."""
    dtype, attrs = floats(call), call.attrs
    if attrs.causal_mask is not None or getattr(attrs, "window_size", None) is not None:
        raise NotExported("an attention has a mask of its own")
    query, key, value = (writer.transposed(writer.operand(arg), (0, 2, 1, 3)) for arg in call.args[:3])
    scale = 1 / math.sqrt(static_shape(call.args[0])[-1]) if attrs.scale is None else attrs.scale.value
    scores = writer.node("MatMul", query, writer.transposed(key, (0, 1, 3, 2)))
    scores = writer.node("Mul", scores, writer.scalar(scale, dtype))
    if len(call.args) > 3:
        scores = writer.node("Add", scores, writer.operand(call.args[3]))
    result = writer.node("MatMul", writer.node("Softmax", scores, axis=-1), value)
    return writer.transposed(result, (0, 2, 1, 3))


HANDLERS: dict[str, Handler] = {
    **{f"nn.conv{rank}d": _convolution("Conv", "OI") for rank in (1, 2, 3)},
    **{f"nn.conv{rank}d_transpose": _convolution("ConvTranspose", "IO") for rank in (1, 2, 3)},
    **{f"nn.max_pool{rank}d": _pooling("MaxPool") for rank in (1, 2, 3)},
    **{f"nn.avg_pool{rank}d": _pooling("AveragePool") for rank in (1, 2, 3)},
    **{f"nn.adaptive_avg_pool{rank}d": _adaptive_average for rank in (1, 2, 3)},
    "nn.batch_norm": _batch_norm,
    "nn.layer_norm": _layer_norm,
    "nn.instance_norm": _instance_norm,
    "nn.group_norm": _group_norm,
    "nn.rms_norm": _rms_norm,
    "nn.pixel_shuffle": _pixel_shuffle,
    "image.resize2d": _resize,
    "image.resize3d": _resize,
    "matmul": _matmul,
    "nn.attention": _attention,
    "nn.attention_bias": _attention,
}
