"""Operators that name axes: the axes are mapped to where the layout holds them.

Before: ``softmax(x, axis=1)``, ``mean(x, axis=[2, 3])``
After:  ``softmax(x_nhwc, axis=3)``, ``mean(x_nhwc, axis=[1, 2])``
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax, tirx

from ...graph.calls import op_name
from ...graph.shapes import ints, tensor_type
from ...rewrites.why_not import WhyNot
from ..axes import Layout, plain, without
from ..block import Block
from ..calls import axes_of, changed
from ..values import Tensor, Value


def _followed(block: Block, call: relax.Call) -> tuple[Tensor, Layout] | None:
    """The data operand and the layout to compute in, or None when that is the plain one."""
    x = block.tensor(call.args[0])
    if x is None:
        return None
    layout = block.cheapest([x], x.rank)
    return None if layout == plain(x.rank) else (x, layout)


def keeping(*names: str) -> Callable[[Block, relax.Call], Value | WhyNot | None]:
    """The rule of operators that keep the shape and name their axes in the attributes ``names``.

    Further operands (scales, shifts, slopes) are vectors along the one axis or single numbers, and further results too.
    """

    def rule(block: Block, call: relax.Call) -> Value | WhyNot | None:
        found = _followed(block, call)
        if found is None:
            return None
        x, layout = found
        attrs = {name: _mapped(call, name, layout) for name in names}
        if None in attrs.values():
            return WhyNot(f"{op_name(call)} does not name its axes")
        if len(call.args) > 1 and not all(_is_vector(block, arg) for arg in call.args[1:]):
            return WhyNot(f"the second operand of {op_name(call)} is not a vector along one axis")
        args = [block.form(x, layout), *(block.operand(arg) for arg in call.args[1:])]
        new = changed(call, args, **attrs)
        if isinstance(call.ty, relax.TupleType):
            return block.results(new, [layout, *(plain(tensor_type(ty).ndim) for ty in call.ty.fields[1:])])
        return block.result(new, layout)

    return rule


def _mapped(call: relax.Call, name: str, layout: Layout) -> int | list[int] | None:
    """The attribute with its axes at their positions in ``layout``, an int when it was one."""
    value = getattr(call.attrs, name)
    axes = axes_of(value, len(layout))
    if axes is None:
        return None
    positions = sorted(layout.index(axis) for axis in axes)
    return positions[0] if isinstance(value, int) else positions


def _is_vector(block: Block, arg: relax.Expr) -> bool:
    operand = block.tensor(arg)
    return operand is not None and operand.rank <= 1


def reduction(block: Block, call: relax.Call) -> Value | WhyNot | None:
    """A reduction; without ``keepdims`` the axes that are left keep their order in the layout."""
    found = _followed(block, call)
    if found is None:
        return None
    x, layout = found
    axes = axes_of(call.attrs.axis, x.rank)
    if axes is None and op_name(call) in ("relax.argmax", "relax.argmin"):
        return WhyNot(f"{op_name(call)} over all axes counts in the order of the original layout")
    mapped = {} if axes is None else {"axis": _mapped(call, "axis", layout)}
    new = changed(call, [block.form(x, layout)], **mapped)
    gone = range(x.rank) if axes is None else axes
    return block.result(new, layout if call.attrs.keepdims else without(layout, gone))


def strided_slice(block: Block, call: relax.Call) -> Value | WhyNot | None:
    """A slice: its axes are an operand."""
    found = _followed(block, call)
    named = call.args[1]
    axes = ints(named.fields) if isinstance(named, relax.Tuple) else None
    if found is None:
        return None
    if axes is None:
        return WhyNot("the axes of strided_slice are not numbers that are written in the program")
    x, layout = found
    positions = relax.Tuple([tirx.IntImm("int64", layout.index(axis % x.rank)) for axis in axes])
    return block.result(changed(call, [block.form(x, layout), positions, *call.args[2:]]), layout)


def pad(block: Block, call: relax.Call) -> Value | None:
    """A pad: its widths are a pair for each axis."""
    found = _followed(block, call)
    if found is None:
        return None
    x, layout = found
    width = list(call.attrs.pad_width)
    mapped = [amount for axis in layout for amount in width[2 * axis : 2 * axis + 2]]
    args = [block.form(x, layout), *call.args[1:]]
    return block.result(changed(call, args, pad_width=mapped), layout)


_REDUCTIONS = "argmax argmin max mean min prod std sum variance"

RULES = dict.fromkeys(_REDUCTIONS.split(), reduction) | {
    "nn.softmax": keeping("axis"),
    "nn.log_softmax": keeping("axis"),
    "nn.prelu": keeping("axis"),
    "nn.batch_norm": keeping("axis"),
    "nn.layer_norm": keeping("axes"),
    "nn.rms_norm": keeping("axes"),
    "nn.group_norm": keeping("channel_axis", "axes"),
    "nn.instance_norm": keeping("channel_axis", "axes"),
    "quantize": keeping("axis"),
    "dequantize": keeping("axis"),
    "cumsum": keeping("axis"),
    "cumprod": keeping("axis"),
    "flip": keeping("axis"),
    "strided_slice": strided_slice,
    "nn.pad": pad,
}
