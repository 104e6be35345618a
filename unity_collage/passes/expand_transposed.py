"""ExpandTransposed: turn transposed convolutions into products or convolutions, and move their pixels into place.

Reads    the operators; run Prepare before, which puts factors into the weights and makes biases ``add``.
Writes   ``matmul`` or convolutions with channels last, a ``permute_dims`` that spreads their pixels over the image, a
         ``reshape``, and a ``strided_slice`` where something is cut off.
Keeps    every type, numbers up to the order of a sum, and every function that :func:`.channels_last.why_left_alone`
         names a reason for. An infinity or NaN may reach further where the window is not a multiple of the stride.

Decoders of images double the size of an image by windows of 2x2 or 4x4 with stride 2. TVM has a slow kernel for these,
in one layout only. Every backend has fast products and convolutions.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import ir, relax
from tvm.ir import IRModule

from ..graph.equal_constants import with_equal_shared
from ..rewrites.driver import rewrite_function
from ..rewrites.identity import DROP_IDENTITY_PERMUTE
from ..rewrites.placing import BEFORE_PLACING
from ..rewrites.transposed import EXPAND_TRANSPOSED
from ..rewrites.views import MERGE_PERMUTES
from .channels_last import why_left_alone

_RULES = (EXPAND_TRANSPOSED, BEFORE_PLACING, MERGE_PERMUTES, DROP_IDENTITY_PERMUTE)


@tvm.transform.module_pass(opt_level=0, name="collage.ExpandTransposed")
@dataclass(frozen=True)
class ExpandTransposed:
    """``conv2d_transpose(x, w)`` and its bias become a product or a convolution, and moves of its pixels.

    Where windows do not overlap it is ``add(matmul(x, w), bias)``, else ``add(conv2d(x, w), bias)`` for all pixels that
    are next to each other, or for a part of them. Convolutions with groups, dilation or unknown weights do not change.
    """

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        before = dict(mod.functions_items())
        functions = with_equal_shared({gvar: _rewritten(func, mod) for gvar, func in before.items()}, before)
        return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _rewritten(func: ir.BaseFunc, mod: IRModule) -> ir.BaseFunc:
    if not isinstance(func, relax.Function) or why_left_alone(func) is not None:
        return func
    return rewrite_function(func, _RULES, mod)
