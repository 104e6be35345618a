"""Functions of an imported module that are called: importing loops leaves others behind."""

from __future__ import annotations

from tvm import relax
from tvm.ir import BaseFunc, GlobalVar, IRModule


def with_called(mod: IRModule) -> IRModule:
    """``mod`` without functions that nothing calls."""
    kept: dict[GlobalVar, BaseFunc] = {}
    pending = [mod.get_global_var("main")]
    while pending:
        gvar = pending.pop()
        if gvar in kept:
            continue
        kept[gvar] = mod[gvar]
        if isinstance(mod[gvar], relax.Function):
            mentioned: list[relax.Expr] = []
            relax.analysis.post_order_visit(mod[gvar], mentioned.append)
            pending += [expr for expr in mentioned if isinstance(expr, GlobalVar)]
    return IRModule({gvar: func for gvar, func in mod.functions_items() if gvar in kept})
