"""Convolutions, poolings, normalisations, attention and resizes as calls of ATen, which has channels behind the batch.

Tensors of another layout are seen through a permutation of their axes, and so are results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from ...graph.shapes import dtype_of
from ...reference.convolution import sides
from ...reference.layout import spatial
from ...reference.values import axes_of, whole_numbers
from .asked import AskedCall, NotAten, Operand, ResultPlace, floats, number, rank_of, shape_with
from .elementwise import Handler


def _order(layout: str, wanted: str) -> tuple[Any, ...]:
    """The view of a tensor of ``layout`` with its axes as in ``wanted``; raises NotAten for blocked layouts."""
    if sorted(layout) != sorted(wanted):
        raise NotAten(f"its layout is {layout}")
    return ("permute", [layout.index(axis) for axis in wanted])


def _ordered(value: relax.Expr, layout: str, wanted: str) -> Operand:
    return Operand(value).seen(*_order(layout, wanted))


def _result(layout: str, wanted: str) -> tuple[ResultPlace, ...]:
    return (ResultPlace(written=(_order(layout, wanted),)),)


def _layout_of(call: relax.Call) -> str:
    """The layout of the images; raises NotAten where the result has another one, or another type."""
    layout = str(getattr(call.attrs, "data_layout", None) or call.attrs.layout)
    if str(call.attrs.out_layout or layout) != layout or dtype_of(call) != dtype_of(call.args[0]):
        raise NotAten("its result has another layout or element type than its operand")
    return layout


def _padding(call: relax.Call, rank: int) -> list[int]:
    """The padding of each axis; raises NotAten where its two sides differ."""
    pairs = sides(whole_numbers(call.attrs.padding), rank)
    if any(before != after for before, after in pairs):
        raise NotAten("it pads one side of an axis more than the other")
    return [before for before, _ in pairs]


def _convolution(is_transposed: bool) -> Handler:
    def handler(call: relax.Call) -> AskedCall:
        floats(call)
        attrs, layout = call.attrs, _layout_of(call)
        axes = spatial(layout)
        order, kernel = f"NC{axes}", f"{'IO' if is_transposed else 'OI'}{axes}"
        extra = whole_numbers(attrs.output_padding) if is_transposed else [0] * len(axes)
        more = {
            "bias": None,
            "stride": list(whole_numbers(attrs.strides)),
            "padding": _padding(call, len(axes)),
            "dilation": list(whole_numbers(attrs.dilation)),
            "transposed": is_transposed,
            "output_padding": list(extra),
            "groups": int(attrs.groups),
        }
        x = _ordered(call.args[0], layout, order)
        weights = _ordered(call.args[1], str(attrs.kernel_layout), kernel)
        return AskedCall("convolution", (x, weights), more, _result(layout, order))

    return handler


def _pooling(packet: str) -> Handler:
    is_mean = packet.startswith("avg")

    def handler(call: relax.Call) -> AskedCall:
        floats(call)
        attrs, layout = call.attrs, _layout_of(call)
        axes = spatial(layout)
        more: dict[str, Any] = {
            "kernel_size": list(whole_numbers(attrs.pool_size)),
            "stride": list(whole_numbers(attrs.strides)),
            "padding": _padding(call, len(axes)),
            "ceil_mode": bool(attrs.ceil_mode),
        }
        dilation = list(whole_numbers(attrs.dilation))
        if not is_mean:
            more["dilation"] = dilation
        elif dilation != [1] * len(axes):
            raise NotAten("ATen has no means over dilated windows")
        else:
            more["count_include_pad"] = bool(attrs.count_include_pad)
        order = f"NC{axes}"
        return AskedCall(packet, (_ordered(call.args[0], layout, order),), more, _result(layout, order))

    return handler


def _adaptive(packet: str) -> Handler:
    def handler(call: relax.Call) -> AskedCall:
        floats(call)
        layout = _layout_of(call)
        order = f"NC{spatial(layout)}"
        sizes = [shape_with(call)[layout.index(axis)] for axis in order[2:]]
        return AskedCall(packet, (_ordered(call.args[0], layout, order), sizes), {}, _result(layout, order))

    return handler


def _scales(call: relax.Call) -> list[Operand | None]:
    """The scale and the offset of a normalisation, where it has them."""
    has = (bool(call.attrs.scale), bool(call.attrs.center))
    return [Operand(arg) if used else None for arg, used in zip(call.args[1:3], has, strict=True)]


def _batch_norm(call: relax.Call) -> AskedCall:
    floats(call.args[0])
    if call.attrs.training:
        raise NotAten("it is in training")
    if axes_of(int(call.attrs.axis), rank_of(call.args[0])) != (1,):
        raise NotAten("its channels are not behind the batch")
    weight, bias = _scales(call)
    mean, variance = map(Operand, call.args[3:5])
    more = {"training": False, "momentum": 0.0, "eps": float(call.attrs.epsilon), "cudnn_enabled": False}
    given = (Operand(call.args[0]), weight, bias, mean, variance)
    return AskedCall(
        "batch_norm", given, more, (ResultPlace(0), ResultPlace(1), ResultPlace(2)), (mean, variance)
    )


def _last_sizes(call: relax.Call) -> list[int]:
    """The sizes of the normalised axes; raises NotAten unless these are the last ones."""
    shape = shape_with(call.args[0])
    axes = axes_of(call.attrs.axes, len(shape))
    if not axes or axes != tuple(range(len(shape) - len(axes), len(shape))):
        raise NotAten("it does not normalise the last axes")
    return [shape[axis] for axis in axes]


def _layer_norm(call: relax.Call) -> AskedCall:
    floats(call)
    weight, bias = _scales(call)
    more = {"weight": weight, "bias": bias, "eps": float(call.attrs.epsilon)}
    return AskedCall("layer_norm", (Operand(call.args[0]), _last_sizes(call)), more)


def _rms_norm(call: relax.Call) -> AskedCall:
    floats(call)
    more = {"weight": Operand(call.args[1]), "eps": float(call.attrs.epsilon)}
    return AskedCall("rms_norm", (Operand(call.args[0]), _last_sizes(call)), more)


def _check_channels(call: relax.Call) -> None:
    """Raises NotAten unless channels are behind the batch, and all axes behind them are normalised."""
    rank = rank_of(call.args[0])
    channel = axes_of(int(call.attrs.channel_axis), rank)
    if channel != (1,) or set(axes_of(call.attrs.axes, rank)) - {1} != set(range(2, rank)):
        raise NotAten("its channels are not behind the batch, or it does not normalise all axes behind them")


def _group_norm(call: relax.Call) -> AskedCall:
    floats(call)
    _check_channels(call)
    weight, bias = _scales(call)
    more = {"weight": weight, "bias": bias, "eps": float(call.attrs.epsilon)}
    return AskedCall("group_norm", (Operand(call.args[0]), int(call.attrs.num_groups)), more)


def _instance_norm(call: relax.Call) -> AskedCall:
    floats(call)
    _check_channels(call)
    if 1 in axes_of(call.attrs.axes, rank_of(call.args[0])):
        raise NotAten("it normalises over channels")
    more = {
        "use_input_stats": True,
        "momentum": 0.0,
        "eps": float(call.attrs.epsilon),
        "cudnn_enabled": False,
    }
    return AskedCall("instance_norm", (Operand(call.args[0]), *_scales(call), None, None), more)


_RESIZES = {
    ("nearest_neighbor", "asymmetric"): ("upsample_nearest", "upsample_nearest"),
    ("linear", "half_pixel"): ("upsample_bilinear", "upsample_trilinear"),
    ("linear", "align_corners"): ("upsample_bilinear", "upsample_trilinear"),
    ("cubic", "half_pixel"): ("upsample_bicubic", ""),
    ("cubic", "align_corners"): ("upsample_bicubic", ""),
}
"""ATen's operators for two and for three axes, by method and coordinates."""
_CUBIC = -0.75
"""The coefficient of ATen's cubic weights."""


def _resize(call: relax.Call) -> AskedCall:
    floats(call)
    attrs, layout = call.attrs, str(call.attrs.layout)
    axes = spatial(layout)
    method, mode = str(attrs.method), str(attrs.coordinate_transformation_mode)
    packet = _RESIZES.get((method, mode), ("", ""))[len(axes) - 2]
    rounds = method == "nearest_neighbor" and str(attrs.rounding_method) not in ("", "floor")
    weighs = method == "cubic" and (attrs.cubic_exclude or float(attrs.cubic_alpha) != _CUBIC)
    if not packet or rounds or weighs:
        raise NotAten(f"it resizes by {method} with coordinates {mode}, rounding or weights that ATen lacks")
    more = {} if method == "nearest_neighbor" else {"align_corners": mode == "align_corners"}
    order = f"NC{axes}"
    given = (_ordered(call.args[0], layout, order), [int(size) for size in number(call.args[1])])
    return AskedCall(f"{packet}{len(axes)}d", given, more, _result(layout, order))


def _pixel_shuffle(call: relax.Call) -> AskedCall:
    return AskedCall("pixel_shuffle", (Operand(call.args[0]), int(call.attrs.upscale_factor)))


def _attention(call: relax.Call) -> AskedCall:
    """(batch, sequence, heads, size) tensors, where ATen has the heads before the sequence."""
    floats(call)
    attrs = call.attrs
    mask = None if attrs.causal_mask is None else str(attrs.causal_mask)
    lengths = {shape_with(each)[1] for each in call.args[:2]}
    if getattr(attrs, "window_size", None) is not None or (mask == "BottomRight" and len(lengths) > 1):
        raise NotAten("it has a mask that ATen lacks")
    if mask is not None and len(call.args) > 3:
        raise NotAten("it has a mask of its own and a bias")
    if len({shape_with(each)[2] for each in call.args[:3]}) > 1:
        raise NotAten("several queries share a key")
    swapped = ("permute", [0, 2, 1, 3])
    given: Sequence[Operand] = [Operand(each).seen(*swapped) for each in call.args[:3]]
    more: dict[str, Any] = {
        "attn_mask": Operand(call.args[3]) if len(call.args) > 3 else None,
        "is_causal": mask is not None,
        "scale": None if attrs.scale is None else float(attrs.scale.value),
    }
    return AskedCall("scaled_dot_product_attention", tuple(given), more, (ResultPlace(written=(swapped,)),))


HANDLERS: dict[str, Handler] = {
    **{f"nn.conv{rank}d": _convolution(False) for rank in (1, 2, 3)},
    **{f"nn.conv{rank}d_transpose": _convolution(True) for rank in (1, 2, 3)},
    **{
        f"nn.{packet}": make(packet)
        for make, kind in ((_pooling, "max_pool"), (_pooling, "avg_pool"), (_adaptive, "adaptive_avg_pool"))
        for packet in (f"{kind}{rank}d" for rank in (1, 2, 3))
    },
    "image.resize2d": _resize,
    "image.resize3d": _resize,
    "nn.attention": _attention,
    "nn.attention_bias": _attention,
    "nn.batch_norm": _batch_norm,
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _instance_norm,
    "nn.layer_norm": _layer_norm,
    "nn.pixel_shuffle": _pixel_shuffle,
    "nn.rms_norm": _rms_norm,
}
"""How each operator is asked for."""
