"""Prices for the next search: what kernels took in running programs, in place of what they took alone."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS, IN_PROGRAM, Cost, Costs

LEAST_PRICE = 1e-9
"""Seconds: what a kernel costs at least when its launch is taken off its time in the program."""


def with_observed(priced: IRModule, observed: Mapping[int, Sequence[float]]) -> IRModule:
    """``priced`` with the prices of ``main`` replaced by what its kernels took in programs, launch taken off.

    A kernel that was in none of them keeps its price, times what those of its backend took in place over their
    prices: else whatever was not tried would look better than what was.
    """
    gvar = priced.get_global_var("main")
    func = priced["main"]
    costs = COSTS.read(func)
    backends = {candidate.id: candidate.backend for candidate in CANDIDATES.read(func)}
    samples: dict[str, list[float]] = {}
    for candidate, seconds in observed.items():
        launch = costs.launches.get(backends[candidate], costs.launch_seconds)
        samples.setdefault(costs.keys[candidate], []).extend(value - launch for value in seconds)
    found = {key: max(statistics.median(values), LEAST_PRICE) for key, values in samples.items()}
    ratios = _ratios(costs, backends, found)
    backend_of = {key: backends[candidate] for candidate, key in costs.keys.items()}
    prices = {
        key: Cost(found[key], found[key], found[key], len(samples[key]), IN_PROGRAM)
        if key in found
        else _scaled(cost, ratios.get(backend_of.get(key, ""), 1.0))
        for key, cost in costs.prices.items()
    }
    functions = dict(priced.functions_items())
    functions[gvar] = COSTS.write(func, replace(costs, prices=prices))
    return IRModule(functions, attrs=priced.attrs, global_infos=priced.global_infos)


def _ratios(costs: Costs, backends: Mapping[int, str], found: Mapping[str, float]) -> dict[str, float]:
    """For each backend, what its kernels took in place over their prices, all together."""
    sums: dict[str, tuple[float, float]] = {}
    for key, backend in {(key, backends[candidate]) for candidate, key in costs.keys.items() if key in found}:
        price = costs.prices[key].seconds
        if price is not None:
            observed, alone = sums.get(backend, (0.0, 0.0))
            sums[backend] = (observed + found[key], alone + price)
    return {backend: observed / alone for backend, (observed, alone) in sums.items() if alone > 0}


def _scaled(cost: Cost, ratio: float) -> Cost:
    if cost.seconds is None:
        return cost
    return replace(cost, seconds=cost.seconds * ratio, low=cost.low * ratio, high=cost.high * ratio)
