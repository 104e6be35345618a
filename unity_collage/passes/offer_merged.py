"""OfferMerged: offer adjacent kernels of the cheapest plan as one, where their backend can run them in one call.

Reads    ``collage.candidates``; ``collage.costs``.
Writes   both: merged candidates, and their costs.
Keeps    every binding: this pass changes attributes only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import tvm
from tvm import ir, relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS
from ..backends.merging import Merge, merges
from ..backends.registry import get
from ..cost.asking import workloads
from ..cost.model import CostModel
from ..cost.shares import with_shares
from ..graph import DataflowGraph
from ..lowering.kernel_sizes import why_not_sized
from ..measure.measured import MeasuredCost
from ..plan.candidate import Candidate
from ..plan.costs import Costs
from ..plan.problem import problem_of
from ..search import NoCover
from ..search.auto import solve


@tvm.transform.module_pass(opt_level=0, name="collage.OfferMerged")
@dataclass(frozen=True)
class OfferMerged:
    """Offer each two touching kernels of the plan as one candidate; SearchPartition decides by its cost.

    Two kernels that cost no more as one are also offered with a third. If the plan has merged kernels then, they are
    merged again, until nothing gains. All pairs of kernels would be too many candidates.
    """

    model: CostModel = field(default_factory=MeasuredCost)
    """The cost model of EstimateCosts."""
    redundant: bool = True
    """The option that SearchPartition has."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        return with_shares(mod, self.model, lambda func: self._offered(func, mod))

    def _offered(self, func: ir.BaseFunc, mod: IRModule) -> ir.BaseFunc:
        if not isinstance(func, relax.Function) or not COSTS.on(func):
            return func
        graph, given, costs = DataflowGraph(func), CANDIDATES.read(func), COSTS.read(func)
        known = given
        plan = self._plan(graph, known, costs)
        near: list[Candidate] = []
        while plan is not None and (new := _new(_sized(merges(graph, plan, near)), known)):
            known = (*known, *new)
            costs = self._costed(func, mod, list(new), costs)
            before, plan = plan, self._plan(graph, known, costs)
            near = _near(new, before, costs)
            if plan == before and not near:
                break
        return func if known == given else COSTS.write(CANDIDATES.write(func, known), costs)

    def _plan(self, graph: DataflowGraph, known: Sequence[Candidate], costs: Costs) -> list[Candidate] | None:
        """The kernels of the cheapest plan; None if there is no plan, which SearchPartition reports."""
        try:
            solution = solve(problem_of(graph, known, costs, self.redundant))
        except NoCover:
            return None
        chosen = {option.id for option in solution.chosen}
        return [candidate for candidate in known if candidate.id in chosen]

    def _costed(
        self, func: relax.Function, mod: IRModule, merged: Sequence[Candidate], costs: Costs
    ) -> Costs:
        """``costs`` with those of ``merged``."""
        asked = workloads(CANDIDATES.write(func, tuple(merged)), self.model, mod)
        by_key = {**costs.by_key, **self.model.costs(list(asked.values()))}
        keys = {**costs.keys, **{candidate: workload.key for candidate, workload in asked.items()}}
        return replace(costs, by_key=by_key, keys=keys)


def _sized(found: Sequence[Merge]) -> list[Merge]:
    """The merges that get all their sizes from operands and results; a size between two parts may be in neither."""
    return [merge for merge in found if why_not_sized(merge.whole, get(merge.upper.backend)) is None]


def _new(found: Sequence[Merge], known: Sequence[Candidate]) -> dict[Candidate, Merge]:
    """The merges that are not among the ``known`` candidates, by their candidates."""
    there = {(c.backend, c.indexes, c.hidden, c.threads) for c in known}
    first = 1 + max((c.id for c in known), default=0)
    made = {merge.candidate(number): merge for number, merge in enumerate(found, first)}
    return {c: m for c, m in made.items() if (c.backend, c.indexes, c.hidden, c.threads) not in there}


def _near(new: Mapping[Candidate, Merge], plan: Sequence[Candidate], costs: Costs) -> list[Candidate]:
    """The pairs of kernels of ``plan`` that cost no more than both. With a third kernel they may gain."""
    return [
        candidate
        for candidate, (upper, lower, _) in new.items()
        if upper in plan and lower in plan and _saved(candidate, upper, lower, costs) >= 0.0
    ]


def _saved(merged: Candidate, upper: Candidate, lower: Candidate, costs: Costs) -> float:
    """The seconds that the merged kernel saves, one launch included."""
    whole, *parts = (costs.of(candidate.id).seconds for candidate in (merged, upper, lower))
    if whole is None:
        return -math.inf
    launch = costs.launches.get(merged.backend, costs.launch_seconds)
    return sum(part or 0.0 for part in parts) + launch - whole
