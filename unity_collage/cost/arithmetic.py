"""The least number of multiplications and additions of a contraction, whatever kernel computes it."""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import relax

from ..graph.calls import op_name
from ..graph.shapes import dtype_of, extents_of, shape_of
from ..graph.work import attention_flops, matmul_flops, recurrent_flops
from .windows import convolution_axes

CONVOLUTIONS = frozenset(f"nn.conv{rank}d{kind}" for rank in (1, 2, 3) for kind in ("", "_transpose"))

_NARROW = {"float16": 16.0, "bfloat16": 16.0, "int8": 32.0, "uint8": 32.0}
"""How many times as many operations as in float32 a processor may do at best, with matrix units."""


_WIDENED = {"int8": 2.0, "uint8": 2.0}
"""The same for kernels that widen bytes to 16 bits."""


def flops(call: relax.Call, widens_bytes: bool = False) -> float:
    """The least number of float32 operations of ``call``, two for a multiply-add; 0 if it is not a contraction.

    Convolutions count as Winograd's with the largest tiles. Strassen's products are not considered: no kernel uses
    them. ``widens_bytes``: no instruction multiplies bytes (:attr:`unity_collage.backends.base.Backend.widens_bytes`).
    """
    name = op_name(call).removeprefix("relax.")
    count = _convolution if name in CONVOLUTIONS else _COUNTS.get(name)
    if count is None or any(shape_of(operand) is None for operand in (*call.args[:2], call)):
        return 0.0
    factors = _NARROW | _WIDENED if widens_bytes else _NARROW
    return count(call) / factors.get(dtype_of(call.args[0]), 1.0)


def _convolution(call: relax.Call) -> float:
    axes = convolution_axes(call)
    if not axes:
        return 0.0
    batch = extents_of(call)[str(call.attrs.out_layout or call.attrs.data_layout).index("N")]
    kernel, layout = extents_of(call.args[1]), str(call.attrs.kernel_layout)
    channels = kernel[layout.index("O")] * kernel[layout.index("I")]
    return 2.0 * batch * channels * math.prod(axis.products / axis.saving for axis in axes)


def _attention(call: relax.Call) -> float:
    """Both products; 0 where a mask leaves out some of the scores."""
    if call.attrs.causal_mask is not None or call.attrs.window_size is not None:
        return 0.0
    return attention_flops(call)


_COUNTS: dict[str, Callable[[relax.Call], float]] = {
    "matmul": matmul_flops,
    "nn.attention": _attention,
    "collage.lstm": recurrent_flops,
    "collage.gru": recurrent_flops,
    "collage.rnn": recurrent_flops,
}
