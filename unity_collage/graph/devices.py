"""The virtual devices of a module: those that it lists and uses, and the devices of the machine that they are on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tvm_ffi
from tvm import ir, relax
from tvm.ir import IRModule
from tvm.target import Target

from ..errors import CollageError
from ..target import devices_of, fields_of
from .calls import op_name

VDEVICE = "vdevice"
"""The name of the list of virtual devices among the global infos of a module."""

COPY = "relax.to_vdevice"
"""The operator that copies a value to a virtual device."""

_KINDS = {1: "cpu", 2: "cuda"}
"""The kinds of devices that programs run on, by DLPack's number of their type."""

_GLOBAL = "global"

_structural_map: Any = tvm_ffi.structural_map  # type: ignore[reportUnknownMemberType]

Key = tuple[str, int, str]
"""Target, number and memory scope of a virtual device. TVM compares two of them by identity in its passes and printer,
and ``==`` of the Python class does not end."""


def key_of(device: relax.VDevice) -> Key:
    """The key by which two virtual devices are equal."""
    return str(device.target), int(device.vdevice_id), str(device.memory_scope)


def listed(mod: IRModule) -> tuple[relax.VDevice, ...]:
    """The virtual devices that a module lists, in order: TVM's machine numbers devices so."""
    infos: Any = mod.global_infos or {}
    return tuple(infos.get(VDEVICE, ()))


def used(mod: IRModule) -> dict[Key, relax.VDevice]:
    """The virtual devices that types and copies of a module name, in order of first mention."""
    found: dict[Key, relax.VDevice] = {}

    def note(device: relax.VDevice) -> relax.VDevice:
        return found.setdefault(key_of(device), device)

    for func in mod.functions.values():
        with_changed_devices(func, note)
    return found


def with_listed_devices(mod: IRModule) -> IRModule:
    """``mod`` where each virtual device is the one object that the module lists, and all that are used are listed.

    TVM's printer writes ``llvm:-1`` for another object, equal or not, and its lowering fails.
    """
    named = used(mod)
    if not named:
        return mod
    known = {key_of(device): device for device in listed(mod)}
    of_key = {**named, **known}

    def same(device: relax.VDevice) -> relax.VDevice:
        return of_key[key_of(device)]

    functions = {gvar: with_changed_devices(func, same) for gvar, func in mod.functions_items()}
    infos = {**dict(mod.global_infos or {}), VDEVICE: [*known.values(), *_absent(named, known)]}
    return IRModule(functions, attrs=mod.attrs, global_infos=infos)


def without_devices(func: relax.Function) -> relax.Function:
    """``func`` without virtual devices in its types: what it computes, on any device."""
    return _without(func) if any(True for _ in _types_with_devices(func)) else func


def legalized_on_devices(mod: IRModule, step: Callable[[IRModule], IRModule]) -> IRModule:
    """``step(mod)`` with lost virtual devices of results restored: TVM infers none for ``conv2d`` with a constant.

    A result is where the operands of its call are, and without operands where it was before.
    """
    if not used(mod):
        return step(mod)
    before = {
        gvar.name_hint: _devices_by_name(func)
        for gvar, func in mod.functions_items()
        if isinstance(func, relax.Function)
    }
    made = step(mod)
    functions = {
        gvar: _found_again(func, before.get(gvar.name_hint, {})) if isinstance(func, relax.Function) else func
        for gvar, func in made.functions_items()
    }
    return IRModule(functions, attrs=made.attrs, global_infos=made.global_infos)


def _devices_by_name(func: relax.Function) -> dict[str, relax.VDevice]:
    """The virtual device of each variable of a function that has one."""
    devices = {var.name: next(devices_of(var.ty), None) for var, _ in bound_values(func.body)}
    return {name: device for name, device in devices.items() if device is not None}


def on_device(ty: ir.Type, device: relax.VDevice) -> ir.Type:
    """``ty`` with its tensors without a virtual device on ``device``."""
    if isinstance(ty, relax.TupleType):
        return relax.TupleType([on_device(part, device) for part in ty.fields])
    if not isinstance(ty, relax.TensorType) or ty.vdevice is not None:
        return ty
    return relax.TensorType(ty.shape, ty.dtype, device, -1 if ty.shape is not None else ty.ndim)


def on_device_of_operands(expr: relax.Expr) -> relax.Expr:
    """A call with its result on the device of its operands, if its type names none; other values do not change."""
    return _on_its_device(expr, _device_of_operands(expr)) if isinstance(expr, relax.Call) else expr


def _device_of_operands(call: relax.Call) -> relax.VDevice | None:
    return next((device for arg in call.args for device in _devices_of_value(arg)), None)


def _devices_of_value(expr: relax.Expr) -> Iterator[relax.VDevice]:
    """The virtual devices of a value; the type of a written tuple may be older than those of its fields."""
    if not isinstance(expr, relax.Tuple):
        return devices_of(expr.ty)
    return (device for field in expr.fields for device in _devices_of_value(field))


def _found_again(func: relax.Function, before: dict[str, relax.VDevice]) -> relax.Function:
    """``func`` with results without a virtual device on that of their calls' operands, or on that of ``before``."""
    renamed: dict[relax.Var, relax.Var] = {}

    def renew(var: relax.Var) -> relax.Var:
        return renamed.get(var, var)

    for var, value in bound_values(func.body):
        if any(True for _ in devices_of(var.ty)) or not isinstance(
            var.ty, (relax.TensorType, relax.TupleType)
        ):
            continue
        if isinstance(value, ir.GenericConst):
            continue
        mapped = _structural_map(value, (relax.Var, renew))
        device = (
            _device_of_operands(mapped)
            if isinstance(mapped, relax.Call)
            else next(_devices_of_value(mapped), None)
        )
        device = device or before.get(var.name)
        if device is not None:
            renamed[var] = type(var)(var.name, on_device(var.ty, device))
    if not renamed:
        return func
    return _structural_map(func, [(relax.Var, renew), (relax.Call, on_device_of_operands)])


def _on_its_device(call: relax.Call, device: relax.VDevice | None) -> relax.Call:
    is_tensor = isinstance(call.ty, (relax.TensorType, relax.TupleType))
    if device is None or not is_tensor or any(True for _ in devices_of(call.ty)):
        return call
    types = [on_device(ty, device) for ty in call.ty_args]
    return relax.Call(call.op, call.args, call.attrs, types, ret_ty=on_device(call.ty, device))


def bound_values(body: relax.Expr) -> Iterator[tuple[relax.Var, relax.Expr]]:
    """The variables of a body and of its branches, in order."""
    for block in body.blocks if isinstance(body, relax.SeqExpr) else ():
        for binding in block.bindings:
            if isinstance(binding.value, relax.If):
                yield from bound_values(binding.value.true_branch)
                yield from bound_values(binding.value.false_branch)
            yield binding.var, binding.value


def places_of(mod: IRModule) -> tuple[str, ...]:
    """The devices of the machine, such as ``cpu:1``, of the virtual devices that ``mod`` lists; empty for none.

    A virtual device that nothing uses is on the device of the first one that is used. Raises CollageError for one that
    no program runs on.
    """
    devices, needed = listed(with_listed_devices(mod)), used(mod)
    if not needed:
        return ()
    first = place_of(next(device for device in devices if key_of(device) in needed))
    return tuple(place_of(device) if key_of(device) in needed else first for device in devices)


def place_of(device: relax.VDevice) -> str:
    """The device of the machine that a virtual device is on: ``cpu:1``; raises CollageError if there is none."""
    kind = _KINDS.get(int(device.target.get_target_device_type()))
    if kind is None:
        raise CollageError(
            f"values are on {device.target.kind.name}:{device.vdevice_id}, and programs run on CPUs (llvm) and NVIDIA "
            "GPUs (cuda) only"
        )
    if device.memory_scope != _GLOBAL:
        raise CollageError(
            f"values are in the memory scope {device.memory_scope!r} of {kind}:{device.vdevice_id}, and programs keep "
            f"values between kernels in {_GLOBAL!r} only"
        )
    return f"{kind}:{int(device.vdevice_id)}"


def first_target(mod: IRModule) -> Target | None:
    """The target of values without a virtual device, which TVM puts on the first one; None where there is none."""
    devices, needed = listed(with_listed_devices(mod)), used(mod)
    return next((device.target for device in devices if key_of(device) in needed), None)


def targets_in(mod: IRModule) -> list[Target]:
    """The targets of the virtual devices that a module uses, each once."""
    return list({str(fields_of(device.target)): device.target for device in used(mod).values()}.values())


def _absent(named: dict[Key, relax.VDevice], known: dict[Key, relax.VDevice]) -> list[relax.VDevice]:
    return [device for key, device in named.items() if key not in known]


def with_changed_devices(func: ir.BaseFunc, change: Callable[[relax.VDevice], relax.VDevice]) -> ir.BaseFunc:
    """``func`` with other virtual devices in its types and copies. TVM's own mapping leaves attributes of calls out."""
    if not isinstance(func, relax.Function):
        return func

    def copied(call: relax.Call) -> relax.Call:
        if op_name(call) != COPY:
            return call
        wanted = change(call.attrs.dst_vdevice)
        return relax.Call(call.op, call.args, _attrs(wanted), call.ty_args, ret_ty=call.ty)

    return _structural_map(func, [(relax.VDevice, change), (relax.Call, copied)])


def _attrs(device: relax.VDevice) -> Any:
    """The attributes of a copy to ``device``."""
    value = relax.Var("value", relax.TensorType((), "float32"))
    return relax.op.to_vdevice(value, device).attrs


def _types_with_devices(func: relax.Function) -> list[ir.Type]:
    variables = [*func.params, *(binding.var for block in func.body.blocks for binding in block.bindings)]
    return [var.ty for var in variables if any(True for _ in devices_of(var.ty))]


def _without(func: relax.Function) -> relax.Function:
    def bare(ty: relax.TensorType) -> relax.TensorType:
        if ty.vdevice is None:
            return ty
        return relax.TensorType(ty.shape, ty.dtype, ndim=-1 if ty.shape is not None else ty.ndim)

    return _structural_map(func, (relax.TensorType, bare))
