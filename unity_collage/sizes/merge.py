"""Merges modules: adds a function of one module, and the functions that it calls, to others; equal constants are
shared.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import tvm_ffi
from tvm import ir, relax
from tvm.ir import IRModule

from ..graph.equal_constants import EqualConstants
from ..graph.variants import reached
from ..tvm_private import give_type

Functions = dict[ir.GlobalVar, ir.BaseFunc]


def _copied(func: ir.BaseFunc) -> ir.BaseFunc:
    """A function with variables of its own: the module at another size may have the same one."""
    return relax.utils.copy_with_new_vars(func) if isinstance(func, relax.Function) else func


@dataclass(slots=True)
class MergedModules:
    """Functions of several modules, each under a name of its own."""

    functions: Functions = field(default_factory=dict)
    _reserved: set[str] = field(default_factory=lambda: {"main"})
    """Names that are in use; ``main`` is reserved for the function that is made last."""
    _constants: EqualConstants = field(default_factory=EqualConstants)

    def add(self, name: str, func: relax.Function, mod: IRModule) -> ir.GlobalVar:
        """Add a function of ``mod`` as ``name``, and the functions that it calls under free names."""
        renamed: dict[ir.GlobalVar, ir.GlobalVar] = {}
        called = reached(func, mod)
        for gvar in called:
            equal = None if isinstance(mod[gvar], relax.Function) else self._equal(mod[gvar])
            renamed[gvar] = equal or self._named(gvar.name_hint, mod[gvar])
        for gvar in called:
            if renamed[gvar] not in self.functions:
                self._put(renamed[gvar], _copied(mod[gvar]), renamed)
        gvar = self._named(name, func)
        self._put(gvar, func, renamed)
        return gvar

    def add_public(self, mod: IRModule) -> None:
        """Add the public functions of ``mod`` except ``main``, if they are not there yet."""
        for gvar, func in mod.functions_items():
            if "global_symbol" not in (func.attrs or {}) or gvar.name_hint in self._reserved:
                continue
            if isinstance(func, relax.Function):
                self.add(gvar.name_hint, func, mod)
            else:
                self.functions[gvar] = func

    def _put(self, gvar: ir.GlobalVar, func: ir.BaseFunc, renamed: dict[ir.GlobalVar, ir.GlobalVar]) -> None:
        if "global_symbol" in (func.attrs or {}):
            func = func.with_attr("global_symbol", gvar.name_hint)
        if isinstance(func, relax.Function):
            func = tvm_ffi.structural_map(func, (ir.GlobalVar, lambda var: renamed.get(var, var)))
            func = tvm_ffi.structural_map(func, (ir.GenericConst, self._constants.first))
        self.functions[gvar] = func

    def _equal(self, func: ir.BaseFunc) -> ir.GlobalVar | None:
        return next((g for g, known in self.functions.items() if tvm_ffi.structural_equal(known, func)), None)

    def _named(self, hint: str, func: ir.BaseFunc) -> ir.GlobalVar:
        taken = {gvar.name_hint for gvar in self.functions} | self._reserved
        name, number = hint, 1
        while name in taken:
            name, number = f"{hint}_{number}", number + 1
        self._reserved.add(name)
        gvar = ir.GlobalVar(name)
        give_type(gvar, func.ty)
        return gvar
