"""RunRemotely: regions on the VDevices of other machines become calls of programs there.

Reads    hints and the VDevices of types; it runs PlanDevices and MergeCopies where a module needs them.
Writes   opaque calls of packed functions in place of the regions, and types without the VDevices of other machines.
Keeps    what is computed, and all other devices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import tvm
import tvm_ffi
from tvm import ir, relax
from tvm.ir import IRModule

from ..annotations import DEVICE, FREELY_PLACED
from ..compiler import compile as compiled
from ..database.costs import CostDatabase
from ..devices.copies import merged
from ..devices.partition import partitioned
from ..devices.planning import with_plan
from ..devices.table import DeviceTable
from ..devices.trees import tensors
from ..errors import CollageError
from ..frontend.opaque import remarks_of, with_remarks
from ..graph.calls import op_name
from ..graph.devices import (
    COPY,
    bound_values,
    key_of,
    used,
    with_changed_devices,
    with_listed_devices,
    without_devices,
)
from ..graph.shapes import nbytes_of, shape_of
from ..measure.remote import RemoteCost
from ..measure.remote.servers import NoServer
from ..runtime.remote_calls import symbol_of
from ..scratch import Scratch
from .device import RemoteDevice, RemoteRegion, RemoteType


@tvm.transform.module_pass(opt_level=0, name="collage.RunRemotely")
@dataclass(frozen=True)
class RunRemotely:
    """Compile each region of a remote device for its server, with costs that are measured there, and call it.

    The module is an argument of ``uc.compile`` afterwards, in this process: its program calls the servers, so it is
    not kept and cannot be saved. Raises CollageError for a region with free sizes, and for operators of a remote
    device that are in no region.
    """

    devices: Mapping[str, RemoteDevice]
    """By the label or the name of a VDevice of the module, such as ``llvm:1``, or by ``cpu:1``."""
    database: CostDatabase | str | Path | None = None
    """Where the costs of kernels on the servers are kept, as for ``uc.compile``."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """More options of ``uc.compile`` for the regions, such as ``backends``."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        planned = with_listed_devices(with_plan(mod))
        table = DeviceTable(planned)
        servers = {table.label_of_named(name): device for name, device in self.devices.items()}
        places = _Places(table, servers)
        split = relax.transform.Normalize()(partitioned(planned, "vdevice", servers))
        regions = {gvar for gvar, func in split.functions_items() if _label_of(func) in servers}
        places.refuse_loose_values(split, regions)
        named = sorted(regions, key=lambda gvar: gvar.name_hint)
        made = {gvar: self._compiled(split, gvar, servers[_label_of(split[gvar])]) for gvar in named}
        calls: dict[ir.GlobalVar, str] = {}
        remarks: list[str] = []
        for gvar, region in made.items():
            func, device = split[gvar], servers[_label_of(split[gvar])]
            calls[gvar] = _registered(device, region)
            seconds = device.copy_seconds(region)
            remarks.append(
                f"{gvar.name_hint} runs on {device!r}: {_nbytes(param.ty for param in func.params)} bytes there and "
                f"{_nbytes([func.ret_ty])} back take {seconds * 1e3:.3g} ms"
            )
        return with_remarks(places.called(split, calls), [*remarks_of(mod), *remarks])

    def _compiled(self, mod: IRModule, gvar: ir.GlobalVar, device: RemoteDevice) -> RemoteRegion:
        func = mod[gvar]
        inputs = [_type_of(param, gvar.name_hint) for param in func.params]
        fields = func.ret_ty.fields if isinstance(func.ret_ty, relax.TupleType) else [func.ret_ty]
        results = [_type_of(relax.Var("result", ty), gvar.name_hint) for ty in fields]
        name = f"{gvar.name_hint}_{uuid4().hex[:8]}"
        database = self.database if isinstance(self.database, CostDatabase) else CostDatabase(self.database)
        device.close()  # its server may be the only one that can measure
        model = RemoteCost(database, tracker=device.tracker, key=device.key, wait_seconds=device.wait_seconds)
        with model as costs, Scratch("region") as folder:
            try:
                target = costs.target()
            except NoServer as error:  # an error of this class would lose it in TVM's passes
                raise CollageError(str(error)) from None
            program = compiled(_as_main(mod, gvar), target=target, estimator=costs, **self.options)
            program.save(path := Path(folder) / "region.so")
            return RemoteRegion(name, path.read_bytes(), tuple(inputs), tuple(results))


def _type_of(var: relax.Var, region: str) -> RemoteType:
    ty, shape = var.ty, shape_of(var)
    if not isinstance(ty, relax.TensorType) or shape is None:
        raise CollageError(f"{region} has a value of unknown size, {var.name}: a server computes fixed sizes")
    return RemoteType(tuple(shape), str(ty.dtype))


def _nbytes(types: Iterable[ir.Type]) -> int:
    """The bytes of the tensors of some types."""
    return sum(nbytes_of(relax.Var("value", tensor)) for ty in types for tensor in tensors(ty))


def _label_of(func: ir.BaseFunc) -> str:
    """The label of the device of a function that is on one; empty for others."""
    return str((func.attrs or {}).get(DEVICE, "")) if isinstance(func, relax.Function) else ""


def _as_main(mod: IRModule, gvar: ir.GlobalVar) -> IRModule:
    """A module whose ``main`` is a region, with the functions that it calls and no VDevices."""
    func = without_devices(mod[gvar])
    for name in ("target", DEVICE, FREELY_PLACED.name):
        func = func.without_attr(name)
    others = {
        name: each for name, each in mod.functions_items() if name.name_hint not in ("main", gvar.name_hint)
    }
    main = func.with_attr("global_symbol", "main")
    made = IRModule({ir.GlobalVar("main"): main, **others})
    return relax.transform.DeadCodeElimination(["main"])(made)


def _registered(device: RemoteDevice, region: RemoteRegion) -> str:
    """The symbol of a packed function that asks the server for the results of a region."""

    def packed(*operands: Any) -> Any:
        results = device.run(region, operands)
        return results[0] if len(results) == 1 else results

    symbol = symbol_of(region.name)
    tvm_ffi.register_global_func(symbol, packed)
    return symbol


class _Places:
    """The devices of a module, of which some are remote."""

    def __init__(self, table: DeviceTable, remote: Collection[str]) -> None:
        numbered = list(enumerate(table.devices))
        self._away = {key_of(device) for number, device in numbered if table.label(number) in remote}
        near = (device for _, device in numbered if key_of(device) not in self._away)
        first = next(near, None)
        if first is None:
            raise CollageError("all devices of the module are remote: a program needs one on this machine")
        self._near = first

    def refuse_loose_values(self, mod: IRModule, regions: Collection[ir.GlobalVar]) -> None:
        """Raise CollageError for a value that is computed on a remote device, and in no region."""
        for gvar, func in mod.functions_items():
            if gvar in regions or not isinstance(func, relax.Function):
                continue
            for var, value in bound_values(func.body):
                if not isinstance(value, relax.Call) or value.op in regions or op_name(value) == COPY:
                    continue
                if any(ty.vdevice is not None and key_of(ty.vdevice) in self._away for ty in tensors(var.ty)):
                    raise CollageError(
                        f"`{var.name}` in {gvar.name_hint} is on a remote device, and in no dataflow block: a server "
                        "computes regions of dataflow blocks"
                    )

    def called(self, mod: IRModule, calls: Mapping[ir.GlobalVar, str]) -> IRModule:
        """``mod`` with calls of packed functions in place of regions.

        Values of remote devices are on the first device that is not remote.
        """
        functions = {
            gvar: self._near_by(func, calls) if isinstance(func, relax.Function) else func
            for gvar, func in mod.functions_items()
            if gvar not in calls
        }
        made = merged(
            with_listed_devices(IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos))
        )
        if len(used(made)) > 1:
            return made
        alone = {
            g: without_devices(f) if isinstance(f, relax.Function) else f for g, f in made.functions_items()
        }
        return relax.transform.Normalize()(IRModule(alone, attrs=made.attrs))

    def _near_by(self, func: relax.Function, calls: Mapping[ir.GlobalVar, str]) -> ir.BaseFunc:
        def changed(call: relax.Call) -> relax.Call:
            if isinstance(call.op, ir.GlobalVar) and call.op in calls:
                return relax.call_pure_packed(calls[call.op], *call.args, ty_args=[call.ty])
            return call

        called: relax.Function = tvm_ffi.structural_map(func, (relax.Call, changed))
        return with_changed_devices(called, self._place)

    def _place(self, device: relax.VDevice) -> relax.VDevice:
        return self._near if key_of(device) in self._away else device
