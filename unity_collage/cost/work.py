"""Work: the arithmetic that every kernel of a function must do, and the bytes that it must move.

A kernel may leave out what its results do not depend on: a slice needs only a part of its operand. So we go backwards
from the results. A value is *whole* if it is a result, or if an operator needs every element of it for a whole value.
Only contractions with whole results count, and only parameters that are whole. An operator that is not known to need
all of an operand counts as needing nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from tvm import ir, relax

from ..annotations import LIFTED
from ..graph.calls import op_name
from ..graph.shapes import nbytes_of
from .arithmetic import CONVOLUTIONS, flops
from .windows import convolution_axes, pooling_axes

_POINTWISE = """
    abs acos acosh add asin asinh astype atan atan2 atanh ceil clip cos cosh dequantize divide equal erf exp floor
    floor_divide floor_mod greater greater_equal isfinite isinf isnan less less_equal log maximum minimum mod multiply
    negative nn.gelu nn.gelu_tanh nn.leakyrelu nn.prelu nn.relu nn.selu nn.silu nn.softplus not_equal power quantize
    round rsqrt sigmoid sign sin sinh sqrt square subtract tan tanh trunc
"""
_MOVING = """
    broadcast_to concat expand_dims flatten flip nn.batch_flatten nn.pad permute_dims repeat reshape squeeze stack tile
"""
_REDUCING = """
    argmax argmin cumprod cumsum max mean min prod std sum variance nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d
    nn.adaptive_avg_pool3d nn.group_norm nn.instance_norm nn.layer_norm nn.log_softmax nn.rms_norm nn.softmax
    matmul nn.attention collage.lstm collage.gru collage.rnn
"""
_ALL_OPERANDS = frozenset((_POINTWISE + _MOVING + _REDUCING).split())
"""Operators with a result that depends on every element of every tensor operand."""

_POOLINGS = frozenset(f"nn.{kind}_pool{rank}d" for kind in ("avg", "max") for rank in (1, 2, 3))

_FILLING = frozenset({"nn.pad", "broadcast_to", "repeat", "tile", "zeros", "full", "ones"})
"""Operators that make known or equal values: a contraction of those may need less arithmetic."""


@dataclass(frozen=True, slots=True)
class Work:
    """The least work of one run."""

    flops: float
    """float32 operations, two for a multiply-add."""
    weight_bytes: int
    """Bytes of lifted constants."""
    read_bytes: int
    """Bytes of the other parameters."""
    written_bytes: int


@lru_cache(maxsize=4096)  # each search asks again, for the functions of :mod:`.asking`, which are cached too
def work_of(func: relax.Function, widens_bytes: bool = False) -> Work:
    """The least work of a function as :func:`unity_collage.graph.extract` makes it with lifted constants.

    ``widens_bytes`` as in :func:`.arithmetic.flops`.
    """
    bindings = [binding for block in func.body.blocks for binding in block.bindings]
    results = list(dict.fromkeys(_leaves(func.body.body)))
    whole = set(results)
    operations, fills = 0.0, False
    for binding in reversed(bindings):
        if binding.var not in whole:
            continue
        whole.update(_whole_operands(binding.value))
        if isinstance(binding.value, relax.Call) and isinstance(binding.value.op, ir.Op):
            operations += flops(binding.value, widens_bytes)
            fills |= binding.value.op.name.removeprefix("relax.") in _FILLING
    lifted = int(func.attrs[LIFTED]) if func.attrs and LIFTED in func.attrs else 0
    split = len(func.params) - lifted
    return Work(
        0.0 if fills else operations,
        sum(nbytes_of(param) for param in func.params[split:] if param in whole),
        sum(nbytes_of(param) for param in func.params[:split] if param in whole),
        sum(nbytes_of(var) for var in results),
    )


def _leaves(expr: relax.Expr) -> Iterator[relax.Var]:
    """The variables in an operand; of a tuple, those in each field."""
    if isinstance(expr, relax.Var):
        yield expr
    elif isinstance(expr, relax.Tuple):
        for field in expr.fields:
            yield from _leaves(field)


def _whole_operands(value: relax.Expr) -> Iterator[relax.Var]:
    """The variables of which a whole ``value`` needs every element."""
    if isinstance(value, (relax.Var, relax.Tuple)):
        yield from _leaves(value)
    elif isinstance(value, relax.Call) and isinstance(value.op, ir.Op):
        for number in _wholly_read(value):
            yield from _leaves(value.args[number])


def _wholly_read(call: relax.Call) -> Iterator[int]:
    """The positions of the operands of which every element is needed."""
    name = op_name(call).removeprefix("relax.")
    if name in _ALL_OPERANDS:
        yield from range(len(call.args))
    elif name in CONVOLUTIONS:
        axes, transposed = convolution_axes(call), name.endswith("_transpose")
        if axes and all(axis.uses_every_window if transposed else axis.uses_every_position for axis in axes):
            yield 0
        if axes and all(axis.uses_every_tap for axis in axes):
            yield 1
    elif name in _POOLINGS:
        axes = pooling_axes(call)
        if axes and all(axis.uses_every_position for axis in axes):
            yield 0
