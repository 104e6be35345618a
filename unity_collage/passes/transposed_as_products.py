"""TransposedAsProducts: transposed convolutions whose windows do not overlap become products.

Reads    the operators; best in the normal form of Prepare, where factors are in the weights and biases are ``add``.
Writes   ``matmul`` of the channels, a ``permute_dims`` that spreads its rows over the image, and a ``reshape``.
Keeps    every type, numbers up to the order of a sum, and every function that :func:`.channels_last.why_left_alone`
         names a reason for.

Decoders of images double their size by windows of 2x2 at steps of 2. TVM has a kernel for them in one layout only, and
a slow one; a product is what every backend is good at.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import ir, relax
from tvm.ir import IRModule

from ..rewrites.driver import rewrite_function
from ..rewrites.identity import DROP_IDENTITY_PERMUTE
from ..rewrites.transposed import BEFORE_PLACING, TRANSPOSED_AS_PRODUCT
from ..rewrites.views import MERGE_PERMUTES
from .channels_last import why_left_alone

_RULES = (TRANSPOSED_AS_PRODUCT, BEFORE_PLACING, MERGE_PERMUTES, DROP_IDENTITY_PERMUTE)


@tvm.transform.module_pass(opt_level=0, name="collage.TransposedAsProducts")
@dataclass(frozen=True)
class TransposedAsProducts:
    """``conv2d_transpose(x, w, strides=[2, 2])`` with 2x2 windows and its bias -> ``add(matmul(x, w), bias)``, put in
    place. A window that overlaps another or leaves a gap, groups and padding leave it as it is."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        functions = {gvar: _rewritten(func) for gvar, func in mod.functions_items()}
        return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _rewritten(func: ir.BaseFunc) -> ir.BaseFunc:
    if not isinstance(func, relax.Function) or why_left_alone(func) is not None:
        return func
    return rewrite_function(func, _RULES)
