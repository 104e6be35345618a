"""Which offloaded kernels make a program slower than TVM's kernels in their place."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ... import runtime
from ...errors import first_line
from ...program import Program
from .delta import smallest_failing
from .found import Bisection, Suspect
from .partial import OffloadedKernel, PartialPrograms
from .suspects import suspect_of

SHARE = 0.05
"""A program is slower than another if it takes this part of its time longer, in the median of the rounds."""

_ROUNDS = 7
_SECONDS = 0.05
"""The shortest time that a program runs in a round."""

_AGAINST = "tvm"

_DOUBT = (
    "no kernel gains when it is left out, so try again on a quiet machine: it is not known what loses most"
)


@dataclass
class Slow:
    """Times programs in turns, in this process.

    If the offloaded kernels together make the program slower than TVM's, delta debugging finds the smallest set that
    causes at least half of the loss. Otherwise the gain of some may hide the loss of another: each is left out alone,
    and the result are those without which the program is faster.
    """

    programs: PartialPrograms
    inputs: Mapping[str, np.ndarray]
    share: float
    tell: Callable[[str], None]
    _failed: list[str] = field(default_factory=list[str])
    _seconds: dict[str, float] = field(default_factory=dict[str, float])
    _count: int = 2

    def found(self) -> Bisection:
        """The smallest set; raises CollageError where the program cannot run on the inputs."""
        kernels = self.programs.kernels
        self._seconds["compiled"] = statistics.median(self._turns([self.programs.whole])[0])
        if not kernels:
            return self._ended(
                "there is no offloaded kernel that TVM could make instead: none can be left out"
            )
        self.tell("timing the program with all kernels offloaded, and with none")
        whole, without = self.programs.program(kernels), self.programs.program(())
        turns = self._turns([whole, without])
        self._seconds |= dict(
            zip(("rebuilt", "without offloads"), map(statistics.median, turns), strict=True)
        )
        ratio = _ratio(turns)
        if ratio > 1 + self.share:
            return self._together(whole, without, _difference(turns))
        return self._one_by_one(whole, ratio)

    def _together(self, whole: Program, without: Program, loss: float) -> Bisection:
        def loses(kernels: Sequence[OffloadedKernel]) -> bool:
            self.tell(f"{len(kernels)} of {len(self.programs.kernels)} kernels offloaded")
            turns = self._tried(kernels, without)
            return turns is not None and _difference(turns) > loss / 2

        smallest = smallest_failing(self.programs.kernels, loses)
        rest = [kernel for kernel in self.programs.kernels if kernel not in smallest]
        turns = self._tried(rest, whole)
        gain = 0.0 if turns is None else -_difference(turns)
        if turns is not None:
            self._seconds["without the suspects"] = statistics.median(turns[0])
        one = "this kernel loses" if len(smallest) == 1 else f"these {len(smallest)} kernels together lose"
        lost = f"{1e6 * loss:.3g} us that the program takes longer than without offloads"
        if gain <= loss / 4:
            return self._ended(f"{_DOUBT} of the {lost}")
        suspects = [suspect_of(self.programs, kernel) for kernel in smallest]
        if len(suspects) == 1:
            suspects = [replace(suspects[0], gain=gain)]
        return self._ended(f"{one} at least half of the {lost}", suspects)

    def _one_by_one(self, whole: Program, ratio: float) -> Bisection:
        kernels = self.programs.kernels
        slow: list[tuple[float, Suspect]] = []
        for number, kernel in enumerate(kernels, 1):
            self.tell(f"leaving out kernel {number} of {len(kernels)}")
            turns = self._tried([each for each in kernels if each is not kernel], whole)
            if turns is not None and 1 / _ratio(turns) > 1 + self.share:
                gain = -_difference(turns)
                slow.append((gain, replace(suspect_of(self.programs, kernel), gain=gain)))
        slow.sort(key=lambda each: -each[0])
        together = (
            f"the offloaded kernels together take {ratio:.2f}x the time of the program without offloads"
        )
        if not slow:
            return self._ended(
                f"{together}, and leaving out any one of them gains less than {self.share:.0%}"
            )
        what = "one of them is" if len(slow) == 1 else f"{len(slow)} of them are"
        return self._ended(f"{together}, but {what} slower than TVM's kernel", [each for _, each in slow])

    def _tried(self, kernels: Sequence[OffloadedKernel], other: Program) -> list[list[float]] | None:
        """The times of the program with these kernels and of another one, in turns.

        None if it cannot be built or run.
        """
        self._count += 1
        try:
            return self._turns([self.programs.program(kernels), other])
        except Exception as error:  # a foreign compiler or kernel failed: it is not this fault
            self._failed.append(f"{type(error).__name__}: {first_line(error)}")
            return None

    def _turns(self, programs: Sequence[Program]) -> list[list[float]]:
        """The median seconds of a run of each program, by round; they run in turns."""
        runs = [program.prepared(**self.inputs) for program in programs]
        turns: list[list[float]] = [[] for _ in programs]
        for _ in range(_ROUNDS):
            for run, found in zip(runs, turns, strict=True):
                seconds = runtime.measure(
                    run, [], warmup_seconds=_SECONDS / 5, min_runs=3, min_seconds=_SECONDS
                )
                found.append(statistics.median(seconds))
        return turns

    def _ended(self, verdict: str, suspects: Sequence[Suspect] = ()) -> Bisection:
        return Bisection(
            _AGAINST,
            len(self.programs.kernels),
            tuple(suspects),
            verdict,
            self._count,
            failed=tuple(dict.fromkeys(self._failed)),
            seconds=tuple(self._seconds.items()),
        )


def _ratio(turns: Sequence[Sequence[float]]) -> float:
    """The time of the first program over that of the second: the median of the rounds."""
    return statistics.median(first / second for first, second in zip(*turns, strict=True))


def _difference(turns: Sequence[Sequence[float]]) -> float:
    """By how many seconds the first program takes longer than the second one, in the median of the rounds."""
    return statistics.median(first - second for first, second in zip(*turns, strict=True))
