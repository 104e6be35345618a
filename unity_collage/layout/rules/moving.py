"""Operators that only rename axes: they are absorbed by the layout instead of being computed.

Before: ``permute_dims(reshape(x[N, C, H, W], (N, C, H*W)), [0, 2, 1])``
After:  ``reshape(x_nhwc, (N, H*W, C))``
"""

from __future__ import annotations

from tvm import relax

from ...graph.shapes import tensor_type
from ...rewrites.why_not import WhyNot, shape_text
from ..axes import permuted, plain, through_reshape
from ..block import Block
from ..calls import axes_of
from ..values import Tensor, Value, dim_of


def reshape(block: Block, call: relax.Call) -> Value | WhyNot | None:
    """Any operator that gives the same elements in the same order another shape."""
    x, out = block.tensor(call.args[0]), tensor_type(block.var).shape
    if x is None or x.is_plain:
        return None
    if x.dims is None or not isinstance(out, relax.ShapeExpr):
        return WhyNot("the shape of a reshape or of its operand is not known")
    extents = list(out.values)
    found = through_reshape(x.native, x.dims, [dim_of(extent) for extent in extents])
    if found is None:
        shapes = f"{shape_text(x.extents)} to {shape_text(extents)}"
        return WhyNot(f"it is not known which axes a reshape from {shapes} joins or splits")
    before, after = found
    shape = [extents[axis] for axis in after]
    return block.adopt(block.reshape(block.form(x, before), shape, block.var.name), after)


def permute_dims(block: Block, call: relax.Call) -> Value | None:
    """A permutation of a value in another layout is that value in yet another layout.

    A permutation of a plain value stays as it is, and is recorded so that it can be undone.
    """
    x = block.tensor(call.args[0])
    if x is None:
        return None
    axes = axes_of(call.attrs.axes, x.rank) or list(reversed(range(x.rank)))
    forms = {permuted(layout, axes): expr for layout, expr in x.forms.items()}
    views = {permuted(layout, axes): expr for layout, expr in x.views.items()}
    if not x.is_plain:
        return Tensor(tensor_type(block.var), forms, views, block.var.name)
    value = block.result(relax.op.permute_dims(block.operand(call.args[0]), axes), plain(x.rank))
    value.views = views | forms
    return value


def shape_of(block: Block, call: relax.Call) -> Value | WhyNot | None:
    """The shape is known from the type, so no data in the original layout is needed."""
    x = block.tensor(call.args[0])
    if x is None or x.is_plain:
        return None
    if not isinstance(x.type.shape, relax.ShapeExpr):
        return WhyNot("the type of the operand of shape_of does not say its shape")
    expr = block.emit(relax.ShapeExpr(x.type.shape.values), block.var.name)
    return block.opaque(expr)


_RESHAPES = "reshape expand_dims squeeze flatten nn.batch_flatten"

RULES = dict.fromkeys(_RESHAPES.split(), reshape) | {"permute_dims": permute_dims, "shape_of": shape_of}
