"""CorrectCosts: where a kernel of the plan takes far more in the running program than it costs, that is its cost.

Reads    ``collage.candidates``, from AnnotateCandidates; ``collage.costs``, from EstimateCosts.
Writes   ``collage.costs``, with other costs for some of the kernels.
Keeps    every binding: this pass changes attributes only.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import tvm
from tvm.ir import IRModule

from ..annotations import COSTS
from ..cost.asking import skipped
from ..cost.model import Capability, CostModel
from ..database.rows import digest
from ..errors import CollageError
from ..feedback.corrections import corrected_costs
from ..feedback.observed import with_costs
from ..measure.measured import MeasuredCost
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
    """Run the plan of the search kernel by kernel, and search again without costs that do not hold.

    A kernel is measured alone, on tensors that the harness has made. In the program it may be another one: a library
    that keeps what it has generated under too short a key, an input whose memory lies otherwise. Such a cost is not
    noise but wrong by a factor, and only the running program can tell. So the plan's program runs kernel by kernel in a
    process of its own; what a kernel takes there becomes its cost where the two are far apart (what the machine is
    slower as a whole is taken out), and the search is asked again, until no such kernel is in its plan. If that program
    is not faster than the first one, all costs stay.

    This builds programs, so it is not part of the pipeline unless asked for; ``compile`` asks where a finished program
    takes far longer than its kernels cost. What came of it is kept with the costs. Where the cost model cannot run
    programs, or the program cannot be run here and now, costs stay, and the plan says so.
    """

    model: CostModel = field(default_factory=MeasuredCost)
    """The one that EstimateCosts has asked."""
    programs: int = 4
    """How many are built at most."""

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
                "the kernels of the running program",
                lambda: {key: asdict(cost) for key, cost in self._corrected(mod).items()},
            )
        except CollageError as error:  # it may be possible next time
            warnings.warn(f"costs are not compared with the running program: {error}", stacklevel=2)
            return mod
        return with_costs(mod, {key: Cost(**cost) for key, cost in (found or {}).items()})

    def _corrected(self, mod: IRModule) -> Mapping[str, Cost]:
        return corrected_costs(mod, _final, current_target(), self.programs)


def _final(costed: IRModule) -> IRModule:
    """The final module for these costs; kernels that SearchPartition would merge stay apart, and have costs."""
    return tvm.transform.Sequential([SearchPartition(), OffloadBYOC(), FuseRemaining()])(costed)


def _name(mod: IRModule, costs: Costs) -> str:
    """Under which the result is kept."""
    asked = sorted((key, cost.seconds) for key, cost in costs.by_key.items())
    return f"corrected {digest(json.dumps([program_digest(mod), asked, sorted(costs.keys.items())]))}"


def _skipped(mod: IRModule, reason: str) -> IRModule:
    functions = dict(mod.functions_items())
    functions[mod.get_global_var("main")] = skipped(mod["main"], reason)
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
