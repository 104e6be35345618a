"""Programs on several devices: constants are on the device that reads them, and memory is planned for each device.

TVM's machine copies all constants to its first device, and its memory planner lets values of several devices share
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, tirx
from tvm.ir import IRModule

from ..graph.calls import op_name
from ..graph.devices import Key, key_of, listed, place_of, places_of, without_devices
from ..graph.in_place import IN_PLACE
from ..graph.prim_funcs import CALL_TIR
from ..runtime.virtual_machine import PLACED
from ..target import devices_of
from ..tvm_private import give_type

_KERNELS = frozenset({CALL_TIR, *IN_PLACE, "relax.call_dps_packed"})
"""Calls with all operands on the device of their result."""

_ALLOCATING = frozenset({"relax.builtin.alloc_tensor", "relax.memory.alloc_storage"})
_ENTRIES = frozenset({"main", PLACED})
"""Functions that are called from outside."""

_APART = "@"
"""The separator between the memory scope of a value and the number of its device, while memory is planned."""


@dataclass(frozen=True, slots=True, eq=False)
class _Placed:
    """A constant on a device other than the VM's first one."""

    constant: ir.GenericConst
    device: relax.VDevice


Sites = dict[tuple[int, str], _Placed]
"""By the number of the constant and the device of the machine."""


def with_placed_constants(mod: IRModule) -> IRModule:
    """``mod`` with constants that kernels of other devices than the first read as trailing parameters.

    The function ``PLACED`` of the result returns their values for ``main``, in order, each on its device. A machine
    calls it once. Without such constants the function does not exist.
    """
    places = places_of(mod)
    if len(set(places)) < 2:
        return mod
    found = _Constants(mod, places[0])
    if not found.of_main:
        return mod
    functions = {
        gvar: found.lifted(gvar, func) if isinstance(func, relax.Function) else func
        for gvar, func in mod.functions_items()
    }
    functions[ir.GlobalVar(PLACED)] = _placing(found.of_main.values())
    made = IRModule(_typed(functions), attrs=mod.attrs, global_infos=mod.global_infos)
    return relax.transform.Normalize()(made)


def without_devices_of_calls(mod: IRModule) -> IRModule:
    """``mod``, in destination-passing style, with no device names in the types of called functions.

    Types of destinations name none, and TVM refuses such an operand for a parameter on a virtual device.
    """
    if not places_of(mod):
        return mod
    functions = {
        gvar: without_devices(func)
        if isinstance(func, relax.Function) and gvar.name_hint not in _ENTRIES
        else func
        for gvar, func in mod.functions_items()
    }
    return IRModule(_typed(functions), attrs=mod.attrs, global_infos=mod.global_infos)


def _typed(functions: Mapping[ir.GlobalVar, ir.BaseFunc]) -> dict[ir.GlobalVar, ir.BaseFunc]:
    """``functions`` where the name of each Relax function has its type, also in calls."""
    names: dict[ir.GlobalVar, ir.GlobalVar] = {}
    for gvar, func in functions.items():
        if isinstance(func, relax.Function):
            names[gvar] = ir.GlobalVar(gvar.name_hint)
            give_type(names[gvar], func.ty)

    def named(gvar: ir.GlobalVar) -> ir.GlobalVar:
        return names.get(gvar, gvar)

    return {
        named(gvar): tvm_ffi.structural_map(func, (ir.GlobalVar, named)) if gvar in names else func
        for gvar, func in functions.items()
    }


class _Constants:
    """The placed constants that each function of a module reads, itself or in functions that it calls."""

    def __init__(self, mod: IRModule, first: str):
        self._first = first
        self._numbers: dict[ir.GenericConst, int] = {}
        functions = {g: f for g, f in mod.functions_items() if isinstance(f, relax.Function)}
        self._sites: dict[ir.GlobalVar, Sites] = {gvar: {} for gvar in functions}
        callees = {gvar: self._read(gvar, func) for gvar, func in functions.items()}
        changed = True
        while changed:
            before = sum(map(len, self._sites.values()))
            for gvar, called in callees.items():
                for callee in called:
                    self._sites[gvar].update(self._sites.get(callee, {}))
            changed = sum(map(len, self._sites.values())) != before
        self.of_main = next((sites for g, sites in self._sites.items() if g.name_hint == "main"), {})

    def lifted(self, gvar: ir.GlobalVar, func: relax.Function) -> relax.Function:
        """``func`` with a parameter for each of its placed constants."""
        sites = self._sites[gvar]
        if not sites:
            return func
        params = {key: relax.Var(f"placed{key[0]}", _type_on(placed)) for key, placed in sites.items()}

        def change(call: relax.Call) -> relax.Call:
            if isinstance(call.op, ir.GlobalVar) and (wanted := self._sites.get(call.op)):
                return relax.Call(
                    call.op,
                    [*call.args, *(params[key] for key in wanted)],
                    call.attrs,
                    call.ty_args,
                    ret_ty=call.ty,
                )
            return self._changed(call, params)

        body = tvm_ffi.structural_map(func.body, (relax.Call, change))
        return relax.Function([*func.params, *params.values()], body, func.ret_ty, func.is_pure, func.attrs)

    def _read(self, gvar: ir.GlobalVar, func: relax.Function) -> list[ir.GlobalVar]:
        """Note the placed constants of a function; the functions that it calls."""
        called: list[ir.GlobalVar] = []

        def visit(call: relax.Call) -> relax.Call:
            if isinstance(call.op, ir.GlobalVar):
                called.append(call.op)
            device = self._elsewhere(call)
            if device is not None:
                for constant in _constants(call):
                    number = self._numbers.setdefault(constant, len(self._numbers))
                    self._sites[gvar][number, place_of(device)] = _Placed(constant, device)
            return call

        tvm_ffi.structural_map(func.body, (relax.Call, visit))
        return called

    def _elsewhere(self, call: relax.Call) -> relax.VDevice | None:
        """The device of a kernel that is not on the VM's first one."""
        if op_name(call) not in _KERNELS:
            return None
        device = next(devices_of(call.ty), None)
        return None if device is None or place_of(device) == self._first else device

    def _changed(self, call: relax.Call, params: Mapping[tuple[int, str], relax.Var]) -> relax.Call:
        device = self._elsewhere(call)
        if device is None or not any(True for _ in _constants(call)):
            return call
        place = place_of(device)

        def read(arg: relax.Expr) -> relax.Expr:
            return params[self._numbers[arg], place] if isinstance(arg, ir.GenericConst) else arg

        args = [
            relax.Tuple(list(map(read, arg.fields))) if isinstance(arg, relax.Tuple) else arg
            for arg in call.args
        ]
        return relax.Call(call.op, args, call.attrs, call.ty_args, ret_ty=call.ty)


def _constants(call: relax.Call) -> Iterable[ir.GenericConst]:
    for arg in call.args:
        if isinstance(arg, relax.Tuple):
            yield from (field for field in arg.fields if isinstance(field, ir.GenericConst))


def _type_on(placed: _Placed) -> relax.TensorType:
    ty: Any = placed.constant.ty
    return relax.TensorType(ty.shape, ty.dtype, placed.device)


def _placing(wanted: Iterable[_Placed]) -> relax.Function:
    """A function that returns these constants on their devices."""
    builder = relax.BlockBuilder()
    with builder.function(PLACED, []):
        copies = [builder.emit(relax.op.to_vdevice(placed.constant, placed.device)) for placed in wanted]
        builder.emit_func_output(relax.Tuple(copies))
    return builder.get()[PLACED]


@tvm.transform.module_pass(opt_level=0, name="StaticPlanBlockMemory")
@dataclass(frozen=True)
class MemoryByDevice:
    """TVM's pass of this name, for a module of several devices: it shares memory within one memory scope.

    before: ``alloc_tensor(shape, dtype, 1, "global")``   while memory is planned: ``(..., 1, "global@1")``
    """

    step: tvm.transform.Pass

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        numbers = _numbers(mod)
        if len(set(numbers.values())) < 2:
            return self.step(mod)
        apart = _with_scopes(mod, lambda scope, device: f"{scope}{_APART}{device}" if device else scope)
        return _with_scopes(self.step(apart), lambda scope, _: scope.partition(_APART)[0])


def _numbers(mod: IRModule) -> dict[Key, int]:
    return {key_of(device): number for number, device in enumerate(listed(mod))}


def _with_scopes(mod: IRModule, change: Callable[[str, int], str]) -> IRModule:
    def changed(call: relax.Call) -> relax.Call:
        if op_name(call) not in _ALLOCATING:
            return call
        at = _place_of_argument(call, ir.StringImm)
        device = _place_of_argument(call, tirx.IntImm)
        values: Any = call.args
        scope = change(str(values[at].value), int(values[device].value))
        args = [*call.args[:at], ir.StringImm(scope), *call.args[at + 1 :]]
        return relax.Call(call.op, args, call.attrs, call.ty_args, ret_ty=call.ty)

    functions = {
        gvar: tvm_ffi.structural_map(func, (relax.Call, changed))
        if isinstance(func, relax.Function)
        else func
        for gvar, func in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _place_of_argument(call: relax.Call, kind: type) -> int:
    return next(i for i, arg in enumerate(call.args) if isinstance(arg, kind))
