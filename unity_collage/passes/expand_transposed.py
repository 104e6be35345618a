"""ExpandTransposed: transposed convolutions become products or convolutions, whose pixels are then put in place.

Reads    the operators; best in the normal form of Prepare, where factors are in the weights and biases are ``add``.
Writes   ``matmul`` or convolutions of channels last, a ``permute_dims`` that spreads their pixels over the image, a
         ``reshape``, and a ``strided_slice`` where something is cut off.
Keeps    every type, numbers up to the order of a sum, and every function that :func:`.channels_last.why_left_alone`
         names a reason for.

Decoders of images double their size by windows of 2x2 or 4x4 at steps of 2. TVM has a kernel for them in one layout
only, and a slow one; products and convolutions are what every backend is good at.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import ir, relax
from tvm.ir import IRModule

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
    """``conv2d_transpose(x, w)`` and its bias, put in place behind ``add(matmul(x, w), bias)`` where windows do not
    overlap, else behind ``add(conv2d(x, w), bias)`` of all the pixels that lie beside each other, or of a part of them.

    Groups, dilation, and weights that are not known leave it as it is.
    """

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        functions = {gvar: _rewritten(func) for gvar, func in mod.functions_items()}
        return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _rewritten(func: ir.BaseFunc) -> ir.BaseFunc:
    if not isinstance(func, relax.Function) or why_left_alone(func) is not None:
        return func
    return rewrite_function(func, _RULES)
