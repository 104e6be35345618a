"""MultiplyBytes: compute products of dequantised values as sums of products of bytes.

Reads    any module, before Prepare, which would fold dequantised weights to floats.
Writes   ``matmul`` and convolutions of bytes with results of int32, and the factor and summand behind them.
Keeps    types, and numbers up to rounding: sums of bytes are exact. All functions, if no backend in use multiplies
         bytes on the target; functions that :func:`.prepare.why_left_alone` names a reason for.

ONNX writes a quantised network as ``QuantizeLinear`` and ``DequantizeLinear`` around operators on floats.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import ir, relax
from tvm.ir import IRModule

from ..backends.registry import select
from ..graph.calls import operators
from ..rewrites.driver import rewrite_function
from ..rewrites.quantised import CONVOLUTION_OF_BYTES, PRODUCT_OF_BYTES
from ..target import current_target
from .prepare import why_left_alone

_RULES = (PRODUCT_OF_BYTES, CONVOLUTION_OF_BYTES)


def _dequantizes(func: relax.Function) -> bool:
    return "relax.dequantize" in operators(func)


@tvm.transform.module_pass(opt_level=0, name="collage.MultiplyBytes")
@dataclass(frozen=True)
class MultiplyBytes:
    """Multiply bytes where a backend has instructions for that."""

    backends: tuple[str, ...] | None = None
    """Names in preference order; None: the target's ``libs``, else all that are available."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        target = current_target()
        if not any(backend.multiplies_bytes(target) for backend in select(self.backends, target)):
            return mod
        flow = relax.transform.ConvertToDataflow(min_size=1)
        changed: dict[ir.GlobalVar, ir.BaseFunc] = {}
        for gvar, func in mod.functions_items():
            if isinstance(func, relax.Function) and why_left_alone(func) is None and _dequantizes(func):
                before = flow(IRModule({gvar: func}))[gvar]
                after = rewrite_function(before, _RULES, mod)
                if not after.same_as(before):
                    changed[gvar] = after
        if not changed:
            return mod
        functions = {**dict(mod.functions_items()), **changed}
        return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
