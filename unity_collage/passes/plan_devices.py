"""PlanDevices: give each tensor a target, a device and a memory scope, and copy where values cross.

Reads    ``R.hint_on_device``, ``R.to_vdevice``, VDevices of types, targets and buffers of PrimFuncs, and the attributes
         ``target`` and ``collage.device`` of functions; ``collage.devices`` and ``collage.freely_placed`` of an earlier
         plan.
Writes   the VDevice of every tensor type, ``R.to_vdevice`` where values cross, ``collage.devices`` for names, and
         ``collage.freely_placed`` for what no annotation has placed.
Keeps    what is computed, and every annotation except the hints: the types now say where values are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm.ir import IRModule

from ..devices.planning import planned
from ..devices.table import Named


@tvm.transform.module_pass(opt_level=0, name="collage.PlanDevices")
@dataclass(frozen=True)
class PlanDevices:
    """Values that one operator reads and writes are on one device, through calls, branches and tuples.

    A hint places its result alone; what computes its operand may be elsewhere, and a copy follows. What no annotation
    places is on ``default``. Raises CollageError where two annotations disagree.
    """

    targets: Sequence[Named] | Mapping[str, Named] | None = None
    """The devices that may be used, by priority, or by names for messages; None: the VDevices of the module."""
    default: Named | None = None
    """The device of values that no annotation places.

    None: the first device, of equal ones that with the fewest tools.
    """
    host: Named | None = None
    """Where shapes and conditions are; None: the first CPU of ``targets``, or the host of the first target."""
    memories: Mapping[str, str] | None = None
    """The name of the memory behind the global scope of each device, by the device's name or label: within one memory
    a program copies nothing. CPUs without a name share one.
    """

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        return planned(mod, self.targets, self.default, self.host, self.memories)
