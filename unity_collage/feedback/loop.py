"""The loop: plan, run the whole program, learn from its clock, plan again; the fastest program wins.

Prices are measured kernel by kernel, and programs are not sums. So the plan of the search, and what a user would have
picked instead, are built with a clock between their kernels and run in turns; what kernels take there replaces their
prices, and the search is asked again, until it answers with a plan that is known. In the end these plans, greedy, each
backend alone and stock TVM run in turns. The user gets the winner, whoever it is. Whoever cannot be built or run is
out, with its reason; the others go on.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import numpy as np
from tvm.ir import IRModule
from tvm.target import Target

from .. import runtime
from ..annotations import PLAN
from ..database.costs import CostDatabase
from ..profile import Contest
from ..search.auto import solve
from ..search.ties import settled
from .breeding import Breeding, bred
from .entrants import OURS, Plan, entrants, ids_of, problems_of
from .in_place import InPlace
from .maker import Maker
from .observed import with_observed
from .race import Race
from .records import Records, described, plan_of, records_of
from .settings import Refined, Refinement, Tell


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
        race = Race(maker, settings, contest, tell)
        race.enter_all(plans)
        if not is_budget_spent():
            learn(race, priority)
        if settings.breeding is not None and not is_budget_spent():
            breed(race, settings.breeding)
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


def learn(race: Race, priority: Sequence[str]) -> None:
    """Ask the search again with prices from the running programs, as long as it has a new answer."""
    with InPlace(race.maker, race.contest) as in_place:
        fresh = race.hopeful()
        for number in range(1, race.settings.feedback + 1):
            if not _observe(race, in_place, fresh):
                return
            priced = with_observed(race.maker.priced, in_place.by_candidate())
            plan = {
                key: ids_of(settled(problem, solve(problem), priority))
                for key, problem in problems_of(priced).items()
            }
            name = f"{OURS}, informed {number}"
            if any(entry.plan == plan for entry in race.entries.values()) or not race.enter(name, plan):
                return
            fresh = [name]


def _observe(race: Race, in_place: InPlace, names: Sequence[str]) -> bool:
    """Time the kernels of these programs and of those before, in turns; whether anything was timed."""
    for name in names:
        race.tell(f"timing the kernels of {name}")
        made = race.entries[name].made
        assert made is not None
        if (reason := in_place.add(name, made[0])) is not None:
            race.tell(f"the kernels of {name} are not timed: {reason}")
    paces = {
        name: statistics.median(seconds) for name, seconds in race.raced(list(in_place.programs), 1).items()
    }
    for name, reason in in_place.run(paces).items():
        race.tell(f"the kernels of {name} are not timed: {reason}")
    for name in names:
        made = race.entries[name].made
        if name in in_place.programs and made is not None:
            predicted = PLAN.read(made[0]["main"])["seconds"]
            race.iterations.append(
                {"plan": name, "predicted": predicted, "kernels_in_place": in_place.total(name)}
            )
    return bool(in_place.programs)


def breed(race: Race, breeding: Breeding) -> None:
    """Enter the best plan that breeding finds by measured time."""
    problems = problems_of(race.maker.priced)
    medians = race.raced([name for name, entry in race.entries.items() if entry.plan], 2)
    if not medians:
        return
    best = min(medians, key=lambda name: statistics.median(medians[name]))
    pace = statistics.median(medians[best])
    plan = bred(
        problems, race.entries[best].plan or {}, lambda trial: _fitness(race, trial, best, pace), breeding
    )
    if all(entry.plan != plan for entry in race.entries.values()):
        race.enter(f"{OURS}, bred", plan)


def _fitness(race: Race, plan: Plan, beside: str, pace: float) -> float | None:
    """Measured seconds of a run, None if the plan does not work.

    Drift hits all: a trial counts as much as it is faster than ``beside`` in the same rounds, which takes ``pace``.
    """
    trial = "trial"
    works = race.enter(trial, plan)
    medians = race.raced([trial, beside], 2) if works else {}
    race.withdraw(trial)
    if trial not in medians or beside not in medians:
        return None
    return pace * statistics.median(a / b for a, b in zip(medians[trial], medians[beside], strict=True))
