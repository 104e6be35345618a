"""Own sizes: kernels name their symbolic sizes unlike sizes that a Relax function learns from data.

TVM prints the sizes of a kernel's parameters before all functions, and does not parse a ``match_cast`` that defines a
size of one of these names.
"""

from __future__ import annotations

from collections.abc import Iterator

import tvm_ffi
from tvm import ir, relax, tirx
from tvm.ir import IRModule


def with_own_sizes(mod: IRModule) -> IRModule:
    """``mod`` whose kernels have no size with the name of one that a ``match_cast`` defines."""
    taken = {name for func in mod.functions.values() for name in _learnt(func)}
    if not taken:
        return mod
    functions = {
        gvar: _renamed(func, taken) if isinstance(func, tirx.PrimFunc) else func
        for gvar, func in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _learnt(func: ir.BaseFunc) -> Iterator[str]:
    if isinstance(func, relax.Function):
        for block in func.body.blocks:
            for binding in block.bindings:
                if isinstance(binding, relax.MatchCast):
                    yield from (size.name for size in relax.analysis.tir_vars_in_type(binding.ty))


def _renamed(kernel: tirx.PrimFunc, taken: set[str]) -> tirx.PrimFunc:
    fresh: dict[ir.Var, ir.Var] = {}

    def own(var: ir.Var) -> ir.Var:
        if var.name not in taken:
            return var
        return fresh.setdefault(var, tirx.Var(f"kernel_{var.name}", var.ty))

    return tvm_ffi.structural_map(kernel, (tirx.Var, own))
