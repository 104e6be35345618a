"""Siblings: variants of a function for other sizes, from which the cost of a candidate is predicted.

A kernel that reached a third of its lower bound at one size is expected to do so at another. This is not a bound. It
only decides what is measured first, so that there is a plan of measured kernels when the time is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tvm import relax
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS
from ..graph import DataflowGraph
from ..plan.candidate import VIEW, Candidate
from ..plan.costs import EXPECTED
from .asking import workloads
from .model import CostModel, Workload


def expected_costs(
    func: relax.Function, siblings: Iterable[relax.Function], model: CostModel, mod: IRModule | None = None
) -> dict[str, float]:
    """The seconds that are expected of candidates of ``func``, by key, from functions with ``collage.costs``.

    A function with other operators is not a sibling. If several have measured a candidate, the last one counts.
    """
    there = [sibling for sibling in siblings if COSTS.on(sibling)]
    own = _operators(func) if there else []
    related = [sibling for sibling in there if _operators(sibling) == own]
    if not related:
        return {}
    asked = workloads(func, model, mod)
    bounds = model.lower_bounds(list({workload.key: workload for workload in asked.values()}.values()))
    ratios: dict[object, float] = {}
    for sibling in related:
        ratios |= _ratios(sibling, workloads(sibling, model, mod), model)
    found: dict[str, float] = {}
    for candidate in CANDIDATES.read(func):
        ratio = ratios.get(_place(candidate))
        if ratio is not None and candidate.id in asked:
            key = asked[candidate.id].key
            found[key] = ratio * bounds[key]
    return {key: seconds for key, seconds in found.items() if seconds > 0.0}


def _ratios(sibling: relax.Function, asked: Mapping[int, Workload], model: CostModel) -> dict[object, float]:
    """The ratio of the cost to the lower bound of each measured candidate, by its place."""
    costs = COSTS.read(sibling)
    bounds = model.lower_bounds(list({workload.key: workload for workload in asked.values()}.values()))
    found: dict[object, float] = {}
    for candidate in CANDIDATES.read(sibling):
        if candidate.backend == VIEW or candidate.id not in asked:
            continue
        cost = costs.by_key.get(asked[candidate.id].key)
        bound = bounds[asked[candidate.id].key]
        if cost is not None and cost.seconds and cost.origin != EXPECTED and bound:
            found[_place(candidate)] = cost.seconds / bound
    return found


def _place(candidate: Candidate) -> object:
    """What is the same of a candidate at every size."""
    return candidate.backend, candidate.title, candidate.indexes, candidate.hidden, candidate.device


def _operators(func: relax.Function) -> list[str]:
    return [node.op for node in DataflowGraph(func).nodes]
