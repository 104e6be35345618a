"""Own sizes: how kernels name the symbolic sizes of their parameters.

First, their names differ from sizes that a Relax function learns from data. TVM prints the sizes of a kernel's
parameters before all functions. It does not parse a ``match_cast`` that defines a size with one of these names.

Second, a size that is a quotient, as after a convolution with a stride, becomes one variable::

    y: ((h - 1) // 2 + 1, 16)   ->   y: (extent, 16)

Otherwise TVM writes out each division of numbers with unknown sign, in each index that has the quotient as a stride.
After two such convolutions LLVM took half a minute for a kernel.
"""

from __future__ import annotations

from collections.abc import Iterator

import tvm_ffi
from tvm import ir, relax, tirx
from tvm.ir import IRModule

from ..schedule.stage import nodes


def with_own_sizes(mod: IRModule) -> IRModule:
    """``mod`` with no size of a kernel named like one that a ``match_cast`` defines."""
    taken = {name for func in mod.functions.values() for name in _learnt(func)}
    if not taken:
        return mod
    functions = {
        gvar: _renamed(func, taken) if isinstance(func, tirx.PrimFunc) else func
        for gvar, func in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def with_named_extents(mod: IRModule) -> IRModule:
    """``mod`` with a variable in kernels for each extent of a parameter that is a quotient."""
    functions = {
        gvar: _named(func) if isinstance(func, tirx.PrimFunc) else func
        for gvar, func in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


_QUOTIENTS = (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)
_COMPOSED = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Min, tirx.Max, *_QUOTIENTS)


def _named(kernel: tirx.PrimFunc) -> tirx.PrimFunc:
    names: list[tuple[ir.Expr, ir.Var]] = []
    for param in kernel.params:
        for extent in getattr(param, "shape", ()):
            if nodes(extent, _QUOTIENTS) and not any(
                tvm_ffi.structural_equal(extent, known) for known, _ in names
            ):
                names.append((extent, tirx.Var(f"extent_{len(names)}", extent.expr_ty())))
    if not names:
        return kernel

    def name(expr: ir.Expr) -> ir.Expr:
        return next((var for known, var in names if tvm_ffi.structural_equal(expr, known)), expr)

    return tvm_ffi.structural_map(kernel, (_COMPOSED, name))


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
