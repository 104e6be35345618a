"""Runs programs with timing points, and assigns the readings of the clock to the kernels that were called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi

from ..errors import CollageError
from .timing_points import ENTER, TimedRegion

_DIFFERENT = "the program cannot be profiled: its kernels differ from run to run"


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A call of a kernel in a run: its beginning and its length, both in seconds, the first since the first reading."""

    region: int
    step: int
    start: float
    seconds: float


def decoded(
    regions: Sequence[TimedRegion], entered: Sequence[int], gaps: Sequence[float]
) -> tuple[list[KernelCall], list[float]]:
    """The calls of one run in their order, and the seconds of each pair of readings with nothing between them.

    ``entered``: the branches that the run has passed. ``gaps``: the seconds between its readings. Raises
    CollageError where these do not fit.
    """
    marks, path = _times(gaps), iter(entered)
    calls: list[KernelCall] = []
    readings: list[float] = []

    def run(number: int) -> float:
        begin = next(marks)
        last = next(marks)
        readings.append(last - begin)
        for step, call in enumerate(regions[number].steps):
            if call is None or isinstance(call, int):
                run(next(path) if call is None else call)
                last = next(marks)
            else:
                now = next(marks)
                calls.append(KernelCall(number, step, last, now - last))
                last = now
        return last

    try:
        run(0)
    except (StopIteration, RuntimeError):
        raise CollageError(_DIFFERENT) from None
    if next(marks, None) is not None or next(path, None) is not None:
        raise CollageError(_DIFFERENT)
    return calls, readings


_entered: list[int] = []
"""The branches that running programs have announced."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The readings of several runs, in seconds."""

    gaps: list[list[float]]
    """From each reading of a run to the next one."""
    pauses: list[float]
    """The seconds from the last reading of each run to the first one of the next run: time of the caller."""
    lanes: list[Any]
    """For each run, what ``after_run`` returned."""


class Recorder:
    """Runs a program with timing points. One at a time can run in a process: they share the list of readings."""

    def __init__(self, run: Any, after_run: Callable[[], Any] = lambda: None):
        """``run``: a function of no arguments that runs the program with timing points once.

        ``after_run`` is called after each run that is recorded, for what the run has left in memory.
        """
        self.run = run
        self._after_run = after_run
        self._start, self._read = (
            tvm_ffi.get_global_func(f"collage.profile.{name}") for name in ("start", "read")
        )
        self.readings, self.path = self._once()
        """How often a run reads the clock, and the branches that it passes."""

    def runs(self, count: int) -> Runs:
        """Run ``count`` times; raises CollageError if the runs pass different branches."""
        _entered.clear()
        self._start(count * self.readings)
        lanes: list[Any] = []
        for _ in range(count):
            self.run()
            lanes.append(self._after_run())
        found = [float(gap) for gap in self._read()]
        self._start(0)
        if len(found) != count * self.readings - 1 or _entered != self.path * count:
            raise CollageError(_DIFFERENT)
        per_run = [found[first : first + self.readings - 1] for first in range(0, len(found), self.readings)]
        return Runs(per_run, found[self.readings - 1 :: self.readings], lanes)

    def _once(self) -> tuple[int, list[int]]:
        _entered.clear()
        self._start(0)
        self.run()
        return len(self._read()) + 1, list(_entered)


def take_announcements() -> None:
    """Register the function with which branches announce themselves; call it before such a program runs."""
    tvm_ffi.register_global_func(ENTER, _entered.append, override=True)


def _times(gaps: Sequence[float]) -> Iterator[float]:
    now = 0.0
    yield now
    for gap in gaps:
        now += gap
        yield now
