"""Operators between tuples and tensors: concat, stack and split along a mapped axis.

Before: ``concat((x, y), axis=1)``
After:  ``concat((x_nhwc, y_nhwc), axis=3)``
"""

from __future__ import annotations

from tvm import relax

from ..axes import plain, with_new_axis
from ..block import Block
from ..calls import axes_of, changed
from ..values import Value


def concat(block: Block, call: relax.Call) -> Value | None:
    """Every operand comes in one layout."""
    tensors = block.tensors(call.args[0])
    if not tensors or call.attrs.axis is None:
        return None
    rank = tensors[0].rank
    layout = block.cheapest(tensors, rank)
    if layout == plain(rank):
        return None
    (axis,) = axes_of(call.attrs.axis, rank) or []
    fields = relax.Tuple([block.form(tensor, layout) for tensor in tensors])
    return block.result(changed(call, [fields], axis=layout.index(axis)), layout)


def stack(block: Block, call: relax.Call) -> Value | None:
    """The new axis is held in front, so that stacking only concatenates whole tensors."""
    tensors = block.tensors(call.args[0])
    if not tensors or call.attrs.axis is None:
        return None
    rank = tensors[0].rank
    layout = block.cheapest(tensors, rank)
    if layout == plain(rank):
        return None
    (axis,) = axes_of(call.attrs.axis, rank + 1) or []
    fields = relax.Tuple([block.form(tensor, layout) for tensor in tensors])
    return block.result(changed(call, [fields], axis=0), with_new_axis(layout, axis))


def split(block: Block, call: relax.Call) -> Value | None:
    """All fields come in the layout of the operand."""
    x = block.tensor(call.args[0])
    if x is None or not isinstance(call.ty, relax.TupleType):
        return None
    layout = block.cheapest([x], x.rank)
    if layout == plain(x.rank):
        return None
    (axis,) = axes_of(call.attrs.axis, x.rank) or []
    new = changed(call, [block.form(x, layout)], axis=layout.index(axis))
    return block.results(new, [layout] * len(call.ty.fields))


RULES = {"concat": concat, "stack": stack, "split": split}
