"""Convolutions, pools and resizes: the operators that have a layout attribute.

Before: ``conv2d(x, w, data_layout="NCHW", kernel_layout="OIHW")``
After:  ``conv2d(x_nhwc, w_hwio, data_layout="NHWC", kernel_layout="HWIO")``

A transposed convolution is not among them: TVM has a kernel for it in NCHW only.
"""

from __future__ import annotations

from math import prod

from tvm import ir, relax, tirx

from ...graph.calls import op_name
from ...graph.shapes import ints, tensor_type
from ...rewrites.why_not import WhyNot, shape_text
from ..axes import channels_last, kernel_last, plain
from ..block import Block
from ..calls import changed
from ..values import Tensor, Value

_DATA = {"NCW": "NWC", "NCHW": "NHWC", "NCDHW": "NDHWC"}
_KERNEL = {"OIW": "WIO", "OIHW": "HWIO", "OIDHW": "DHWIO"}


def convolution(block: Block, call: relax.Call) -> Value | WhyNot | None:
    """A convolution, its weights permuted with it; a weight that is not a constant is permuted at run time."""
    x, w = (block.tensor(arg) for arg in call.args)
    attrs = call.attrs
    data, kernel = _DATA.get(attrs.data_layout), _KERNEL.get(attrs.kernel_layout)
    if x is None or w is None or attrs.data_layout in _DATA.values():
        return None
    if not data or not kernel or attrs.out_layout != attrs.data_layout:
        layouts = f"{attrs.data_layout}, {attrs.kernel_layout} and {attrs.out_layout}"
        return WhyNot(f"a convolution has the layouts {layouts}, not channels first")
    layout = channels_last(x.rank)
    args = block.form(x, layout), block.form(w, kernel_last(w.rank))
    return block.result(changed(call, args, data_layout=data, out_layout=data, kernel_layout=kernel), layout)


def pool(block: Block, call: relax.Call) -> Value | WhyNot | None:
    """A pool, adaptive ones too."""
    x = block.tensor(call.args[0])
    data = _DATA.get(call.attrs.layout)
    if x is None or call.attrs.layout in _DATA.values():
        return None
    if not data or call.attrs.out_layout != call.attrs.layout:
        return WhyNot(
            f"a pool has the layouts {call.attrs.layout} and {call.attrs.out_layout}, not channels first"
        )
    layout = channels_last(x.rank)
    call = changed(call, [block.form(x, layout)], layout=data, out_layout=data)
    return block.result(call, layout)


def pool3d(block: Block, call: relax.Call) -> Value | WhyNot | None:
    """A pool, or a window that slides along one axis of an image, as in local response normalisation."""
    x = block.tensor(call.args[0])
    if x is None or not x.is_unit(1):
        return pool(block, call)
    return _window(block, call, x)


def _window(block: Block, call: relax.Call, x: Tensor) -> Value | WhyNot | None:
    """Before: ``avg_pool3d(x[N, 1, C, H, W], [5, 1, 1])``, where x is held with C last.

    After: ``reshape -> avg_pool1d(x[N, H*W, C], [5]) -> reshape``.
    """
    attrs, last, extents = call.attrs, x.native[-1], x.extents
    if x.is_plain:
        return None
    known = None if extents is None else ints(extents[1:])
    if extents is None or known is None:
        return WhyNot("the shape of a pool of 3 spatial axes is not known")
    if x.native[0] != 0:
        return WhyNot("the images of a batch do not lie one after the other for a pool of 3 spatial axes")
    if attrs.layout != "NCDHW" or attrs.out_layout != "NCDHW":
        return WhyNot(
            f"a pool of 3 spatial axes has the layouts {attrs.layout} and {attrs.out_layout}, not NCDHW"
        )
    if not _slides_along(attrs, last - 2):
        return WhyNot(
            f"a pool with windows of {shape_text(attrs.pool_size)} slides along more than the channels"
        )
    rows = tirx.IntImm("int64", prod(known[axis - 1] for axis in x.native[1:-1]))
    flat = block.reshape(block.form(x, x.native), [extents[0], rows, extents[last]], f"{x.name}_rows")
    pool1d = relax.op.nn.avg_pool1d if op_name(call).endswith("avg_pool3d") else relax.op.nn.max_pool1d
    spatial = last - 2
    pooled = block.emit(
        pool1d(
            flat,
            pool_size=[attrs.pool_size[spatial]],
            strides=[attrs.strides[spatial]],
            padding=[attrs.padding[spatial], attrs.padding[spatial + 3]],
            dilation=[attrs.dilation[spatial]],
            ceil_mode=attrs.ceil_mode,
            count_include_pad=attrs.count_include_pad,
        ),
        f"{block.var.name}_rows",
    )
    out = tensor_type(block.var).shape
    assert isinstance(out, relax.ShapeExpr)
    return block.adopt(
        block.reshape(pooled, [out.values[axis] for axis in x.native], block.var.name), x.native
    )


def _slides_along(attrs: ir.Attrs, spatial: int) -> bool:
    """Whether a pool has no window, stride or padding but along one spatial axis."""
    others = [axis for axis in range(3) if axis != spatial]
    return spatial >= 0 and all(
        attrs.pool_size[axis] == attrs.strides[axis] == 1
        and attrs.padding[axis] == attrs.padding[axis + 3] == 0
        for axis in others
    )


def resize(block: Block, call: relax.Call) -> Value | WhyNot | None:
    """A resize follows its operand. A region of interest lists axes by layout, so with one it stays."""
    x = block.tensor(call.args[0])
    data = _DATA.get(call.attrs.layout)
    if x is None or not data or block.cheapest([x], x.rank) == plain(x.rank):
        return None
    if any(float(bound) for bound in call.attrs.roi):
        return WhyNot("a resize has a region of interest, which lists axes by the layout")
    layout = channels_last(x.rank)
    return block.result(changed(call, [block.form(x, layout), call.args[1]], layout=data), layout)


_CONVOLUTIONS = {f"nn.conv{n}d": convolution for n in (1, 2, 3)}
_POOLS = {f"nn.{kind}_pool{n}d": pool for kind in ("max", "avg", "adaptive_avg") for n in (1, 2, 3)}
_WINDOWS = {"nn.avg_pool3d": pool3d, "nn.max_pool3d": pool3d}

RULES = _CONVOLUTIONS | _POOLS | _WINDOWS | {"image.resize2d": resize, "image.resize3d": resize}
ANCHORS = (*_CONVOLUTIONS, *_POOLS)
