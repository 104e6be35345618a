"""The loop: plan, run the whole program, learn from its clock, plan again; the fastest program wins.

Prices are measured kernel by kernel, and programs are not sums. So the plan of the search, and what a user would have
picked instead, are built with a clock between their kernels and run in turns; what kernels take there replaces their
prices, and the search is asked again, until it answers with a plan that is known. In the end these plans, greedy, each
backend alone and stock TVM run in turns. The user gets the winner, whoever it is. Whoever cannot be built or run is
out, with its reason; the others go on.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm.ir import IRModule
from tvm.target import Target

from .. import runtime
from ..annotations import PLAN
from ..cost.database import CostDatabase
from ..errors import CollageError
from ..processes import last_line
from ..search.auto import solve
from ..search.ties import settled
from .breeding import Breeding, bred
from .contest import Contest
from .entrants import OURS, Plan, entrants, ids_of, problems_of
from .in_place import InPlace
from .maker import Made, Maker
from .observed import with_observed
from .records import Records, described, plan_of, records_of
from .settings import Refined, Refinement, Tell

STOCK = "stock tvm"

HOPELESS = 3.0
"""A program that takes so many times as long as the fastest is not in the last race."""


@dataclass(slots=True)
class _Entry:
    plan: Plan | None
    """None: TVM alone, without a plan."""
    made: Made | None = None
    seconds: list[float] = field(default_factory=list)
    reason: str = ""


def refined(
    priced: IRModule,
    imported: IRModule,
    inputs: Sequence[np.ndarray],
    priority: Sequence[str],
    target: Target,
    settings: Refinement,
    tell: Tell = lambda _: None,
    database: CostDatabase | None = None,
    locked: bool = False,
    is_budget_spent: Callable[[], bool] = lambda: False,
) -> Refined:
    """The fastest program for a module that EstimateCosts has priced; ``imported`` is what it was made of.

    ``inputs`` are what ``main`` takes; ``priority`` the backends, preferred ones first. A race that ``database`` knows
    is not run again; when it is ``locked`` a race that it does not know is an error. After the budget is
    spent nothing more is learned or bred; the last race is run in any case. Raises CollageError when no program runs.
    """
    plans = dict(entrants(problems_of(priced), priority))
    maker = Maker(priced, imported, target)
    records = None
    if database is not None:
        records = records_of(database, priced, imported, plans, settings, target, locked)
        before = _as_before(maker, records)
        if before is not None:
            return before
    with Contest(inputs, runtime.num_threads()) as contest:
        race = _Race(maker, settings, contest, tell, tuple(priority))
        race.enter_all(plans)
        if not is_budget_spent():
            race.learn()
        if settings.breeding is not None and not is_budget_spent():
            race.breed(settings.breeding)
        winner, result = race.finish()
    if records is not None:
        plan = race.entries[winner].plan
        records.keep({"report": result.report, "plan": None if plan is None else described(priced, plan)})
    return result


def _as_before(maker: Maker, records: Records) -> Refined | None:
    """The winner of a race that was run before; None if there is none, or if it cannot be made any more."""
    known = records.find()
    if known is None:
        return None
    report = {**known["report"], "origin": "database"}
    plan = None if known["plan"] is None else plan_of(maker.priced, known["plan"])
    if known["plan"] is not None and plan is None:
        return None
    try:
        made = maker.stock() if plan is None else maker.planned(plan, report["winner"])
    except Exception:  # a compiler failed that did not then: let all of them race again
        return None
    return Refined(*made, report)


@dataclass(slots=True)
class _Race:
    maker: Maker
    settings: Refinement
    contest: Contest
    tell: Tell
    priority: tuple[str, ...]
    entries: dict[str, _Entry] = field(default_factory=dict[str, _Entry])
    iterations: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def enter_all(self, plans: Mapping[str, Plan]) -> None:
        """All that a user could have picked instead."""
        for name, plan in plans.items():
            self.enter(name, plan)
        self._enter(STOCK, None, self.maker.stock)

    def enter(self, name: str, plan: Plan) -> bool:
        """Whether the program of ``plan`` runs, and computes what the first one does."""
        return self._enter(name, plan, lambda: self.maker.planned(plan, name))

    def _enter(self, name: str, plan: Plan | None, make: Callable[[], Made]) -> bool:
        self.tell(f"building {name}")
        entry = self.entries[name] = _Entry(plan)
        reference = self._reference()
        try:
            entry.made = make()
            entry.reason = self.contest.enter(name, entry.made[1]) or ""
        except Exception as error:  # a compiler failed: the others go on without it
            entry.reason = f"it cannot be built: {type(error).__name__}: {last_line(error)}"
        if not entry.reason and reference is not None:
            entry.reason = self._why_wrong(name, reference)
        return not entry.reason

    def _reference(self) -> str | None:
        """The first program that runs: the others have to compute what it does."""
        return next((name for name, entry in self.entries.items() if entry.made and not entry.reason), None)

    def _why_wrong(self, name: str, reference: str) -> str:
        error = self.contest.error(name, reference)
        if isinstance(error, str):
            return error
        if error > self.settings.tolerance:
            return f"its outputs differ from those of {reference} by {error:.0e} of their range"
        return ""

    def learn(self) -> None:
        """Ask the search again with prices from the running programs, as long as it has a new answer."""
        with InPlace(self.maker, self.contest) as in_place:
            fresh = self._hopeful()
            for number in range(1, self.settings.feedback + 1):
                if not self._observe(in_place, fresh):
                    return
                priced = with_observed(self.maker.priced, in_place.by_candidate())
                plan = {
                    key: ids_of(settled(problem, solve(problem), self.priority))
                    for key, problem in problems_of(priced).items()
                }
                name = f"{OURS}, informed {number}"
                if any(entry.plan == plan for entry in self.entries.values()) or not self.enter(name, plan):
                    return
                fresh = [name]

    def _hopeful(self) -> list[str]:
        """The programs of plans that are not much slower than the fastest: what they do well is worth knowing."""
        medians = self._raced(
            [name for name, entry in self.entries.items() if "main" in (entry.plan or {})], 1
        )
        best = min((min(seconds) for seconds in medians.values()), default=0.0)
        return [name for name, seconds in medians.items() if min(seconds) < HOPELESS * best]

    def _observe(self, in_place: InPlace, names: Sequence[str]) -> bool:
        """Time the kernels of these programs and of those before, in turns; whether anything was timed."""
        for name in names:
            self.tell(f"timing the kernels of {name}")
            made = self.entries[name].made
            assert made is not None
            if (reason := in_place.add(name, made[0])) is not None:
                self.tell(f"the kernels of {name} are not timed: {reason}")
        paces = {
            name: statistics.median(seconds)
            for name, seconds in self._raced(list(in_place.programs), 1).items()
        }
        for name, reason in in_place.run(paces).items():
            self.tell(f"the kernels of {name} are not timed: {reason}")
        for name in names:
            made = self.entries[name].made
            if name in in_place.programs and made is not None:
                predicted = PLAN.read(made[0]["main"])["seconds"]
                self.iterations.append(
                    {"plan": name, "predicted": predicted, "kernels_in_place": in_place.total(name)}
                )
        return bool(in_place.programs)

    def breed(self, breeding: Breeding) -> None:
        """Enter the best plan that breeding finds by measured time."""
        problems = problems_of(self.maker.priced)
        medians = self._raced([name for name, entry in self.entries.items() if entry.plan], 2)
        if not medians:
            return
        best = min(medians, key=lambda name: statistics.median(medians[name]))
        pace = statistics.median(medians[best])
        plan = bred(
            problems, self.entries[best].plan or {}, lambda trial: self._fitness(trial, best, pace), breeding
        )
        if all(entry.plan != plan for entry in self.entries.values()):
            self.enter(f"{OURS}, bred", plan)

    def _fitness(self, plan: Plan, beside: str, pace: float) -> float | None:
        """Measured seconds of a run, None if the plan does not work.

        Drift hits all: a trial counts as much as it is faster than ``beside`` in the same rounds, which takes ``pace``.
        """
        trial = "trial"
        works = self.enter(trial, plan)
        medians = self._raced([trial, beside], 2) if works else {}
        del self.entries[trial]
        if works:
            self.contest.leave(trial)
        if trial not in medians or beside not in medians:
            return None
        return pace * statistics.median(a / b for a, b in zip(medians[trial], medians[beside], strict=True))

    def _raced(self, names: Sequence[str], rounds: int) -> dict[str, list[float]]:
        """Medians by round of those that run; who does not is out from now on."""
        running = [name for name in names if not self.entries[name].reason]
        if not running:
            return {}
        medians = self.contest.race(running, rounds, self.settings.round_seconds)
        if not isinstance(medians, str):
            return medians
        alone = {name: self.contest.race([name], rounds, self.settings.round_seconds) for name in running}
        for name, found in alone.items():
            if isinstance(found, str):
                self.entries[name].reason = found
        return {name: found[name] for name, found in alone.items() if not isinstance(found, str)}

    def finish(self) -> tuple[str, Refined]:
        """The last race, of all that could win, in turns: the winner and its program. Raises CollageError."""
        self.tell("racing")
        first = self._raced([name for name in self.entries if name != STOCK], 2) | self._raced([STOCK], 1)
        best = min((min(seconds) for seconds in first.values()), default=0.0)
        hopeful = [name for name, seconds in first.items() if min(seconds) < HOPELESS * best]
        last = self._raced(hopeful, self.settings.rounds)
        for name, seconds in {**first, **last}.items():
            self.entries[name].seconds = seconds
        if not last:
            reasons = "; ".join(f"{name}: {entry.reason}" for name, entry in self.entries.items())
            raise CollageError(f"no program runs: {reasons}")
        winner = winner_of(last, self.settings.margin)
        made = self.entries[winner].made
        assert made is not None
        return winner, Refined(*made, self._report(winner))

    def _report(self, winner: str) -> dict[str, Any]:
        programs = [
            {"name": name, "reason": entry.reason}
            if entry.reason
            else {"name": name, "seconds": statistics.median(entry.seconds), "rounds": list(entry.seconds)}
            for name, entry in self.entries.items()
        ]
        report: dict[str, Any] = {"winner": winner, "programs": programs, "iterations": self.iterations}
        entry = self.entries[winner]
        if entry.plan and entry.made:
            predicted = sum(PLAN.read(entry.made[0][name])["seconds"] for name in entry.plan)
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
