"""Devices with one memory: a value is not copied between them, but gets a second name.

TVM's ``vm.builtin.to_device`` copies a value even where both devices are the processor of the machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, tirx
from tvm.ir import IRModule

from ..devices.copies import why_left_alone
from ..devices.table import DeviceTable
from ..graph.calls import op_name
from ..graph.devices import COPY, used

TO_CPU = "collage.runtime.to_cpu"
"""The function of the runtime that gives the memory of a value another device."""

_SHARED = "collage.shared_memory"
"""Attribute of a module: the positions of its virtual devices to which values are not copied."""


def with_shared_memory(mod: IRModule) -> IRModule:
    """``mod`` with a note, for :class:`ShareMemory`, of the devices whose memory all other devices have, too.

    It is noted before lowering, when types still name devices. A module that changes memory in place has no such
    devices: there a copy keeps an old value.
    """
    if not used(mod):
        return mod
    functions = [func for func in mod.functions.values() if isinstance(func, relax.Function)]
    if any(why_left_alone(func) for func in functions):
        return mod
    table = DeviceTable(mod)
    numbers = range(len(table.devices))
    shared = [to for to in numbers if all(table.is_free_copy(source, to) for source in numbers)]
    return mod.with_attr(_SHARED, shared) if shared else mod


@tvm.transform.module_pass(opt_level=0, name="ShareMemory")
@dataclass(frozen=True)
class ShareMemory:
    """Give a value a second name in place of a copy to a device that shares its memory.

    before: ``R.to_vdevice(x, "llvm:1")``    after: ``R.call_packed("collage.runtime.to_cpu", x, 1)``

    Runs behind TVM's memory planner, which never gives the memory of an operand of ``R.to_vdevice`` to another value.
    That of an operand of a packed function it does.
    """

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        shared = {int(number) for number in (mod.attrs or {}).get(_SHARED, ())}
        if not shared:
            return mod
        table = DeviceTable(mod)

        def changed(call: relax.Call) -> relax.Call:
            device = call.attrs.dst_vdevice if op_name(call) == COPY else None
            if device is None or table.index(device) not in shared:
                return call
            arguments: list[Any] = [call.args[0], tirx.IntImm("int64", int(device.vdevice_id))]
            return relax.Call(relax.ExternFunc(TO_CPU), arguments, ty_args=[call.ty], ret_ty=call.ty)

        functions: dict[ir.GlobalVar, ir.BaseFunc] = {
            gvar: tvm_ffi.structural_map(func, (relax.Call, changed))
            if isinstance(func, relax.Function)
            else func
            for gvar, func in mod.functions_items()
        }
        return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
