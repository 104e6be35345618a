"""Comparison: candidate programs for one model are built, checked against each other, and timed in turns."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..annotations import PLAN
from ..cost.method import MEDIAN, Method
from ..errors import CollageError, is_of_user, last_line
from ..plan.comparison import DIFFERS, Denormals, Prediction, ProgramComparison, ProgramTimes
from ..profile.inputs import samples_of, why_not_exceptional
from ..profile.programs import LEAST_RUNS, ProgramWorker
from ..profile.rounded_inputs import ROUNDING
from .builder import Built, ProgramBuilder
from .candidates import OURS, Choice
from .room import OF_A_PLAN, why_no_room
from .settings import Refined, Refinement, Tell

STOCK = "stock tvm"

_UNEXPECTED = 1.2
"""A program that takes this many times as long as its kernels cost is timed without denormal numbers too."""

HOPELESS = 3.0
"""A program that takes this many times as long as the fastest one is left out of the last rounds."""

_ROUNDING_SECONDS = 1.0
"""For how long programs run on changed inputs."""

_LONGEST = 200
"""The number of letters of each reason in the error if no program runs."""

_SLOW_RUN = 1.0
"""Of programs whose runs take more seconds, those that are not faster than ours in one run are left out at once."""

_SLOW_ROUNDS = 15.0
"""Where the first two rounds of programs take longer, there are no others.

Nor are more exceptional inputs tried after as many seconds.
"""

_MOST_LOST = 7
"""A winner may be slower than our program in one of every this many rounds; in fewer rounds, in none."""


@dataclass(slots=True)
class CandidateProgram:
    """A candidate program, or the reason why there is none."""

    choice: Choice | None
    """None: TVM alone, without a plan."""
    built: Built | None = None
    seconds: list[float] = field(default_factory=list)
    reason: str = ""
    remark: str = ""
    loses: str | None = None
    """Which exceptional inputs it makes numbers of, in a sentence; empty: of none, None: not known yet."""


@dataclass(slots=True)
class Comparison:
    """Programs by name, which run in turns. One that cannot be built or run is dropped, with a reason."""

    builder: ProgramBuilder
    settings: Refinement
    worker: ProgramWorker
    tell: Tell
    programs: dict[str, CandidateProgram] = field(default_factory=dict[str, CandidateProgram])
    iterations: list[Prediction] = field(default_factory=list[Prediction])
    left_out: bool = False
    """Whether there was no time or no memory to build some program."""

    def add(self, name: str, choice: Choice) -> bool:
        """Build and load the program of ``choice``; whether it runs, and computes what the first program does."""
        return self.add_built(name, choice, lambda: self.builder.chosen(choice, name))

    def leave_out(self, name: str, choice: Choice | None, reason: str) -> None:
        """List a program that is not built."""
        self.programs[name] = CandidateProgram(choice, reason=reason)

    def add_stock(self) -> None:
        """Add the program that TVM alone makes."""
        self.add_built(STOCK, None, self.builder.stock)

    def add_built(
        self, name: str, choice: Choice | None, build: Callable[[], Built], copies: int = OF_A_PLAN
    ) -> bool:
        """:meth:`add` for what ``build`` returns; ``copies`` of the weights are in memory then."""
        reference = self._reference()
        if reference is not None and (reason := self._why_less_exact(name)):
            self.leave_out(name, choice, f"not built: {reason}")
            return False
        if self.programs and (reason := why_no_room(self.builder.imported, copies)) is not None:
            self.leave_out(name, choice, f"not built: {reason}")
            self.left_out = True
            return False
        self.tell(f"building {name}")
        program = self.programs[name] = CandidateProgram(choice)
        try:
            program.built = build()
            program.reason = self.worker.add(name, program.built[1]) or ""
        except Exception as error:  # a compiler failed: the comparison goes on without this program
            if is_of_user(error):
                raise
            program.reason = f"it cannot be built: {type(error).__name__}: {last_line(error)}"
        if not program.reason and reference is not None:
            program.reason = self._why_wrong(name, reference)
        return not program.reason

    def remove(self, name: str) -> None:
        """Remove a program that was only a trial."""
        del self.programs[name]
        self.worker.remove(name)

    def _reference(self) -> str | None:
        """The first program that runs; the others must compute what it does."""
        return next((name for name, each in self.programs.items() if each.built and not each.reason), None)

    def _why_less_exact(self, name: str) -> str | None:
        """Why another runtime's program has fewer digits than the others, or None."""
        entrant = self.builder.whole_models.get(name)
        return None if entrant is None else entrant.why_less_exact(self.builder.imported)

    def _why_not_faster(self, name: str, reference: str) -> str:
        """Why another runtime's program of a model that runs for seconds is not looked at any further, or empty.

        The checks run each program several times. One run tells whether it may be the fastest.
        """
        if name not in self.builder.whole_models or not self.settings.is_optional:
            return ""
        known = self.worker.seconds_so_far(reference)
        if isinstance(known, str) or known < _SLOW_RUN:
            return ""
        found = self.worker.once([name, reference])
        if isinstance(found, str):
            return found
        theirs, ours = found
        if theirs < ours:
            return ""
        return f"left out: a run of it takes {theirs:.2g} s, and one of {reference} {ours:.2g} s"

    def _why_wrong(self, name: str, reference: str) -> str:
        if reason := self._why_not_faster(name, reference):
            return reason
        error = self.worker.error(name, reference)
        if isinstance(error, str):
            return error
        if error > self.settings.tolerance:
            differs = f"from those of {reference} by {error:.0e} of their range"
            rounding = self._rounding_error(name, reference, error)
            if error > rounding:
                return f"{DIFFERS} {differs}"
            self.programs[name].remark = (
                f"the outputs of {name} differ {differs}, which is rounding: on inputs that are changed by "
                f"{ROUNDING:.0e} the outputs of both change by up to {rounding:.0e}"
            )
        return ""

    def why_lossy(self, name: str) -> str:
        """Why the program of another runtime may not be the result although it runs and is right, or empty.

        It makes numbers of NaN or infinities in the inputs. This takes several runs, so it is asked only of programs
        that would be the result, or confirm it.
        """
        program, reference = self.programs[name], self._reference()
        if program.loses is None:
            program.loses = ""
            is_asked = name in self.builder.whole_models and reference not in (None, name)
            if is_asked and why_not_exceptional(self.builder.imported) is None:
                program.loses = self._why_lossy(name, str(reference))
        return program.loses

    def _why_lossy(self, name: str, reference: str) -> str:
        lost = self.worker.lost(name, reference, _SLOW_ROUNDS)
        if isinstance(lost, str):
            return lost
        return f"it makes numbers of {' and '.join(lost)} in the inputs" if lost else ""

    def _rounding_error(self, name: str, reference: str, error: float) -> float:
        """By how much the outputs of a whole model may differ because it makes steps of what rounding changes.

        Each program may be off by what changed inputs change its outputs, so the two differ by at most the sum. It is 0
        for other programs, if ``error`` is too much in any case, and if changed inputs make other infinities or NaN.
        """
        if name not in self.builder.whole_models or error > self.settings.rounding_tolerance:
            return 0.0
        found = self.worker.rounding_errors([name, reference], _ROUNDING_SECONDS)
        return 0.0 if isinstance(found, str) or not all(map(math.isfinite, found)) else sum(found)

    def promising(self) -> list[str]:
        """The programs of plans that are not much slower than the fastest one: their kernels are worth profiling."""
        medians = self.timed(
            [name for name, program in self.programs.items() if "main" in (program.choice or {})], 1
        )
        best = min((min(seconds) for seconds in medians.values()), default=0.0)
        return [name for name, seconds in medians.items() if min(seconds) < HOPELESS * best]

    def timed(self, names: Sequence[str], rounds: int) -> dict[str, list[float]]:
        """The median seconds of these programs by round; a program that does not run is dropped.

        The others run in turns again then. If they fail only together, each is timed alone.
        """
        running = [name for name in names if name in self.programs and not self.programs[name].reason]
        if not running:
            return {}
        medians = self._in_turns(running, rounds)
        if not isinstance(medians, str):
            return medians
        alone = {name: self._in_turns([name], rounds) for name in running}
        for name, seconds in alone.items():
            if isinstance(seconds, str):
                self.programs[name].reason = seconds
        left = [name for name in running if not self.programs[name].reason]
        if 1 < len(left) < len(running):
            return self.timed(left, rounds)
        found = {name: each[name] for name, each in alone.items() if not isinstance(each, str)}
        least = min(map(len, found.values()), default=0)  # a program that takes long has fewer rounds
        return {name: seconds[:least] for name, seconds in found.items()}

    def _in_turns(self, names: Sequence[str], rounds: int) -> dict[str, list[float]] | str:
        """The median, or the percentile of the settings, of these programs by round; or the reason for none."""
        seconds, percentile = self.settings.round_seconds, self.settings.percentile
        if percentile == MEDIAN:
            return self.worker.timed_in_turns(names, rounds, seconds)
        # All rounds together have as many runs as the percentile of a cost needs.
        runs = max(LEAST_RUNS, -(-Method.of(percentile).min_runs // self.settings.rounds))
        return self.worker.timed_in_turns(names, rounds, seconds, percentile, runs)

    def finish(self, is_busy: Callable[[], bool] = lambda: False) -> str:
        """Time the programs that could be the fastest; the name of the winner. Raises CollageError if none runs.

        ``is_busy`` is called when all have run: on a busy machine another runtime replaces ours only if it is faster
        than our kernels cost. Its threads share work in another way, so other processes slow our program down more.
        """
        self.tell("timing whole programs in turns")
        first = self.timed([name for name in self.programs if name != STOCK], 2) | self.timed([STOCK], 1)
        while first:
            last = self._last_rounds(first)
            for name, seconds in {**first, **last}.items():
                self.programs[name].seconds = seconds
            if not last:  # the programs that were promising do not run in turns
                first = {name: seconds for name, seconds in first.items() if not self.programs[name].reason}
                continue
            winner = winner_of(self._sure(last) if is_busy() else last, self.settings.margin)
            if not (reason := self.why_lossy(winner)):
                return winner
            # Others may have seemed hopeless beside it.
            self.programs[winner].reason = reason
            del first[winner]
        reasons = "; ".join(f"{name}: {program.reason[:_LONGEST]}" for name, program in self.programs.items())
        raise CollageError(f"no program runs: {reasons}")

    def _last_rounds(self, first: Mapping[str, list[float]]) -> dict[str, list[float]]:
        """More rounds of the programs that are not hopeless; the ``first`` ones where runs take that long."""
        best = min((min(seconds) for seconds in first.values()), default=0.0)
        promising = [name for name, seconds in first.items() if min(seconds) < HOPELESS * best]
        spent = sum(sum(seconds) for seconds in first.values())
        if spent < _SLOW_ROUNDS or not self.settings.is_optional or self.settings.percentile != MEDIAN:
            return self.timed(promising, self.settings.rounds)
        least = min(len(first[name]) for name in promising)
        return {name: first[name][:least] for name in promising}

    def result(self, winner: str) -> Refined:
        """The program ``winner``, and the report."""
        built = self.programs[winner].built
        assert built is not None
        return Refined(*built, self._report(winner))

    def denormals(self) -> Denormals | None:
        """What denormal numbers cost our program; None where it takes about what its kernels cost."""
        ours = self.programs[OURS]
        predicted = self._predicted(OURS)
        if not predicted or not ours.seconds or statistics.median(ours.seconds) < _UNEXPECTED * predicted:
            return None
        found = self.worker.denormals(OURS)
        return None if isinstance(found, str) else Denormals(*found)

    def _sure(self, medians: Mapping[str, Sequence[float]]) -> Mapping[str, Sequence[float]]:
        """The programs without other runtimes that are not faster than our kernels cost; all programs if none is
        left.
        """
        cost = self._predicted(OURS)
        kept = {
            name: seconds
            for name, seconds in medians.items()
            if name not in self.builder.whole_models
            or (cost is not None and statistics.median(seconds) < cost)
        }
        return kept or medians

    def _predicted(self, name: str) -> float | None:
        """The cost of the kernels of a program.

        None without a plan, and for programs that are timed at several sizes.
        """
        program = self.programs[name]
        if not program.choice or not program.built or samples_of(self.builder.imported):
            return None
        return sum(PLAN.read(program.built[0][function]).seconds for function in program.choice)

    def _report(self, winner: str) -> ProgramComparison:
        return ProgramComparison(
            winner,
            tuple(_times(name, program) for name, program in self.programs.items()),
            tuple(self.iterations),
            self._predicted(winner),
            statistics.median(self.programs[winner].seconds),
        )


def _times(name: str, program: CandidateProgram) -> ProgramTimes:
    if program.reason:
        return ProgramTimes(name, reason=program.reason)
    seconds = statistics.median(program.seconds)
    return ProgramTimes(name, seconds, tuple(program.seconds), remark=program.remark)


def winner_of(medians: Mapping[str, Sequence[float]], margin: float) -> str:
    """The fastest program by the median of its ratios to ours within each round.

    It is ours unless the other one is ``margin`` faster, and faster in all rounds but one in ``_MOST_LOST``: chance
    alone would make the best of several equal programs a little faster.
    """

    def ratios(name: str) -> list[float]:
        return [theirs / ours for theirs, ours in zip(medians[name], medians[OURS], strict=True)]

    if OURS not in medians:
        return min(medians, key=lambda name: statistics.median(medians[name]))
    best = min(medians, key=lambda name: statistics.median(ratios(name)))
    found = ratios(best)
    lost = sum(ratio >= 1.0 for ratio in found)
    return best if statistics.median(found) < 1 - margin and lost <= len(found) // _MOST_LOST else OURS
