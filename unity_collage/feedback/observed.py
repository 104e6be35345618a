"""Costs observed in running programs, which replace the costs of kernels measured alone."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS
from ..plan.costs import IN_PROGRAM, Cost, Costs
from ..plan.plan import Plan
from ..profile.kernels import Turns, by_candidate

LEAST_COST = 1e-9
"""The least cost of a kernel in seconds, when its launch is taken off its time in the program."""

_FAR = 1.5
"""A cost is wrong if the kernel takes this many times as long in the program, even in its faster turns."""
_WORTH = 0.01
"""A cost is wrong only if the difference is also at least this part of the program's time."""
_FASTER_TURNS = 0.25
"""Which quantile of the turns stands for the faster ones."""
_SLOW_MACHINE = 2.0
"""How many times slower a shared machine may get after the costs were measured, before the costs are doubted."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The profile of an instrumented program."""

    plan: Plan
    """The plan of ``main``."""
    kernels: tuple[str, ...]
    """The kernels that the program calls, in order."""
    turns: Turns

    @property
    def seconds_by_turn(self) -> list[float]:
        """The seconds of all kernels together, by turn."""
        return [sum(turn) for turn in self.turns]

    def by_key(self, costs: Costs) -> Iterator[tuple[str, list[float]]]:
        """The cost key of each candidate in the plan, and its seconds by turn, without the launch."""
        by_turn = [by_candidate(self.plan, self.kernels, seconds) for seconds in self.turns]
        backends = {kernel.candidate: kernel.backend for kernel in self.plan.kernels}
        for candidate in by_turn[0]:
            launch = costs.launches.get(backends[candidate], costs.launch_seconds)
            yield costs.keys[candidate], [max(turn[candidate] - launch, 0.0) for turn in by_turn]


def with_all_observed(costed: IRModule, observations: Sequence[Observation]) -> IRModule:
    """``costed`` with costs of ``main`` from the times of its kernels in programs.

    The cost of a kernel that was in no program is scaled: by the ratio of observed to measured seconds of its backend.
    Otherwise kernels that were not tried would look better than those that were.
    """
    main = costed["main"]
    costs = COSTS.read(main)
    samples: dict[str, list[float]] = {}
    for observation in observations:
        for key, seconds in observation.by_key(costs):
            samples.setdefault(key, []).append(statistics.median(seconds))
    found = {key: max(statistics.median(values), LEAST_COST) for key, values in samples.items()}
    backends = {candidate.id: candidate.backend for candidate in CANDIDATES.read(main)}
    backend_of = {key: backends[candidate] for candidate, key in costs.keys.items()}
    ratios = _ratios(costs, backend_of, found)
    return with_costs(
        costed,
        {
            key: Cost(found[key], found[key], found[key], len(samples[key]), IN_PROGRAM)
            if key in found
            else _scaled(cost, ratios.get(backend_of.get(key, ""), 1.0))
            for key, cost in costs.by_key.items()
        },
    )


def far_costs(observation: Observation, costs: Costs) -> dict[str, Cost]:
    """Observed costs by key, for the kernels of a program that take far longer there than they cost."""
    observed: dict[str, list[list[float]]] = {}
    for key, seconds in observation.by_key(costs):
        observed.setdefault(key, []).append(seconds)
    total = statistics.median(observation.seconds_by_turn)
    return far_from(observed, {key: costs.by_key[key] for key in observed}, total)


def far_from(
    observed: Mapping[str, Sequence[Sequence[float]]], costs: Mapping[str, Cost], total: float
) -> dict[str, Cost]:
    """Observed costs by key, for the kernels that take far longer in the program than they cost.

    ``observed``: for each key, the seconds by turn of each candidate that has it. ``total``: seconds of the program. If
    the whole machine became slower, the costs are divided by that factor, the weighted median of the ratios.
    """
    means = {key: np.mean(rows, axis=0) for key, rows in observed.items()}
    ratios = [float(np.median(means[key])) / max(costs[key].seconds or 0.0, 1e-9) for key in means]
    weights = [(costs[key].seconds or 0.0) * len(observed[key]) for key in means]
    if not any(weights):
        return {}
    level = float(np.quantile(ratios, 0.5, weights=weights, method="inverted_cdf"))
    level = level if 1.0 < level <= _SLOW_MACHINE else 1.0
    found: dict[str, Cost] = {}
    for key, turns in means.items():
        cost = costs[key].seconds or 0.0
        low, middle, high = (
            float(value) / level for value in np.quantile(turns, (_FASTER_TURNS, 0.5, 1 - _FASTER_TURNS))
        )
        if low > _FAR * cost and (middle - cost) * len(observed[key]) > _WORTH * total / level:
            found[key] = replace(
                costs[key], seconds=middle, low=low, high=high, runs=len(turns), origin=IN_PROGRAM
            )
    return found


def with_costs(costed: IRModule, by_key: Mapping[str, Cost]) -> IRModule:
    """``costed`` with these costs in ``main`` in place of those with the same keys."""
    if not by_key:
        return costed
    gvar, main = costed.get_global_var("main"), costed["main"]
    costs = COSTS.read(main)
    functions = dict(costed.functions_items())
    functions[gvar] = COSTS.write(main, replace(costs, by_key={**costs.by_key, **by_key}))
    return IRModule(functions, attrs=costed.attrs, global_infos=costed.global_infos)


def _ratios(costs: Costs, backend_of: Mapping[str, str], found: Mapping[str, float]) -> dict[str, float]:
    """The ratio of observed to measured seconds, for all kernels of each backend together."""
    sums: dict[str, tuple[float, float]] = {}
    for key, seconds in found.items():
        cost = costs.by_key[key].seconds
        if cost is not None:
            observed, alone = sums.get(backend_of[key], (0.0, 0.0))
            sums[backend_of[key]] = (observed + seconds, alone + cost)
    return {backend: observed / alone for backend, (observed, alone) in sums.items() if alone > 0}


def _scaled(cost: Cost, ratio: float) -> Cost:
    if cost.seconds is None:
        return cost
    return replace(cost, seconds=cost.seconds * ratio, low=cost.low * ratio, high=cost.high * ratio)
