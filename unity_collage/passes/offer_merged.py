"""OfferMerged: offer adjacent kernels of the cheapest plan as one, where their backend can run them in one call.

Reads    ``collage.candidates``; ``collage.costs``.
Writes   both: merged candidates, and their costs.
Keeps    every binding: this pass changes attributes only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import tvm
from tvm import ir, relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS
from ..backends.merging import merged_candidates
from ..cost.asking import workloads
from ..cost.model import CostModel
from ..graph import DataflowGraph
from ..measure.measured import MeasuredCost
from ..plan.problem import problem_of
from ..search import NoCover
from ..search.auto import solve


@tvm.transform.module_pass(opt_level=0, name="collage.OfferMerged")
@dataclass(frozen=True)
class OfferMerged:
    """Offer each two touching kernels of the plan as one candidate; SearchPartition decides by its cost.

    All pairs of kernels would be too many candidates. A plan without these pairs is only found if they pay.
    """

    model: CostModel = field(default_factory=MeasuredCost)
    """The cost model of EstimateCosts."""
    redundant: bool = True
    """The option that SearchPartition has."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        functions = {gvar: self._offered(func) for gvar, func in mod.functions_items()}
        return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)

    def _offered(self, func: ir.BaseFunc) -> ir.BaseFunc:
        if not isinstance(func, relax.Function) or not COSTS.on(func):
            return func
        graph, known, costs = DataflowGraph(func), CANDIDATES.read(func), COSTS.read(func)
        try:
            solution = solve(problem_of(graph, known, costs, self.redundant))
        except NoCover:  # SearchPartition says why
            return func
        chosen = {option.id for option in solution.chosen}
        plan = [candidate for candidate in known if candidate.id in chosen]
        merged = merged_candidates(graph, plan, first_id=1 + max((c.id for c in known), default=0))
        if not merged:
            return func
        asked = workloads(CANDIDATES.write(func, tuple(merged)), self.model)
        by_key = {**costs.by_key, **self.model.costs(list(asked.values()))}
        keys = {**costs.keys, **{candidate: workload.key for candidate, workload in asked.items()}}
        more = replace(costs, by_key=by_key, keys=keys)
        return COSTS.write(CANDIDATES.write(func, (*known, *merged)), more)
