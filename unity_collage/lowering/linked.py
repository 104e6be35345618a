"""Programs of object code: kernels are compiled one by one, and linked where they run or are written."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi_orcjit
from tvm import ir, relax, tirx
from tvm.ir import IRModule
from tvm.script import tirx as T
from tvm.target import Target

from ..scratch import Scratch
from ..target import target_for
from ..tvm_private import vm_functions, vm_link
from .function_objects import (
    calls_variables,
    function_object,
    module_object,
    unoptimised,
    with_calls_renamed,
)
from .kernel_targets import without_target


@T.prim_func(s_tir=True)
def _nothing(a: T.Buffer((1,), "float32")) -> None:  # pyright: ignore
    T.func_attr({"global_symbol": "nothing"})
    for i in range(1):
        with T.sblock("write"):
            vi = T.axis.spatial(1, i)
            a[vi] = T.float32(0)


class LinkedExecutable(relax.VMExecutable):
    """An executable with functions that are object code."""

    def __init__(self, mod: Any, objects: Sequence[bytes]):
        """``mod``: the executable. It imports an empty module, which imports the modules of libraries."""
        super().__init__(mod)
        self._objects = tuple(objects)
        (self._nothing,) = mod.imports

    def jit(self, **_options: Any) -> Any:
        """The module for a virtual machine of this process, in which the objects are linked."""
        if self._jitted_mod is None:
            running = linked(self._objects)
            for module in self._nothing.imports:
                running.import_module(module)
            self._import(running)
            self._jitted_mod = self.mod
        return self._jitted_mod

    def export_library(self, file_name: Any, *, addons: Sequence[str] | None = None, **options: Any) -> Any:
        """Write the executable as ``relax.VMExecutable`` does."""
        with Scratch("objects") as folder:
            paths = [Path(folder) / f"{number}.o" for number in range(len(self._objects))]
            for path, code in zip(paths, self._objects, strict=True):
                path.write_bytes(code)
            self._jitted_mod = None
            self._import(self._nothing)
            addons = [*map(str, paths), *(addons or ())]
            return self.mod.export_library(file_name, addons=addons, **options)

    def _import(self, module: Any) -> None:
        self.mod.clear_imports()
        self.mod.import_module(module)


def linked(objects: Sequence[bytes]) -> Any:
    """A module of this process with the functions of these objects."""
    return tvm_ffi_orcjit.default_session().load_module(list(objects))


def linked_executable(finished: IRModule, external: Sequence[Any], target: Target) -> LinkedExecutable:
    """A compiled executable of a module after the last pass, with the ``external`` modules of libraries.

    Kernels that call no others are objects of their own. The others are compiled together, and so are the functions of
    the virtual machine; both call kernels by their symbols.
    """
    kernels = {gvar: func for gvar, func in finished.functions_items() if isinstance(func, tirx.PrimFunc)}
    made = {g: function_object(without_target(func), target_for(func, target)) for g, func in kernels.items()}
    objects = {gvar: alone for gvar, alone in made.items() if alone is not None}
    callers = {gvar: func for gvar, func in kernels.items() if gvar not in objects}
    if any(calls_variables(func) for func in callers.values()):
        objects, callers = {}, kernels
    symbols = {gvar: alone.symbol for gvar, alone in objects.items()}
    names = {_name(kernels[gvar]): symbol for gvar, symbol in symbols.items()}
    calling = {gvar: with_calls_renamed(func, names) for gvar, func in callers.items()}
    distinct = {alone.symbol: alone.code for alone in objects.values()}
    compiled = [*distinct.values(), *_callers(calling, distinct, target)]
    builder = relax.ExecBuilder()
    functions = vm_functions(builder, _with_symbols(finished, symbols))
    called = [*distinct, *map(_name, calling.values())]
    compiled.append(module_object(functions, called, unoptimised(target)))
    nothing = tvm.tirx.build(IRModule({"nothing": _nothing}), target=target)
    for module in external:
        nothing.import_module(module)
    attrs = finished.attrs or {}
    constants = dict(attrs["const_name_to_constant"]) if "const_name_to_constant" in attrs else {}
    return LinkedExecutable(vm_link(builder, target, nothing, constants), compiled)


def _callers(
    calling: Mapping[ir.GlobalVar, tirx.PrimFunc], symbols: Collection[str], target: Target
) -> Iterator[bytes]:
    """The object code of functions that call others, by target; ``symbols`` are those of the other objects."""
    targets = {str(target_for(func, target)): target_for(func, target) for func in calling.values()}
    for text, own in targets.items():
        here = {gvar: func for gvar, func in calling.items() if str(target_for(func, target)) == text}
        others = [_name(func) for gvar, func in calling.items() if gvar not in here]
        bare = {gvar: without_target(func) for gvar, func in here.items()}
        yield module_object(bare, [*symbols, *others], own)


def _name(func: tirx.PrimFunc) -> str:
    return str(func.attrs["global_symbol"])


def _with_symbols(mod: IRModule, symbols: Mapping[ir.GlobalVar, str]) -> IRModule:
    functions = {
        gvar: func.with_attr("global_symbol", symbols[gvar]) if gvar in symbols else func
        for gvar, func in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
