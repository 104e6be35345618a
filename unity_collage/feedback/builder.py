"""Maker: from plans to programs."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from ..lowering.build import build, link, lower
from ..passes.apply_plan import ApplyPlan
from ..passes.fuse_remaining import FuseRemaining
from ..passes.offload_byoc import OffloadBYOC
from ..profile import InsertTicks, ticked_kernels
from .entrants import Plan

Made = tuple[IRModule, relax.VMExecutable]
"""A final module and its program."""


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes programs."""

    priced: IRModule
    imported: IRModule
    target: Target

    def planned(self, plan: Plan, origin: str) -> Made:
        """The final module of a plan, and its program."""
        with self.target:
            passes = tvm.transform.Sequential([ApplyPlan(plan, origin), OffloadBYOC(), FuseRemaining()])
            mod = passes(self.priced)
        return mod, build(mod, self.target)

    def stock(self) -> Made:
        """What TVM makes of the model alone."""
        return self.imported, relax.build(self.imported, self.target)

    def ticking(self, mod: IRModule) -> tuple[list[str], relax.VMExecutable]:
        """The kernels that a final module calls, and its program with a clock between them."""
        lowered = lower(mod, self.target)
        return ticked_kernels(lowered["main"]), link(InsertTicks()(lowered), self.target)
