"""What kernels take where they stand in a running program, in place of their prices."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tvm.ir import IRModule

from ..annotations import CANDIDATES, COSTS, Cost

LEAST_PRICE = 1e-9
"""Seconds: what a kernel costs at least when its launch is taken off its time in the program."""


def by_candidate(
    plan: Mapping[str, Any], kernels: Sequence[str], seconds: Sequence[float]
) -> dict[int, float]:
    """Seconds of each kernel of a plan, by candidate, from those of the ``kernels`` that the program calls in order."""
    by_function: dict[str, list[float]] = {}
    for kernel, value in zip(kernels, seconds, strict=True):
        by_function.setdefault(kernel, []).append(value)
    return {
        int(kernel["candidate"]): statistics.mean(by_function[kernel["function"]])
        for kernel in plan["kernels"]
        if kernel["function"] in by_function
    }


def with_observed(priced: IRModule, observed: Mapping[int, float]) -> IRModule:
    """``priced`` with the prices of ``main`` replaced by what its kernels took in the program, launch taken off."""
    gvar = priced.get_global_var("main")
    func = priced["main"]
    costs = COSTS.read(func)
    backends = {candidate.id: candidate.backend for candidate in CANDIDATES.read(func)}
    found: dict[str, list[float]] = {}
    for candidate, seconds in observed.items():
        found.setdefault(costs.keys[candidate], []).append(
            seconds - costs.launches.get(backends[candidate], costs.launch_seconds)
        )
    prices = dict(costs.prices)
    for key, values in found.items():
        seconds = max(statistics.mean(values), LEAST_PRICE)
        prices[key] = Cost(seconds, seconds, seconds, len(values), "in the program")
    functions = dict(priced.functions_items())
    functions[gvar] = COSTS.write(func, replace(costs, prices=prices))
    return IRModule(functions, attrs=priced.attrs, global_infos=priced.global_infos)
