"""Sizes between the samples: the fastest program is called there too, and another one has to confirm its results.

Kernels are measured, and programs are compared, at the sample sizes. A kernel that does not run at another size, or is
wrong there, would not be noticed otherwise.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import numpy as np

from ..errors import CollageError
from ..plan.comparison import DIFFERS, FirstCall
from ..plan.ranges import named
from ..profile.inputs import inputs_of_sizes, unmet_sizes
from ..profile.programs import FirstResults
from ..profile.results import most_apart
from .comparison import Comparison


def confirmed(comparison: Comparison, winner: str) -> tuple[str, FirstCall | None]:
    """The fastest program, from ``winner`` on, that is right with sizes that are none of the samples.

    With it the slowest of its first calls with them, compared with later ones.

    A program is right if another one has the same results. Those before it are dropped with a reason. If no two agree,
    the first one that runs is taken, and :attr:`FirstCall.differs` says so. If none runs, the model does not take these
    sizes.
    """
    calls: list[FirstCall] = []
    for sizes in unmet_sizes(comparison.builder.imported):
        chosen, call = _confirmed_with(comparison, winner, sizes)
        calls = [*(calls if chosen == winner else []), *([call] if call else [])]
        winner = chosen
    return winner, max(calls, key=lambda call: (bool(call.differs), call.seconds / call.later), default=None)


def _confirmed_with(
    comparison: Comparison, winner: str, sizes: Mapping[str, int]
) -> tuple[str, FirstCall | None]:
    """:func:`confirmed` with these sizes."""
    try:
        inputs = inputs_of_sizes(comparison.builder.imported, sizes)
    except CollageError:  # no tensor has these sizes
        return winner, None
    trial = _Trial(comparison, winner, inputs)
    chosen, differs = trial.chosen()
    for name in trial.names[: trial.names.index(chosen)]:
        found = trial.called(name)
        why = found if isinstance(found, str) else f"{DIFFERS} from those of all others"
        lossy = comparison.why_lossy(name)  # with any sizes
        comparison.programs[name].reason = lossy or f"with {named(sizes)}: {why}"
    first, later = trial.called(chosen), comparison.worker.later_calls(chosen, inputs)
    if isinstance(first, str) or isinstance(later, str):
        return chosen, None
    return chosen, FirstCall(dict(sizes), first.seconds, later, differs, first.kernels, first.compiling)


class _Trial:
    """The programs, fastest first, each called when its results are needed."""

    def __init__(self, comparison: Comparison, winner: str, inputs: list[np.ndarray]):
        self._comparison = comparison
        self._inputs = inputs
        self._found: dict[str, FirstResults | str] = {}
        running = {
            name: statistics.median(program.seconds)
            for name, program in comparison.programs.items()
            if program.seconds and not program.reason
        }
        self.names = [winner, *sorted(running.keys() - {winner}, key=running.__getitem__)]

    def called(self, name: str) -> FirstResults | str:
        """The first call of a program and its results, or why it does not run or may not be the result."""
        if name not in self._found:
            reason = self._comparison.why_lossy(name)
            self._found[name] = reason or self._comparison.worker.first_call(name, self._inputs)
        return self._found[name]

    def chosen(self) -> tuple[str, str]:
        """The first program with the results of another one, or else the first that runs, and what it differs by."""
        for name in self.names:
            if any(self._agree(name, other) for other in self.names if other != name):
                return name, ""
        running = [name for name in self.names if not isinstance(self.called(name), str)]
        if len(running) < 2:
            return (running or self.names)[0], ""
        return running[0], f"by {self._apart(*running[:2]):.0e} of their range from those of {running[1]}"

    def _agree(self, name: str, other: str) -> bool:
        """Whether two programs run and differ by no more than the tolerance, or twice as much as at the samples."""
        if isinstance(self.called(name), str) or isinstance(self.called(other), str):
            return False
        at_samples = self._comparison.worker.error(name, other)
        usual = 0.0 if isinstance(at_samples, str) else 2 * at_samples
        return self._apart(name, other) <= max(self._comparison.settings.tolerance, usual)

    def _apart(self, name: str, other: str) -> float:
        mine, theirs = self.called(name), self.called(other)
        assert not isinstance(mine, str) and not isinstance(theirs, str)
        return most_apart(mine.results, theirs.results)
