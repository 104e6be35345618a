"""Expected costs of kernels that there was no time to measure, for operators that no measured kernel computes.

Without them TVM compiles such operators one by one, a product or a convolution among them. A kernel is expected to
take the same multiple of its lower bound as others that its backend makes of this function: those with the same label
if there are some, or all. That is a guess, not a bound. So it never stands against the cost of a measured kernel: only
kernels that lie inside of what no measured kernel computes get one.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace

from tvm import relax

from ..annotations import CANDIDATES
from ..backends.registry import find
from ..graph import DataflowGraph, members
from ..plan.candidate import VIEW
from ..plan.costs import EXPECTED, UNKNOWN, Cost, Costs
from ..search import Problem
from .model import CostModel, Workload

_FEW = 3
"""A multiple is the median of at least this many costs."""

_LIBRARIES, _TVM = 2.0, 4.0
"""The multiple of the lower bound for libraries and for TVM, where too few of their kernels have costs.

Most measured kernels are at 1.2 to 3 times their bounds. TVM comes last where nothing is known of it.
"""


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
    graph = DataflowGraph(func)
    left = {index for index in members(make(costs).free) if not graph.nodes[index].is_host} if late else set()
    inside = [candidate for candidate in late if left.issuperset(candidate.indexes)]
    if not inside:
        return costs
    multiple = _Multiples(func, costs, model.lower_bounds(list({w.key: w for w in asked.values()}.values())))
    if not multiple.known:
        return costs
    found = dict(costs.by_key)
    for candidate in inside:
        key = costs.keys[candidate.id]
        least = costs.by_key[key].bound or 0.0
        found[key] = Cost(multiple(candidate.backend, candidate.label) * least, origin=EXPECTED)
    return replace(costs, by_key=found)


class _Multiples:
    """How many times its lower bound a kernel takes, by backend and label."""

    def __init__(self, func: relax.Function, costs: Costs, bounds: Mapping[str, float]):
        ratios: dict[tuple[str, str], dict[str, float]] = {}
        for candidate in CANDIDATES.read(func):
            key = costs.keys[candidate.id]
            cost = costs.by_key[key]
            if candidate.backend != VIEW and cost.seconds and cost.origin != EXPECTED and bounds.get(key):
                for label in (candidate.label, ""):
                    ratios.setdefault((candidate.backend, label), {})[key] = cost.seconds / bounds[key]
        self.known = bool(ratios)
        self._medians = {
            kind: statistics.median(found.values()) for kind, found in ratios.items() if len(found) >= _FEW
        }

    def __call__(self, backend: str, label: str) -> float:
        by_default = _TVM if _is_by_tvm(backend) else _LIBRARIES
        return self._medians.get((backend, label)) or self._medians.get((backend, ""), by_default)


def _is_by_tvm(name: str) -> bool:
    backend = find(name)
    return backend is None or backend.is_fused_by_tvm


def _has_own_threads(name: str) -> bool:
    """Whether the backend is a runtime, whose kernels are regions: these compete with plans, not with kernels."""
    backend = find(name)
    return backend is not None and backend.has_own_threads
