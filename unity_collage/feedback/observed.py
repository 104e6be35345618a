"""Costs from running programs, in place of what kernels took alone."""

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
"""Seconds that a kernel costs at least when its launch is taken off its time in the program."""

_FAR = 1.5
"""A cost is wrong if the kernel takes this many times as long in the program, even in its faster turns."""
_WORTH = 0.01
"""And if that is at least this part of the program's time."""
_FASTER_TURNS = 0.25
_SLOW_MACHINE = 2.0
"""How many times slower than when the costs were measured a shared machine may be before the costs are doubted."""


@dataclass(frozen=True, slots=True)
class Observation:
    """An instrumented program that ran, kernel by kernel."""

    plan: Plan
    """Of ``main``."""
    kernels: tuple[str, ...]
    """That it calls, in order."""
    turns: Turns

    @property
    def seconds_by_turn(self) -> list[float]:
        """Seconds of all kernels together."""
        return [sum(turn) for turn in self.turns]

    def by_key(self, costs: Costs) -> Iterator[tuple[str, list[float]]]:
        """The cost key of each candidate in the plan, and its seconds by turn without its launch."""
        by_turn = [by_candidate(self.plan, self.kernels, seconds) for seconds in self.turns]
        backends = {kernel.candidate: kernel.backend for kernel in self.plan.kernels}
        for candidate in by_turn[0]:
            launch = costs.launches.get(backends[candidate], costs.launch_seconds)
            yield costs.keys[candidate], [max(turn[candidate] - launch, 0.0) for turn in by_turn]


def with_all_observed(costed: IRModule, observations: Sequence[Observation]) -> IRModule:
    """``costed`` with the costs of ``main`` replaced by what its kernels took in programs.

    A kernel that was in none of them keeps its cost, times what those of its backend took in place over their
    costs: else whatever was not tried would look better than what was.
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
    """By key, what those kernels of a program take there whose costs are far from it."""
    observed: dict[str, list[list[float]]] = {}
    for key, seconds in observation.by_key(costs):
        observed.setdefault(key, []).append(seconds)
    total = statistics.median(observation.seconds_by_turn)
    return far_from(observed, {key: costs.by_key[key] for key in observed}, total)


def far_from(
    observed: Mapping[str, Sequence[Sequence[float]]], costs: Mapping[str, Cost], total: float
) -> dict[str, Cost]:
    """Costs by key for those kernels that take far more in the program, as if the machine were as fast as it was.

    ``observed``: for each key, of each candidate that has it, seconds by turn. ``total``: seconds of the program. What
    the machine as a whole became slower by, the weighted median of the ratios, is taken off.
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
    """``costed`` with these costs of ``main`` in place of those with the same key."""
    if not by_key:
        return costed
    gvar, main = costed.get_global_var("main"), costed["main"]
    costs = COSTS.read(main)
    functions = dict(costed.functions_items())
    functions[gvar] = COSTS.write(main, replace(costs, by_key={**costs.by_key, **by_key}))
    return IRModule(functions, attrs=costed.attrs, global_infos=costed.global_infos)


def _ratios(costs: Costs, backend_of: Mapping[str, str], found: Mapping[str, float]) -> dict[str, float]:
    """For each backend, what its kernels took in place over their costs, all together."""
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
