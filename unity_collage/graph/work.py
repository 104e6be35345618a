"""The work of a sub-graph as it is written: its multiplications and additions, and the bytes of its border.

:mod:`unity_collage.cost.work` has the least work that any kernel must do, for lower bounds. Rates such as GFLOP/s are
computed from this work.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import ir, relax

from ..index_set import members
from .calls import op_name
from .extract import large_constants, outside_vars
from .shapes import dtype_of, extents_of, nbytes_of, shape_of
from .sub_graph import SubGraph


def border_bytes(sub: SubGraph) -> int | None:
    """The bytes of all that ``sub`` reads from outside, of its weights, and of its results; None if one is unknown."""
    nodes = sub.graph.nodes
    tensors: list[relax.Expr] = [*outside_vars(sub), *large_constants(sub)]
    tensors += [nodes[index].var for index in members(sub.exit)]
    sizes = [_nbytes(tensor.ty) for tensor in tensors]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def direct_flops(sub: SubGraph) -> tuple[float | None, str]:
    """The operations of the contractions in ``sub``, two for a multiply-add, and the type of their operands.

    Convolutions count as in the direct algorithm, with the taps on padding. No other operator counts. None if the
    shape of a contraction is unknown; the type is empty if there is no contraction.
    """
    total, dtype = 0.0, ""
    for index in members(sub.inside):
        value = sub.graph.nodes[index].value
        count = _COUNTS.get(op_name(value).removeprefix("relax."))
        if count is None or not isinstance(value, relax.Call):
            continue
        if any(shape_of(tensor) is None for tensor in (*value.args[:2], value)):
            return None, dtype_of(value.args[0])
        total, dtype = total + count(value), dtype_of(value.args[0])
    return total, dtype


def _nbytes(ty: ir.Type) -> int | None:
    """The size of a tensor, or of all tensors in a tuple."""
    if isinstance(ty, relax.TupleType):
        sizes = [_nbytes(field) for field in ty.fields]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None
    if isinstance(ty, relax.TensorType):
        return None if shape_of(ty) is None else nbytes_of(relax.Var("sized", ty))
    return 0


def _convolution(call: relax.Call) -> float:
    kernel, layout = extents_of(call.args[1]), str(call.attrs.kernel_layout)
    per_result = math.prod(kernel) / kernel[layout.index("O")]
    return 2.0 * math.prod(extents_of(call)) * per_result


def _transposed(call: relax.Call) -> float:
    kernel, layout = extents_of(call.args[1]), str(call.attrs.kernel_layout)
    return 2.0 * math.prod(extents_of(call.args[0])) * math.prod(kernel) / kernel[layout.index("I")]


def matmul_flops(call: relax.Call) -> float:
    """The operations of a matrix product, or of a batch of them."""
    return 2.0 * math.prod(extents_of(call)) * extents_of(call.args[0])[-1]


def attention_flops(call: relax.Call) -> float:
    """The operations of both products of attention, without regard to a mask."""
    (batch, queries, heads, size), keys = extents_of(call.args[0]), extents_of(call.args[1])[1]
    return 2.0 * batch * heads * queries * keys * (size + extents_of(call)[-1])


def recurrent_flops(call: relax.Call) -> float:
    """The operations of the products of the state in all steps of a recurrent layer."""
    steps, batch, _ = extents_of(call.args[0])
    return 2.0 * steps * batch * math.prod(extents_of(call.args[1]))


_RANKS = (1, 2, 3)
_COUNTS: dict[str, Callable[[relax.Call], float]] = {
    **{f"nn.conv{rank}d": _convolution for rank in _RANKS},
    **{f"nn.conv{rank}d_transpose": _transposed for rank in _RANKS},
    "matmul": matmul_flops,
    "nn.attention": attention_flops,
    "collage.lstm": recurrent_flops,
    "collage.gru": recurrent_flops,
    "collage.rnn": recurrent_flops,
}
