"""CorrectCosts: where a kernel of the plan takes far more in the running program than it costs, that is its price.

Reads    ``collage.candidates``, from AnnotateCandidates; ``collage.costs``, from EstimateCosts.
Writes   ``collage.costs``, with other prices for some of the kernels.
Keeps    every binding: this pass changes attributes only.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import IRModule

from .. import runtime
from ..annotations import COSTS, IN_PROGRAM, PLAN, Cost, Costs
from ..cost.model import CostModel, Remembering
from ..database.rows import digest
from ..errors import CollageError
from ..measure.measured import MeasuredCost
from ..profile import Clocked, Contest, by_candidate, harmless_inputs, program_digest, why_not_runnable
from ..target import current_target
from .fuse_remaining import FuseRemaining
from .offload_byoc import OffloadBYOC
from .search_partition import SearchPartition

_FAR = 1.5
"""A price is wrong if the kernel takes so many times as long in the program, even in its faster turns."""
_WORTH = 0.01
"""And by this part of the program's time at least."""
_GAIN = 0.02
"""By this part of its time the last program is faster than the first, or all prices stay."""
_FASTER_TURNS = 0.25
_SLOW_MACHINE = 2.0
"""So many times slower than when the prices were measured a shared machine may be; beyond that it is the prices."""


@tvm.transform.module_pass(opt_level=0, name="collage.CorrectCosts")
@dataclass(frozen=True)
class CorrectCosts:
    """Run the plan of the search with a clock between its kernels, and search again without prices that do not hold.

    A kernel is priced alone, on tensors that the harness has made. In the program it may be another one: a library
    that keeps what it has generated under too short a key, an input whose memory lies otherwise. Such a price is not
    noise but wrong by a factor, and only the running program can tell. So the plan's program runs kernel by kernel in a
    process of its own; what a kernel takes there becomes its price where the two are far apart (what the machine is
    slower as a whole is taken out), and the search is asked again, until no such kernel is in its plan. If that program
    is not faster than the first one, all prices stay.

    This builds programs, so it is no part of ``passes.collage()`` unless asked for; ``compile`` asks where a finished
    program takes far longer than its kernels cost. What came of it is kept with the prices. Cost models that are not
    Remembering keep their prices; so do programs that cannot be run here and now.
    """

    model: CostModel = field(default_factory=MeasuredCost)
    """The one that EstimateCosts has asked."""
    programs: int = 4
    """So many are built at most."""

    def transform_module(self, mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        if not isinstance(self.model, Remembering) or why_not_runnable(mod) is not None:
            return mod
        main: relax.Function = mod["main"]
        if not COSTS.on(main):
            return mod
        costs = COSTS.read(main)
        asked = sorted((key, cost.seconds) for key, cost in costs.prices.items())
        name = f"corrected {digest(json.dumps([program_digest(mod), asked, sorted(costs.keys.items())]))}"
        try:
            found = self.model.remembered(
                name,
                "the kernels of the running program",
                lambda: {key: asdict(cost) for key, cost in self._learned(mod, costs).items()},
            )
        except CollageError as error:  # it may be possible next time
            warnings.warn(f"prices are not compared with the running program: {error}", stacklevel=2)
            return mod
        return _with_prices(mod, {key: Cost(**cost) for key, cost in (found or {}).items()})

    def _learned(self, mod: IRModule, costs: Costs) -> dict[str, Cost]:
        """By key, other prices with which the search finds a faster program; none where it does not."""
        learned: dict[str, Cost] = {}
        with Contest(harmless_inputs(mod), runtime.num_threads()) as contest:
            race = _Race(Clocked(contest, current_target()))
            for left in reversed(range(self.programs)):
                priced = _with_prices(mod, learned)
                if not race.enter(self._program(priced)) or not left:
                    break
                more = race.far_from(COSTS.read(priced["main"]))
                if not more:
                    break
                learned |= more
            return learned if race.has_gained() else {}

    def _program(self, priced: IRModule) -> IRModule:
        """The final module for these prices; kernels that SearchPartition would merge stay apart, and have prices."""
        return tvm.transform.Sequential([SearchPartition(), OffloadBYOC(), FuseRemaining()])(priced)


@dataclass(slots=True)
class _Race:
    """The programs so far; all of them run in turns."""

    clocked: Clocked
    plans: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    kernels: list[list[str]] = field(default_factory=list[list[str]])
    turns: list[list[list[float]]] = field(default_factory=list[list[list[float]]])
    """Of each program, by turn, the seconds of each of its kernels."""

    def enter(self, mod: IRModule) -> bool:
        """Build and time a program; whether it is a new one."""
        plan = PLAN.read(mod["main"])
        if any(_chosen(plan) == _chosen(known) for known in self.plans):
            return False
        self.kernels.append(self.clocked.enter(str(len(self.plans)), mod))
        self.plans.append(plan)
        self.turns = self.clocked.turns([(str(n), len(names), None) for n, names in enumerate(self.kernels)])
        return True

    def far_from(self, costs: Costs) -> dict[str, Cost]:
        """By key, what those kernels of the last program take there whose costs are far from it."""
        plan, names, turns = self.plans[-1], self.kernels[-1], self.turns[-1]
        by_turn = [by_candidate(plan, names, seconds) for seconds in turns]
        backends = {kernel["candidate"]: kernel["backend"] for kernel in plan["kernels"]}
        observed: dict[str, list[list[float]]] = {}
        for candidate in by_turn[0]:
            launch = costs.launches.get(backends[candidate], costs.launch_seconds)
            seconds = [max(turn[candidate] - launch, 0.0) for turn in by_turn]
            observed.setdefault(costs.keys[candidate], []).append(seconds)
        return far_prices(observed, {key: costs.prices[key] for key in observed}, median(map(sum, turns)))

    def has_gained(self) -> bool:
        """Whether the last program is faster than the first."""
        if len(self.turns) < 2:
            return False
        return (
            median(sum(last) / sum(first) for first, last in zip(self.turns[0], self.turns[-1], strict=True))
            <= 1 - _GAIN
        )


def far_prices(
    observed: Mapping[str, Sequence[Sequence[float]]], prices: Mapping[str, Cost], total: float
) -> dict[str, Cost]:
    """Prices by key for those kernels that take far more in the program, as if the machine were as fast as it was.

    ``observed``: for each key, of each candidate that has it, seconds by turn. ``total``: seconds of the program.
    """
    means = {key: np.mean(rows, axis=0) for key, rows in observed.items()}
    ratios = [float(np.median(means[key])) / max(prices[key].seconds or 0.0, 1e-9) for key in means]
    weights = [(prices[key].seconds or 0.0) * len(observed[key]) for key in means]
    if not any(weights):
        return {}
    level = float(np.quantile(ratios, 0.5, weights=weights, method="inverted_cdf"))
    level = level if 1.0 < level <= _SLOW_MACHINE else 1.0
    found: dict[str, Cost] = {}
    for key, turns in means.items():
        price = prices[key].seconds or 0.0
        low, middle, high = (
            float(value) / level for value in np.quantile(turns, (_FASTER_TURNS, 0.5, 1 - _FASTER_TURNS))
        )
        if low > _FAR * price and (middle - price) * len(observed[key]) > _WORTH * total / level:
            found[key] = replace(
                prices[key], seconds=middle, low=low, high=high, runs=len(turns), origin=IN_PROGRAM
            )
    return found


def _chosen(plan: Mapping[str, Any]) -> list[tuple[int, list[str]]]:
    return [(kernel["candidate"], kernel["bindings"]) for kernel in plan["kernels"]]


def _with_prices(mod: IRModule, prices: Mapping[str, Cost]) -> IRModule:
    if not prices:
        return mod
    gvar, main = mod.get_global_var("main"), mod["main"]
    costs = COSTS.read(main)
    functions = dict(mod.functions_items())
    functions[gvar] = COSTS.write(main, replace(costs, prices={**costs.prices, **prices}))
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)
