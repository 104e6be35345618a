"""ConfirmCosts: measure the kernels that may be in the plan once more, all in turns.

Reads    ``collage.candidates``, from AnnotateCandidates; ``collage.costs``, from EstimateCosts.
Writes   ``collage.costs``, with other costs for some of the kernels.
Keeps    every binding: this pass changes attributes only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import tvm
from tvm import relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS
from ..cost.asking import skipped, workloads
from ..cost.model import Capability, CostModel
from ..cost.shares import with_shares
from ..graph import DataflowGraph, members
from ..measure.measured import MeasuredCost
from ..plan.costs import EXPECTED, Cost
from ..plan.problem import problem_of
from ..search import NoCover, Problem, best_throughs, quick

_MOST = 256
"""The most kernels that are timed in one session."""
_CONTRADICTION = 1.3
"""Costs are doubted if a kernel costs more than this many times a kernel that computes all that it does and more."""


@tvm.transform.module_pass(opt_level=0, name="collage.ConfirmCosts")
@dataclass(frozen=True)
class ConfirmCosts:
    """Measure a kernel, its parts and its near rivals in the same minutes.

    EstimateCosts times kernels for the same operators in turns, but a fused kernel and its parts minutes apart. On a
    shared machine their costs may then be off by half, and the plan depends on the difference. Also, the lowest of
    many noisy costs are mostly too low. So the kernels of the cheapest plan and those near it are timed again, all
    together. Then the plan is searched again, until no new kernels appear.

    Contradictions are timed again too: a kernel that costs much more than a kernel of the same backend that contains
    it. Otherwise a cost that is too high by accident would never come near the plan. If all kernels together became
    faster or slower, the machine did. So the new costs are scaled to the level of the old ones.

    Where the cost model cannot confirm costs (a formula cannot), costs do not change, and the plan says so.
    """

    model: CostModel = field(default_factory=MeasuredCost)
    """The cost model of EstimateCosts."""
    margin: float = 0.25
    """A kernel is near the plan if the best plan with it costs at most this part of the kernel's cost more."""
    sessions: int = 2
    """The most sessions in which kernels are timed."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        return with_shares(mod, self.model, lambda func: self._confirmed(func, mod))

    def _confirmed(self, func: tvm.ir.BaseFunc, mod: IRModule) -> tvm.ir.BaseFunc:
        if not isinstance(func, relax.Function) or not COSTS.on(func):
            return func
        if reason := self.model.why_not(Capability.CONFIRM):
            return skipped(func, f"costs are not confirmed: {reason}")
        asked = {workload.key: workload for workload in workloads(func, self.model, mod).values()}
        graph, candidates = DataflowGraph(func), CANDIDATES.read(func)
        estimated = confirmed = COSTS.read(func)
        timed: set[str] = set()
        for _ in range(self.sessions):
            try:
                problem = problem_of(graph, candidates, confirmed)
                near = contenders(problem, confirmed.keys, self.margin, doubted=contradicting(problem))
            except NoCover:  # SearchPartition says why
                break
            near = [key for key in near if key in asked]  # kernels with tuned schedules are not asked for
            if len(near) < 2 or timed.issuperset(near):
                break
            timed.update(near)
            found = self.model.confirmed_in(list(asked.values()), [asked[key] for key in sorted(timed)])
            if not found:
                break
            confirmed = replace(estimated, by_key={**estimated.by_key, **levelled(found, estimated.by_key)})
        return COSTS.write(func, confirmed)


def contradicting(problem: Problem) -> list[int]:
    """Ids of options that cost much more than an option of their backend with one node more, and of the latter."""
    by_nodes = {(option.backend, option.inside): option for option in problem.options if not option.hidden}
    found: dict[int, None] = {}
    for (backend, inside), wider in by_nodes.items():
        for index in members(inside):
            option = by_nodes.get((backend, inside & ~(1 << index)))
            if option is not None and option.seconds > _CONTRADICTION * wider.seconds:
                found |= {option.id: None, wider.id: None}
    return list(found)


def contenders(
    problem: Problem,
    keys: Mapping[int, str],
    margin: float,
    most: int = _MOST,
    doubted: Sequence[int] = (),
) -> list[str]:
    """Keys of the kernels in the cheapest plan, then of the ``doubted`` options, then of those near the plan.

    The result is empty if only the kernels of the plan would be in it. ``keys``: the cost key of each option, by id.
    Raises NoCover.
    """
    chosen, near = plan_and_near(problem, keys, margin)
    near = [*(keys[id_] for id_ in doubted), *near]
    if set(chosen).issuperset(near):
        return []
    return list(dict.fromkeys([*chosen, *near]))[:most]


def plan_and_near(problem: Problem, keys: Mapping[int, str], margin: float) -> tuple[list[str], list[str]]:
    """Keys of the kernels in the cheapest plan, and of all kernels near it, nearest first.

    ``keys``: the cost key of each option, by id. Raises NoCover.
    """
    best = quick(problem)
    # A plan with a kernel costs at least as much as the kernel, so one that is near costs at most this much.
    most = best.seconds / (1 - margin) if margin < 1 else math.inf
    cost = {option.id: cost for option in problem.options if 0.0 < (cost := problem.cost(option)) <= most}
    reach = 1.001 * margin * max(cost.values(), default=0.0)
    throughs = best_throughs(problem, best.seconds, within=best.seconds + reach)
    chosen = [keys[option.id] for option in best.chosen]
    distance = {id_: (throughs[id_].seconds - best.seconds) / cost[id_] for id_ in cost if id_ in throughs}
    return chosen, [
        keys[id_] for id_ in sorted(distance, key=distance.__getitem__) if distance[id_] <= margin
    ]


def levelled(found: Mapping[str, Cost], before: Mapping[str, Cost]) -> dict[str, Cost]:
    """The costs ``found``, scaled to the level of the costs ``before`` by the median of the ratios.

    Ratios are weighted by seconds: short kernels are slower in turns with many others, which is not a change of the
    machine.
    """
    measured = {key: cost.seconds for key, cost in before.items() if cost.origin != EXPECTED}
    pairs = [(cost.seconds, measured.get(key)) for key, cost in found.items()]
    known = [(old / new, old) for new, old in pairs if new and old]
    level = 1.0
    if known:
        ratios, weights = zip(*known, strict=True)
        level = float(np.quantile(ratios, 0.5, weights=weights, method="inverted_cdf"))
    return {
        key: replace(cost, seconds=cost.seconds * level, low=cost.low * level, high=cost.high * level)
        for key, cost in found.items()
        if cost.seconds is not None
    }
