"""MergeCopies: remove copies between devices that give nothing new.

Reads    ``R.to_vdevice`` and the VDevices of types, from PlanDevices; ``collage.devices`` for memory that is shared;
         ``collage.freely_placed`` for what may be computed elsewhere.
Writes   fewer ``R.to_vdevice``, and element-wise operators on the device that reads their result.
Keeps    numbers and the types of results; functions that change memory in place, where a copy keeps an old value.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.ir import IRModule

from ..devices.copies import merged


@tvm.transform.module_pass(opt_level=0, name="collage.MergeCopies")
@dataclass(frozen=True)
class MergeCopies:
    """One copy for each value and destination, none there and back, and copies moved over element-wise operators.

    A copy moves over operators that no annotation has placed, where the copies become fewer and none larger. Copies
    within one memory stay, for types need them; they move nothing, so other copies start from them.
    """

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        return merged(mod)
