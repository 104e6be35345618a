"""Expected costs of kernels that were not measured: guesses, not bounds.

**Before anything is measured** a kernel is expected to take a multiple of its lower bound. The cheapest plan by these
guesses is measured first, so that there is a good plan of measured kernels early.

**When the time is over** operators may be left that no measured kernel computes. Without expected costs TVM compiles
these one by one, a product or a convolution among them. A kernel is expected to take the same multiple of its lower
bound as others that its backend makes of this function: those with the same label if there are some, or all. Such a
cost never stands against that of a measured kernel: only kernels that lie inside of what no measured kernel computes
get one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from statistics import median

from tvm import relax

from ..annotations import CANDIDATES
from ..backends.registry import find
from ..graph import DataflowGraph, members
from ..plan.costs import EXPECTED, UNKNOWN, Cost, Costs
from ..search import Problem
from .bounds import work_for
from .model import CostModel, Workload

_FEW = 3
"""A multiple is the median of at least this many costs."""

_MOSTLY, _TVM_MULTIPLIES = 2.0, 4.0
"""The multiple of the lower bound where too few kernels have costs, and that for contractions by TVM.

Most measured kernels are at 1.2 to 3 times their bounds.
"""


def guessed(
    workloads: Iterable[Workload], bounds: Mapping[str, float], measured: Mapping[str, float]
) -> dict[str, float]:
    """The seconds that are expected of kernels that were not ``measured``, by key, from their lower bounds."""
    workloads = list(workloads)
    multiple = _Multiples(workloads, bounds, measured)
    return {
        workload.key: multiple(workload) * bounds[workload.key]
        for workload in workloads
        if workload.key not in measured and bounds[workload.key]
    }


def with_expected(
    func: relax.Function,
    costs: Costs,
    asked: Mapping[int, Workload],
    model: CostModel,
    make: Callable[[Costs], Problem],
) -> Costs:
    """``costs`` with expected costs in place of unknown ones, where no measured kernel computes an operator.

    ``asked``: the workload of each candidate. ``make`` poses the search. Nothing changes if nothing was measured.
    """
    unsuitable = {name for pair in costs.exclusions for name in pair.split("|")}
    late = [
        candidate
        for candidate in CANDIDATES.read(func)
        if (cost := costs.of(candidate.id)).origin == UNKNOWN
        and cost.bound
        and candidate.backend not in unsuitable
        and not _has_own_threads(candidate.backend)
    ]
    measured = {
        key: cost.seconds for key, cost in costs.by_key.items() if cost.seconds and cost.origin != EXPECTED
    }
    if not late or not measured:
        return costs
    graph = DataflowGraph(func)
    left = {index for index in members(make(costs).free) if not graph.nodes[index].is_host}
    inside = [candidate for candidate in late if left.issuperset(candidate.indexes)]
    by_key = {workload.key: workload for workload in asked.values()}
    multiple = _Multiples(by_key.values(), model.lower_bounds(list(by_key.values())), measured)
    found = dict(costs.by_key)
    for candidate in inside:
        key = costs.keys[candidate.id]
        bound = found[key].bound or 0.0
        found[key] = Cost(multiple(by_key[key]) * bound, origin=EXPECTED, bound=bound)
    return replace(costs, by_key=found)


class _Multiples:
    """How many times its lower bound a kernel takes, by backend and label."""

    def __init__(
        self, workloads: Iterable[Workload], bounds: Mapping[str, float], measured: Mapping[str, float]
    ):
        ratios: dict[tuple[str, str], list[float]] = {}
        for workload in workloads:
            seconds, bound = measured.get(workload.key), bounds[workload.key]
            if seconds and bound:
                for label in (workload.label, ""):
                    ratios.setdefault((workload.backend, label), []).append(seconds / bound)
        self._medians = {kind: median(found) for kind, found in ratios.items() if len(found) >= _FEW}

    def __call__(self, workload: Workload) -> float:
        return (
            self._medians.get((workload.backend, workload.label))
            or self._medians.get((workload.backend, ""))
            or _by_default(workload)
        )


def _by_default(workload: Workload) -> float:
    return _TVM_MULTIPLIES if _is_by_tvm(workload.backend) and work_for(workload).flops else _MOSTLY


def _is_by_tvm(name: str) -> bool:
    backend = find(name)
    return backend is None or backend.is_fused_by_tvm


def _has_own_threads(name: str) -> bool:
    """Whether the backend is a runtime, whose kernels are regions: these compete with plans, not with kernels."""
    backend = find(name)
    return backend is not None and backend.has_own_threads
