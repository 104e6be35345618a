"""The loop: plan, run the whole program, learn from its clock, plan again; the fastest program wins.

Prices are measured kernel by kernel, and programs are not sums. So the plan of the search is built with a clock between
its kernels; what they take there replaces their prices, and the search is asked again, until it answers
with a plan that is known. In the end that plan, greedy, each backend alone and stock TVM run in turns. The user
gets the winner, whoever it is.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from .. import runtime
from ..annotations import CANDIDATES, COSTS, PLAN, Cost
from ..build import build, link, lower
from ..passes.apply_plan import ApplyPlan
from ..passes.fuse_remaining import FuseRemaining
from ..passes.offload_byoc import OffloadBYOC
from ..search.auto import solve
from .breeding import Breeding, bred
from .contest import Contest
from .entrants import OURS, Plan, entrants, ids_of, problems_of
from .ticks import InsertTicks, ticked_kernels

STOCK = "stock tvm"

LEAST_PRICE = 1e-9
"""Seconds: what a kernel costs at least when its launch is taken off its time in the program."""

HOPELESS = 3.0
"""A program that takes so many times as long as the fastest is not in the last race."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Refinement:
    """How much is done beyond the search."""

    feedback: int = 2
    """How often the search is asked again with prices from the running program, at most."""
    rounds: int = 7
    """Interleaved rounds of the last race."""
    round_seconds: float = 0.3
    """How long each program runs in a round, at least."""
    margin: float = 0.01
    """By how much of our time another program must be faster to be preferred: below, it is a tie."""
    tolerance: float = 1e-3
    """Largest difference of outputs, over their range, between two programs."""
    breeding: Breeding | None = None
    """Breed plans by measured time before the last race; None: do not."""


@dataclass(slots=True)
class _Entry:
    plan: Plan | None
    """None: TVM alone, without a plan."""
    mod: IRModule
    executable: relax.VMExecutable
    seconds: list[float] = field(default_factory=list)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Refined:
    """The winner, ready to run, and what happened."""

    mod: IRModule
    executable: relax.VMExecutable
    report: dict[str, Any]
    """Plain data: each program's median seconds by round or why it is out, the additive error, the winner."""


def refined(
    priced: IRModule,
    imported: IRModule,
    inputs: Sequence[np.ndarray],
    priority: Sequence[str],
    target: Target,
    settings: Refinement,
    tell: Tell = lambda _: None,
) -> Refined:
    """The fastest program for a module that EstimateCosts has priced; ``imported`` is what it was made of.

    ``inputs`` are what ``main`` takes; ``priority`` the backends, preferred ones first.
    """
    with Contest(inputs, runtime.num_threads()) as contest:
        race = _Race(priced, imported, target, settings, contest, tell)
        race.enter_plans(priority)
        race.learn()
        if settings.breeding is not None:
            race.breed(settings.breeding)
        return race.finish()


@dataclass(slots=True)
class _Race:
    priced: IRModule
    imported: IRModule
    target: Target
    settings: Refinement
    contest: Contest
    tell: Tell
    entries: dict[str, _Entry] = field(default_factory=dict[str, _Entry])
    iterations: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def enter_plans(self, priority: Sequence[str]) -> None:
        """All that a user could have picked instead."""
        for name, plan in entrants(problems_of(self.priced), priority):
            self.enter(name, plan)
        self.tell(f"building {STOCK}")
        self._enter(STOCK, _Entry(None, self.imported, relax.build(self.imported, self.target)))

    def enter(self, name: str, plan: Plan) -> bool:
        """Whether the program of ``plan`` runs, and computes what ours does."""
        self.tell(f"building {name}")
        mod = self.finished(self.priced, plan, name)
        return self._enter(name, _Entry(plan, mod, build(mod, self.target)))

    def _enter(self, name: str, entry: _Entry) -> bool:
        entry.reason = self.contest.enter(name, entry.executable) or ""
        if not entry.reason and name != OURS:
            error = self.contest.error(name, OURS)
            if isinstance(error, str):
                entry.reason = error
            elif error > self.settings.tolerance:
                entry.reason = f"its outputs differ from those of {OURS} by {error:.0e} of their range"
        self.entries[name] = entry
        return not entry.reason

    def finished(self, priced: IRModule, plan: Plan, origin: str) -> IRModule:
        """The final module of a plan."""
        with self.target:
            passes = tvm.transform.Sequential([ApplyPlan(plan, origin), OffloadBYOC(), FuseRemaining()])
            return passes(priced)

    def learn(self) -> None:
        """Ask the search again with prices from the running program, as long as it has a new answer."""
        priced, name = self.priced, OURS
        for number in range(1, self.settings.feedback + 1):
            observed = self._observed(name)
            if observed is None:
                return
            priced = with_observed(priced, observed)
            plan = {key: ids_of(solve(problem)) for key, problem in problems_of(priced).items()}
            if any(entry.plan == plan for entry in self.entries.values()):
                return
            name = f"{OURS}, informed {number}"
            if not self.enter(name, plan):
                return

    def _observed(self, name: str) -> dict[int, float] | None:
        """Seconds of each kernel of ``main`` where it stands, by candidate; None if they cannot be had."""
        entry = self.entries[name]
        if entry.reason or "main" not in (entry.plan or {}):
            return None
        self.tell(f"timing the kernels of {name}")
        lowered = lower(entry.mod, self.target)
        kernels = ticked_kernels(lowered["main"])
        ticking = f"{name}, with ticks"
        if self.contest.enter(ticking, link(InsertTicks()(lowered), self.target)) is not None:
            return None
        seconds = self.contest.ticks(ticking, len(kernels), rounds=_rounds(self._raced([name], 1)[name]))
        self.contest.leave(ticking)
        if isinstance(seconds, str):
            return None
        by_function: dict[str, list[float]] = {}
        for kernel, value in zip(kernels, seconds, strict=True):
            by_function.setdefault(kernel, []).append(value)
        plan = PLAN.read(entry.mod["main"])
        observed = {
            int(kernel["candidate"]): statistics.mean(by_function[kernel["function"]])
            for kernel in plan["kernels"]
            if kernel["function"] in by_function
        }
        in_place = sum(values for values in seconds)
        self.iterations.append({"plan": name, "predicted": plan["seconds"], "kernels_in_place": in_place})
        return observed

    def breed(self, breeding: Breeding) -> None:
        """Enter the best plan that breeding finds by measured time."""
        problems = problems_of(self.priced)
        medians = self._raced([name for name, entry in self.entries.items() if entry.plan], 2)
        best = min(medians, key=lambda name: statistics.median(medians[name]))
        plan = bred(problems, self.entries[best].plan or {}, self._fitness, breeding)
        if all(entry.plan != plan for entry in self.entries.values()):
            self.enter(f"{OURS}, bred", plan)

    def _fitness(self, plan: Plan) -> float | None:
        """Measured seconds of a run, None if the plan does not work."""
        trial = "trial"
        works = self.enter(trial, plan)
        medians = self._raced([trial, OURS], 2) if works else {}
        del self.entries[trial]
        if works:
            self.contest.leave(trial)
        if trial not in medians:
            return None
        # Drift hits both: a trial counts as much as it is faster than ours in the same rounds.
        ratio = statistics.median(a / b for a, b in zip(medians[trial], medians[OURS], strict=True))
        return ratio * statistics.median(self.entries[OURS].seconds or medians[OURS])

    def _raced(self, names: Sequence[str], rounds: int) -> dict[str, list[float]]:
        """Medians by round of those that run; who does not is out from now on."""
        running = [name for name in names if not self.entries[name].reason]
        medians = self.contest.race(running, rounds, self.settings.round_seconds)
        if not isinstance(medians, str):
            return medians
        alone = {name: self.contest.race([name], rounds, self.settings.round_seconds) for name in running}
        for name, found in alone.items():
            if isinstance(found, str):
                self.entries[name].reason = found
        return {name: found for name, found in alone.items() if not isinstance(found, str)}

    def finish(self) -> Refined:
        """The last race: all that could win, in turns."""
        self.tell("racing")
        first = self._raced([name for name in self.entries if name != STOCK], 2) | self._raced([STOCK], 1)
        best = min((min(seconds) for seconds in first.values()), default=0.0)
        hopeful = [name for name, seconds in first.items() if min(seconds) < HOPELESS * best]
        medians = {**first, **self._raced(hopeful, self.settings.rounds)}
        for name, seconds in medians.items():
            self.entries[name].seconds = seconds
        winner = winner_of({name: medians[name] for name in hopeful}, self.settings.margin)
        entry = self.entries[winner]
        return Refined(entry.mod, entry.executable, self._report(winner))

    def _report(self, winner: str) -> dict[str, Any]:
        programs = [
            {"name": name, "reason": entry.reason}
            if entry.reason
            else {"name": name, "seconds": statistics.median(entry.seconds), "rounds": list(entry.seconds)}
            for name, entry in self.entries.items()
        ]
        report: dict[str, Any] = {"winner": winner, "programs": programs, "iterations": self.iterations}
        entry = self.entries[winner]
        if entry.plan:
            predicted = sum(PLAN.read(entry.mod[name])["seconds"] for name in entry.plan)
            measured = statistics.median(entry.seconds)
            report |= {"predicted": predicted, "measured": measured, "additive_error": measured - predicted}
        return report


def winner_of(medians: Mapping[str, Sequence[float]], margin: float) -> str:
    """The fastest by the median of the ratios to ours within a round; ours unless it is faster by ``margin``."""

    def ratio(name: str) -> float:
        pairs = zip(medians[name], medians[OURS], strict=True)
        return statistics.median(theirs / ours for theirs, ours in pairs)

    if OURS not in medians:
        return min(medians, key=lambda name: statistics.median(medians[name]))
    best = min(medians, key=ratio)
    return best if ratio(best) < 1 - margin else OURS


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


def _rounds(medians: Sequence[float]) -> int:
    """Runs with ticks: a fifth of a second, five at least and some hundred at most."""
    return max(5, min(300, int(0.2 / statistics.median(medians))))
