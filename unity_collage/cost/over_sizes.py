"""Costs over several sizes: each kernel of a function with free sizes gets a cost at every sample.

The cost of a kernel is their weighted sum, so the lazy search for the cheapest plan works as it does for one size. A
kernel that is the same as that of a variant for these sizes has the same key, and is measured once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import relax
from tvm.ir import IRModule

from ..graph.variants import LIKE
from ..plan.costs import EXPECTED, UNKNOWN, Cost, Costs, SampleCosts
from ..plan.ranges import named
from ..plan.weighed import weighed_cost, weighed_costs
from .asking import workloads
from .model import CostModel, Overheads, Workload


@dataclass(frozen=True)
class Sample:
    """The workloads at one sample."""

    sizes: dict[str, int]
    weight: float
    asked: Mapping[int, Workload]
    """By candidate id."""
    known: Mapping[str, Cost] = field(default_factory=dict[str, Cost])
    """Known costs by the key of the workload: those of a variant for these sizes."""


def asked_at(
    func: relax.Function, sizes: Mapping[str, int], model: CostModel, mod: IRModule
) -> Mapping[int, Workload]:
    """The workload of each candidate of ``func`` with its free sizes fixed to ``sizes``, by candidate id."""
    there: Any = func.with_attr(LIKE, dict(sizes))
    return workloads(there, model, mod)


class CostOverSizes(CostModel):
    """The weighted sums of the costs that another model has at the ``samples``.

    A request is the workload of a candidate with a key of its own, see :attr:`asked`.
    """

    def __init__(self, model: CostModel, samples: Sequence[Sample]):
        self._model = model
        self._samples = samples
        self._weights = [sample.weight for sample in samples]
        self._names = [named(sample.sizes) for sample in samples]
        self._parts: dict[str, tuple[Workload, ...]] = {}
        self._found: list[dict[str, Cost]] = [dict(sample.known) for sample in samples]
        self._least: dict[str, float] = {}
        self.asked: dict[int, Workload] = {}
        """The request for each candidate: kernels that are equal at each sample are one request."""
        for candidate in samples[0].asked:
            parts = tuple(sample.asked[candidate] for sample in samples)
            whole = _together(parts)
            self._parts[whole.key] = parts
            self.asked[candidate] = whole

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        missing: dict[str, Workload] = {}
        for workload in workloads:
            for found, part in zip(self._found, self._parts[workload.key], strict=True):
                if part.key not in found:
                    missing[part.key] = part
        self._learn(self._model.costs(list(missing.values())) if missing else {})
        return {workload.key: self._weighed(workload.key) for workload in workloads}

    def known(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        parts = {part.key: part for workload in workloads for part in self._parts[workload.key]}
        self._learn(self._model.known(list(parts.values())))
        return self._complete(workloads)

    def doubtful(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        parts = {part.key: part for workload in workloads for part in self._parts[workload.key]}
        self._learn(self._model.doubtful(list(parts.values())))
        return self._complete(workloads)

    def lower_bounds(self, workloads: Sequence[Workload]) -> dict[str, float]:
        self._learn(self._model.known([part for parts in self._parts.values() for part in parts]))
        bounds = self._bounds()
        return {workload.key: self._weighed(workload.key, bounds).bound or 0.0 for workload in workloads}

    def overheads(self, backends: Sequence[str]) -> Overheads:
        return self._model.overheads(backends)

    def frame(self) -> tuple[SampleCosts, ...]:
        """The samples without costs, which a problem needs for transitions."""
        return tuple(SampleCosts(sample.sizes, sample.weight, {}) for sample in self._samples)

    def of_samples(self, costs: Costs) -> Costs:
        """``costs`` for these requests with the costs at each sample.

        An open cost has a lower bound there, an expected one the same multiple of its bounds at each sample. After a
        cost below its bound all bounds are 0.
        """
        bounds = self._bounds()
        tables: list[dict[str, Cost]] = []
        for place, found in enumerate(self._found):
            table: dict[str, Cost] = {}
            for key, whole in costs.by_key.items():
                if key not in self._parts:  # a view
                    table[key] = whole
                    continue
                part = self._parts[key][place].key
                known = found.get(part)
                if known is not None and not known.is_open:
                    table[key] = known
                elif whole.origin == EXPECTED and whole.seconds is not None:
                    least = self._weighed(key, bounds).bound or 0.0
                    guess = whole.seconds / least * bounds[part]
                    table[key] = Cost(guess, origin=EXPECTED, bound=0.0 if costs.failed else bounds[part])
                else:
                    bound = 0.0 if costs.failed else bounds[part]
                    table[key] = Cost(None, reason=whole.reason, origin=whole.origin, bound=bound)
            tables.append(table)
        samples = [
            SampleCosts(sample.sizes, sample.weight, table)
            for sample, table in zip(self._samples, tables, strict=True)
        ]
        weighed = weighed_costs(costs, samples)
        return replace(
            weighed,
            by_key={key: _with_reason(cost, costs.by_key[key]) for key, cost in weighed.by_key.items()},
        )

    def _complete(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """The weighed costs of those ``workloads`` that have a cost at each sample."""
        return {
            workload.key: self._weighed(workload.key)
            for workload in workloads
            if all(
                part.key in found for found, part in zip(self._found, self._parts[workload.key], strict=True)
            )
        }

    def _learn(self, answers: Mapping[str, Cost]) -> None:
        """Keep these costs; costs that a sample has already do not change."""
        for found in self._found:
            for key, cost in answers.items():
                found.setdefault(key, cost)

    def _bounds(self) -> dict[str, float]:
        """The lower bound of each part, by its key."""
        parts = {part.key: part for parts in self._parts.values() for part in parts}
        if not self._least:
            self._least = self._model.lower_bounds(list(parts.values()))
        return self._least

    def _weighed(self, key: str, bounds: Mapping[str, float] | None = None) -> Cost:
        """The weighted sum for a request; with ``bounds`` an unknown part has its lower bound."""
        parts = self._parts[key]
        costs = [found.get(part.key) for found, part in zip(self._found, parts, strict=True)]
        if bounds is None:
            known = [cost for cost in costs if cost is not None]
            return weighed_cost(known, self._weights, self._names)
        least = [
            Cost(None, origin=UNKNOWN, bound=_least(cost, bounds[part.key]))
            for cost, part in zip(costs, parts, strict=True)
        ]
        return weighed_cost(least, self._weights, self._names)


def _least(cost: Cost | None, bound: float) -> float:
    return bound if cost is None or cost.seconds is None else cost.seconds


def _together(parts: Sequence[Workload]) -> Workload:
    """One workload with a key that follows from those at all samples."""
    digest = hashlib.sha256("\n".join(part.key for part in parts).encode()).hexdigest()[:24]
    return replace(parts[0], digest=digest)


def _with_reason(cost: Cost, lazy: Cost) -> Cost:
    """An open cost with the reason of the search, which gives the least cost of a plan with it."""
    return replace(cost, reason=lazy.reason) if cost.is_open and lazy.is_open else cost
