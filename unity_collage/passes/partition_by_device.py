"""PartitionByDevice: make a private function of each region of one device.

Reads    the VDevices of types, from PlanDevices; literals have none and are where they are read.
Writes   private functions with the attributes ``target`` and ``collage.device``, and their calls; copies between
         devices stay in the caller.
Keeps    what is computed, functions of backends, and functions that are on one device by an attribute already.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.ir import IRModule

from ..devices.partition import PROJECTIONS, partitioned
from ..errors import CollageError, with_names


@tvm.transform.module_pass(opt_level=0, name="collage.PartitionByDevice")
@dataclass(frozen=True)
class PartitionByDevice:
    """Bindings of one device that are neighbours in a dataflow block become one function, in branches too.

    A region is convex: nothing that it reads depends on what it writes, so the calls have an order. Equal regions share
    one function.
    """

    projection: str = "device"
    """What a region has in common: ``device`` (target and id), ``vdevice`` (also the memory scope), or ``target``."""

    def __post_init__(self) -> None:
        if self.projection not in PROJECTIONS:
            text = f"{self.projection!r} is not a part of a VDevice that regions can share"
            raise CollageError(with_names(text, self.projection, PROJECTIONS))

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        return partitioned(mod, self.projection)
