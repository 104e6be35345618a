"""ConfirmCosts: measure what may be in the plan once more, all of it in turns.

Reads    ``collage.candidates``, from AnnotateCandidates; ``collage.costs``, from EstimateCosts.
Writes   ``collage.costs``, with other costs for some of the kernels.
Keeps    every binding: this pass changes attributes only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import tvm
from tvm import relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS
from ..cost.asking import skipped, workloads
from ..cost.model import Capability, CostModel
from ..graph import DataflowGraph, members
from ..measure.measured import MeasuredCost
from ..plan.costs import Cost
from ..plan.problem import problem_of
from ..search import NoCover, Problem, best_throughs, cheapest_cover

_MOST = 256
"""Kernels in one session."""
_CONTRADICTION = 1.3
"""By so much a kernel is more expensive than one that computes all that it does and more, if a cost must be wrong."""


@tvm.transform.module_pass(opt_level=0, name="collage.ConfirmCosts")
@dataclass(frozen=True)
class ConfirmCosts:
    """Give a kernel, its parts and its near rivals costs of one and the same minutes.

    EstimateCosts times kernels for the same operators in turns, but a fused kernel and those that it could be split
    into minutes apart: on a shared machine they may differ by a half by then, and the plan is made of the
    difference. And of many costs with noise the lowest are those that the noise made low. So the kernels of the
    cheapest plan and those that nearly are in it are timed once more, together, and the search is asked again,
    until no new ones come up. Timed once more is also what contradicts itself: a kernel that is much more expensive than
    one of its backend that contains it, since a cost that is too high by accident is never near the plan. The
    costs stay at the level of the others: what all kernels together became faster or slower by is the machine.

    Where the cost model cannot do that, a formula for instance, costs stay, and the plan says so.
    """

    model: CostModel = field(default_factory=MeasuredCost)
    """The one that EstimateCosts has asked."""
    margin: float = 0.25
    """Nearly in the plan is a kernel if the best plan with it costs more by so much of the kernel's cost at most."""
    sessions: int = 2
    """So often kernels are timed at most."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        functions = {gvar: self._confirmed(func) for gvar, func in mod.functions_items()}
        return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)

    def _confirmed(self, func: tvm.ir.BaseFunc) -> tvm.ir.BaseFunc:
        if not isinstance(func, relax.Function) or not COSTS.on(func):
            return func
        if reason := self.model.why_not(Capability.CONFIRM):
            return skipped(func, f"costs are not confirmed: {reason}")
        asked = {workload.key: workload for workload in workloads(func, self.model).values()}
        graph, candidates = DataflowGraph(func), CANDIDATES.read(func)
        estimated = confirmed = COSTS.read(func)
        timed: set[str] = set()
        for _ in range(self.sessions):
            try:
                problem = problem_of(graph, candidates, confirmed)
                near = contenders(problem, confirmed.keys, self.margin, doubted=contradicting(problem))
            except NoCover:  # SearchPartition says why
                break
            near = [key for key in near if key in asked]  # others have tuned schedules
            if len(near) < 2 or timed.issuperset(near):
                break
            timed.update(near)
            found = self.model.confirmed([asked[key] for key in sorted(timed)])
            if not found:
                break
            confirmed = replace(estimated, by_key={**estimated.by_key, **levelled(found, estimated.by_key)})
        return COSTS.write(func, confirmed)


def contradicting(problem: Problem) -> list[int]:
    """Ids of options that are much more expensive than another of their backend with one node more, and of those others."""
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
    """Keys of the kernels in the cheapest plan, then of the ``doubted`` options and of those nearest to it; none where
    all is decided.

    ``keys`` are those of the options by id. Raises NoCover.
    """
    chosen, near = plan_and_near(problem, keys, margin)
    near = [*(keys[id_] for id_ in doubted), *near]
    if set(chosen).issuperset(near):
        return []
    return list(dict.fromkeys([*chosen, *near]))[:most]


def plan_and_near(problem: Problem, keys: Mapping[int, str], margin: float) -> tuple[list[str], list[str]]:
    """Keys of the kernels in the cheapest plan, and of all with which the best plan is nearly as cheap, nearest first.

    ``keys`` are those of the options by id. Raises NoCover.
    """
    best = cheapest_cover(problem)
    throughs = best_throughs(problem, best.seconds)
    chosen = [keys[option.id] for option in best.chosen]
    distance = {
        option.id: (throughs[option.id].seconds - best.seconds) / problem.cost(option)
        for option in problem.options
        if option.id in throughs and problem.cost(option) > 0.0
    }
    return chosen, [
        keys[id_] for id_ in sorted(distance, key=distance.__getitem__) if distance[id_] <= margin
    ]


def levelled(found: Mapping[str, Cost], before: Mapping[str, Cost]) -> dict[str, Cost]:
    """The costs ``found``, by key, on the level of those ``before``: the median of their ratios is taken out.

    Each counts by its seconds. Short kernels are slower among many others, whose code and branches they share the
    core with, than among their few rivals, and that is no change of the machine.
    """
    pairs = [(cost.seconds, before[key].seconds) for key, cost in found.items()]
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
