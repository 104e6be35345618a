"""CorrectCosts: replace the cost of a kernel that takes far longer in the running program.

Reads    ``collage.candidates``, from AnnotateCandidates; ``collage.costs``, from EstimateCosts.
Writes   ``collage.costs``, with other costs for some of the kernels.
Keeps    every binding: this pass changes attributes only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import tvm
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS
from ..cost.asking import skipped
from ..cost.model import Capability, CostModel
from ..database.rows import digest
from ..errors import CollageError, warn
from ..feedback.corrections import corrected_costs
from ..feedback.observed import with_costs
from ..measure.measured import MeasuredCost
from ..plan.candidate import VIEW
from ..plan.costs import Cost, Costs
from ..profile.digest import program_digest
from ..profile.inputs import why_not_runnable
from ..target import current_target
from .fuse_remaining import FuseRemaining
from .offload_byoc import OffloadBYOC
from .search_partition import SearchPartition


@tvm.transform.module_pass(opt_level=0, name="collage.CorrectCosts")
@dataclass(frozen=True)
class CorrectCosts:
    """Run the program of the plan kernel by kernel, and search again without costs that do not hold.

    A kernel is measured alone, on tensors of the measuring process. In the program it may behave differently: a library
    may cache generated code under too short a key, or an input may lie elsewhere in memory. Then the cost is wrong by a
    factor, which only the running program shows. So the program runs kernel by kernel in a process of its own. Where a
    kernel takes far longer there, that becomes its cost, after the machine's overall slowdown is taken off. The plan is
    searched again until it has no such kernel. If the last program is not faster than the first one, no cost changes.

    The pass builds programs, so the pipeline contains it only on request: ``compile`` asks for it when a finished
    program takes far longer than its kernels cost. The result is stored in the database of costs. Where the cost model
    cannot run programs, or this program cannot be run here, no cost changes, and the plan says so.
    """

    model: CostModel = field(default_factory=MeasuredCost)
    """The cost model of EstimateCosts."""
    programs: int = 4
    """The most programs that are built."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        reason = why_not_runnable(mod)
        if reason is not None or not COSTS.on(mod["main"]):
            return mod
        if reason := self.model.why_not(Capability.RUN_PROGRAMS):
            return _skipped(mod, f"costs are not compared with the running program: {reason}")
        costs = COSTS.read(mod["main"])
        try:
            found = self.model.known_or_measured(
                _name(mod, costs),
                {candidate.backend for candidate in CANDIDATES.read(mod["main"])} - {VIEW},
                "the kernels of the running program",
                lambda: {key: asdict(cost) for key, cost in self._corrected(mod).items()},
            )
        except CollageError as error:  # the failure is not stored: the next run may succeed
            warn(f"costs are not compared with the running program: {error}")
            return mod
        return with_costs(mod, {key: Cost(**cost) for key, cost in (found or {}).items()})

    def _corrected(self, mod: IRModule) -> Mapping[str, Cost]:
        return corrected_costs(mod, _final, current_target(), self.programs)


def _final(costed: IRModule) -> IRModule:
    """The final module for these costs. SearchPartition merges no kernels here, so that all have costs."""
    return tvm.transform.Sequential([SearchPartition(), OffloadBYOC(), FuseRemaining()])(costed)


def _name(mod: IRModule, costs: Costs) -> str:
    """The name of the fact that stores the result."""
    asked = sorted((key, cost.seconds) for key, cost in costs.by_key.items())
    return f"corrected {digest(json.dumps([program_digest(mod), asked, sorted(costs.keys.items())]))}"


def _skipped(mod: IRModule, reason: str) -> IRModule:
    functions = dict(mod.functions_items())
    functions[mod.get_global_var("main")] = skipped(mod["main"], reason)
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
