"""ChannelsLast: compute images as (N, spatial..., C), the layout in which the libraries are fastest.

Reads    the operators; run Prepare before, which folds constants and batch norms.
Writes   ``permute_dims`` where a value enters or leaves channels-last layout, so that it has a cost; in
         ``collage.unrecognised`` why an operator does not follow its operands, for explanations.
Keeps    the types of every function, and every function that :func:`why_left_alone` names a reason for, or that changes
         memory in place: a value in another layout is made where it is read, which may be after the change.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.ir import IRModule

from ..graph.equal_constants import with_equal_shared
from ..graph.in_place import ChangedMemory, changed_params
from ..graph.variants import is_switch
from ..layout.translate import translated

_KERNEL_ATTRS = ("Primitive", "Composite", "Codegen")


@tvm.transform.module_pass(opt_level=0, name="collage.ChannelsLast")
@dataclass(frozen=True)
class ChannelsLast:
    """Rewrite convolutions, pools and the operators between them to have the channel axis last.

    Operators without a layout of their own follow their operands. All others get their operands in the original layout,
    by one ``permute_dims`` for each value.
    """

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        before = dict(mod.functions_items())
        functions = with_equal_shared({gvar: _translated(func, mod) for gvar, func in before.items()}, before)
        return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _translated(func: tvm.ir.BaseFunc, mod: IRModule) -> tvm.ir.BaseFunc:
    if not isinstance(func, relax.Function) or why_left_alone(func) is not None:
        return func
    return func if ChangedMemory(func, changed_params(func, mod)) else translated(func)


def why_left_alone(func: relax.Function) -> str | None:
    """Why a function keeps its layouts, or None when they are changed."""
    for name in _KERNEL_ATTRS:
        if func.attrs is not None and name in func.attrs:
            return f"it is a kernel already: it has the attribute {name}"
    if is_switch(func):
        return "it only chooses a variant"
    if not isinstance(func.body, relax.SeqExpr):
        return "its body is not a sequence of bindings"
    for block in func.body.blocks:
        for binding in block.bindings if isinstance(block, relax.DataflowBlock) else ():
            if isinstance(binding.value, (relax.If, relax.Function)):
                return f"{binding.var.name} is control flow or a function, in a dataflow block"
    return None
