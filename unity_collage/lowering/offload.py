"""Turns functions for libraries into calls of runtime modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import tvm
from tvm import ir, relax
from tvm.ir import IRModule
from tvm.runtime import Module

from ..annotations import options_of
from ..backends import registry
from ..backends.base import Codegen
from .build import EXTERNAL_MODS

CONSTANTS = "const_name_to_constant"
"""Attribute of a module: constants that runtime modules ask for by name when they are loaded."""

Options = Mapping[str, Mapping[str, Any]]
"""The options of each code generator, by backend."""


def offloaded_module(mod: IRModule, options: Options | None = None) -> IRModule:
    """``mod`` where calls of functions with ``Codegen`` are calls of modules in ``external_mods``."""
    external = {
        gvar: func
        for gvar, func in mod.functions_items()
        if isinstance(func, relax.Function) and codegen_of(func) is not None
    }
    if not external:
        return mod
    functions = {
        gvar: offloaded(func, external) if isinstance(func, relax.Function) else func
        for gvar, func in mod.functions_items()
        if gvar not in external
    }
    constants = constant_names(external.values())
    modules = [*mod.attrs.get(EXTERNAL_MODS, [])] if mod.attrs else []
    modules += _modules(list(external.values()), constants, options or {})
    result = IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
    return _with_constants(result, constants).with_attr(EXTERNAL_MODS, modules)


def _modules(
    functions: list[relax.Function], constants: Mapping[ir.GenericConst, str], options: Options
) -> Iterator[Module]:
    alike: dict[tuple[str, tuple[tuple[str, str], ...]], list[relax.Function]] = {}
    for func in functions:
        alike.setdefault((str(func.attrs["Codegen"]), tuple(options_of(func).items())), []).append(func)
    for (name, own), group in alike.items():
        codegen = _codegen(name)
        assert codegen is not None
        yield from codegen(group, {**options.get(name, {}), **dict(own)}, dict(constants))


def codegen_of(func: relax.Function) -> Codegen | None:
    """The code generator of the function's ``Codegen``, or None."""
    name = (func.attrs or {}).get("Codegen")
    return None if name is None else _codegen(str(name))


def constant_names(functions: Iterable[relax.Function]) -> dict[ir.GenericConst, str]:
    """Names for the constants in functions of third-party code generators.

    Their modules may leave out constants, and ask for them by name when they are loaded.
    """
    names: dict[ir.GenericConst, str] = {}
    for func in functions:
        backend, symbol = str(func.attrs["Codegen"]), str(func.attrs["global_symbol"])
        if backend not in registry.known():
            found: list[ir.GenericConst] = []
            relax.analysis.post_order_visit(func.body, _collector(found))
            for constant in found:
                names.setdefault(constant, f"{symbol}_{backend}_const_{len(names)}")
    return names


def _collector(found: list[ir.GenericConst]) -> Callable[[relax.Expr], None]:
    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, ir.GenericConst):
            found.append(expr)

    return visit


def _with_constants(mod: IRModule, names: Mapping[ir.GenericConst, str]) -> IRModule:
    """``mod`` with the tensors of ``names`` for the linker, in addition to those of an earlier run."""
    if not names:
        return mod
    earlier = dict((mod.attrs or {}).get(CONSTANTS, {}))
    return mod.with_attr(CONSTANTS, {**earlier, **{name: c.value for c, name in names.items()}})


def _codegen(name: str) -> Codegen | None:
    backend = registry.known().get(name)
    if backend is not None and backend.codegen is not None:
        return backend.codegen
    return tvm.get_global_func(f"relax.ext.{name}", allow_missing=True)


def offloaded(func: relax.Function, external: Mapping[relax.GlobalVar, relax.Function]) -> relax.Function:
    """``func`` with calls of ``external`` functions turned into ``call_dps_packed`` of their symbols."""
    symbols = {gvar: str(callee.attrs["global_symbol"]) for gvar, callee in external.items()}
    changed = _Offloader(symbols).visit_expr(func)
    assert isinstance(changed, relax.Function)
    return changed


@relax.expr_functor.mutator
class _Offloader(relax.PyExprMutator):
    """before: ``f(x, y)``   after: ``R.call_dps_packed("f", (x, y), out_ty=...)``."""

    def __init__(self, symbols: Mapping[relax.GlobalVar, str]):
        super().__init__()
        self._symbols = symbols

    def visit_call_(self, op: relax.Call) -> relax.Expr:
        if isinstance(op.op, relax.GlobalVar) and op.op in self._symbols:
            args = relax.Tuple([self.visit_expr(arg) for arg in op.args])
            results = list(op.ty.fields) if isinstance(op.ty, relax.TupleType) else op.ty
            return relax.call_dps_packed(self._symbols[op.op], args, out_ty=results)
        return super().visit_call_(op)
