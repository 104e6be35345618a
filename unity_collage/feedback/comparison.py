"""Race: programs for one model, built, checked against each other and run in turns; the fastest wins."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..annotations import PLAN
from ..errors import CollageError
from ..processes.child import last_line
from ..profile import Contest
from .entrants import OURS, Plan
from .maker import Made, Maker
from .settings import Refined, Refinement, Tell

STOCK = "stock tvm"

HOPELESS = 3.0
"""A program that takes so many times as long as the fastest is not in the last race."""


@dataclass(slots=True)
class Entry:
    """A program, or why there is none."""

    plan: Plan | None
    """None: TVM alone, without a plan."""
    made: Made | None = None
    seconds: list[float] = field(default_factory=list)
    reason: str = ""


@dataclass(slots=True)
class Race:
    """Programs that are entered under names, and run in turns; who cannot be built or run is out, with a reason."""

    maker: Maker
    settings: Refinement
    contest: Contest
    tell: Tell
    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])
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
        entry = self.entries[name] = Entry(plan)
        reference = self._reference()
        try:
            entry.made = make()
            entry.reason = self.contest.enter(name, entry.made[1]) or ""
        except Exception as error:  # a compiler failed: the others go on without it
            entry.reason = f"it cannot be built: {type(error).__name__}: {last_line(error)}"
        if not entry.reason and reference is not None:
            entry.reason = self._why_wrong(name, reference)
        return not entry.reason

    def withdraw(self, name: str) -> None:
        """The program was a trial, and is over."""
        del self.entries[name]
        self.contest.leave(name)

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

    def hopeful(self) -> list[str]:
        """The programs of plans that are not much slower than the fastest: what they do well is worth knowing."""
        medians = self.raced(
            [name for name, entry in self.entries.items() if "main" in (entry.plan or {})], 1
        )
        best = min((min(seconds) for seconds in medians.values()), default=0.0)
        return [name for name, seconds in medians.items() if min(seconds) < HOPELESS * best]

    def raced(self, names: Sequence[str], rounds: int) -> dict[str, list[float]]:
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
        first = self.raced([name for name in self.entries if name != STOCK], 2) | self.raced([STOCK], 1)
        best = min((min(seconds) for seconds in first.values()), default=0.0)
        hopeful = [name for name, seconds in first.items() if min(seconds) < HOPELESS * best]
        last = self.raced(hopeful, self.settings.rounds)
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
