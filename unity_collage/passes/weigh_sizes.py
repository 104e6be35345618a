"""WeighSizes: give kernels with free sizes a cost at each sample size, and the weighted sum to the search.

Reads    ``collage.range``, from MakeVariants; ``collage.candidates`` and ``collage.costs``, also those of variants.
Writes   ``collage.costs`` of functions with a range: the costs at each sample, and their weighted sums.
Keeps    every binding: this pass changes attributes only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import tvm
from tvm import ir, relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS
from ..cost.asking import skipped
from ..cost.expected import with_expected
from ..cost.lazy import Search, lazily
from ..cost.model import CostModel, Workload
from ..cost.over_sizes import CostOverSizes, Sample, asked_at
from ..graph import DataflowGraph
from ..graph.variants import is_switch, like_of, range_of, sizes_of
from ..measure.measured import MeasuredCost
from ..plan.candidate import VIEW
from ..plan.costs import EXPECTED, NOT_NEEDED, UNKNOWN, Cost, Costs
from ..plan.problem import problem_of
from ..plan.ranges import named
from ..search import NoCover, Problem
from ..search.auto import solve

MOST = 10
"""The most samples at which kernels are measured."""


@tvm.transform.module_pass(opt_level=0, name="collage.WeighSizes")
@dataclass(frozen=True)
class WeighSizes:
    """Choose the plan of a function with free sizes by its expected cost, not by that of one size.

    First the kernels of the plan for the middle size are measured at each sample: those without a variant come first,
    since only this plan runs there. If there is no time for a sample, it is left out, and the plan names it. Then the
    search measures what can still change the plan. The pass is the last one that asks for costs, so it may take all
    time that is left.
    """

    model: CostModel = field(default_factory=MeasuredCost)
    """The cost model of EstimateCosts."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        with self.model.finishing():
            functions = {gvar: self._weighed(func, mod) for gvar, func in mod.functions_items()}
        return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)

    def _weighed(self, func: ir.BaseFunc, mod: IRModule) -> ir.BaseFunc:
        if (
            not isinstance(func, relax.Function)
            or not COSTS.on(func)
            or is_switch(func)
            or not range_of(func)
        ):
            return func
        costs = COSTS.read(func)
        if (
            not costs.keys
            or costs.samples
            or any(cost.origin == NOT_NEEDED for cost in costs.by_key.values())
        ):
            return func
        if costs.copies:
            return skipped(func, "the plan is weighed at one size only: its costs by device are given")
        kernels = _kernels(func, costs)
        if not kernels:
            return func
        taken, beyond = spread(range_of(func), like_of(func))
        asked = {number: asked_at(func, sizes, self.model, mod) for number, (sizes, _) in enumerate(taken)}
        known = [
            _known_at(func, mod, sizes, self.model, asked[number]) for number, (sizes, _) in enumerate(taken)
        ]
        own = [_full_sizes(other) for other in mod.functions.values() if isinstance(other, relax.Function)]
        first = sorted(asked, key=lambda number: taken[number][0] in own)
        measured, late = self._with_time(kernels, {number: asked[number] for number in first}, known)
        notes = _notes([sizes for sizes, _ in beyond], [taken[number][0] for number in late])
        if len(measured) < 2:
            func = skipped(func, "the plan is weighed at one size only")
        else:
            total = sum(taken[number][1] for number in measured)
            samples = [
                Sample(taken[number][0], taken[number][1] / total, asked[number], known[number])
                for number in measured
            ]
            func = self._over(func, costs, samples)
        for note in notes:
            func = skipped(func, note)
        return func

    def _with_time(
        self,
        kernels: Sequence[int],
        asked: Mapping[int, Mapping[int, Workload]],
        known: list[dict[str, Cost]],
    ) -> tuple[list[int], list[int]]:
        """The numbers of the samples at which these candidates could be measured, and of those without time for it.

        Samples are ``asked`` in this order. What was measured is added to ``known``.
        """
        measured: list[int] = []
        late: list[int] = []
        for number, questions in asked.items():
            missing = [questions[id_] for id_ in kernels if questions[id_].key not in known[number]]
            found = self.model.costs(list({each.key: each for each in missing}.values())) if missing else {}
            known[number] |= {key: cost for key, cost in found.items() if cost.origin != UNKNOWN}
            (late if any(cost.origin == UNKNOWN for cost in found.values()) else measured).append(number)
        return sorted(measured), sorted(late)

    def _over(self, func: relax.Function, costs: Costs, samples: Sequence[Sample]) -> relax.Function:
        graph, candidates = DataflowGraph(func), CANDIDATES.read(func)
        model = CostOverSizes(self.model, samples)

        def make(weighed: Costs) -> Problem:
            return problem_of(graph, candidates, replace(weighed, samples=model.frame()))

        try:
            found = lazily(func, model.asked, model, Search(make))
            found = with_expected(func, found, model.asked, model, make)
        except NoCover:
            return skipped(func, "the plan is weighed at one size only: no plan has kernels for all sizes")
        return COSTS.write(func, replace(model.of_samples(found), skipped=(*costs.skipped, *found.skipped)))


Weighted = tuple[dict[str, int], float]
"""Sizes, and their weight."""


def spread(
    samples: Sequence[Weighted], like: Mapping[str, int], most: int = MOST
) -> tuple[list[Weighted], list[Weighted]]:
    """At most ``most`` of the samples, evenly spread, the ends and ``like`` among them; and the others."""
    if len(samples) <= most:
        return list(samples), []
    places = {round(place * (len(samples) - 1) / (most - 1)) for place in range(most)}
    middle = next((number for number, (sizes, _) in enumerate(samples) if sizes == dict(like)), None)
    if middle is not None and middle not in places:
        places.remove(min(places - {0, len(samples) - 1}, key=lambda place: abs(place - middle)))
        places.add(middle)
    taken = [sample for number, sample in enumerate(samples) if number in places]
    return taken, [sample for number, sample in enumerate(samples) if number not in places]


def _kernels(func: relax.Function, costs: Costs) -> list[int]:
    """The candidates in the cheapest plan at the size at which all are measured; empty where there is none."""
    try:
        solution = solve(problem_of(DataflowGraph(func), CANDIDATES.read(func), costs))
    except NoCover:  # SearchPartition says why
        return []
    return [option.id for option in solution.chosen if option.backend != VIEW]


def _known_at(
    func: relax.Function,
    mod: IRModule,
    sizes: Mapping[str, int],
    model: CostModel,
    asked: Mapping[int, Workload],
) -> dict[str, Cost]:
    """Known costs at ``sizes`` by key: those of the variant, then those of ``func`` at its own size."""
    known: dict[str, Cost] = {}
    keys = {workload.key for workload in asked.values()}
    for other in mod.functions.values():
        if isinstance(other, relax.Function) and COSTS.on(other) and _full_sizes(other) == dict(sizes):
            found = COSTS.read(other).by_key
            known |= {key: found[key] for key in keys & found.keys() if _is_sure(found[key])}
    if like_of(func) == dict(sizes):
        costs = COSTS.read(func)
        for id_, workload in asked.items():
            if _is_sure(cost := costs.of(id_)):
                known.setdefault(workload.key, cost)
    return dict(sorted(known.items()))


def _is_sure(cost: Cost) -> bool:
    return not cost.is_open and cost.origin not in (EXPECTED, NOT_NEEDED)


def _full_sizes(func: relax.Function) -> dict[str, int]:
    """The sizes of a variant, and those at which it is measured along dimensions that it leaves open."""
    return {**like_of(func), **sizes_of(func)} if sizes_of(func) else {}


def _notes(beyond: Sequence[Mapping[str, int]], late: Sequence[Mapping[str, int]]) -> list[str]:
    """Which samples have no part in the expected cost, and why."""
    found: list[str] = []
    if beyond:
        found.append(f"not weighed, since kernels are measured at {MOST} sizes at most: {_listed(beyond)}")
    if late:
        found.append(f"not weighed, since there was no time to measure there: {_listed(late)}")
    return found


def _listed(sizes: Sequence[Mapping[str, int]]) -> str:
    return "; ".join(named(each) for each in sizes)
