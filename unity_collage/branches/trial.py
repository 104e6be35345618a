"""Which branches to run side by side, by what kernels take in the running program on one core and on all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from tvm.ir import IRModule
from tvm.target import Target

from ..build import link, lower
from ..contest import Contest, InsertTicks, ticked_kernels
from ..cost.inputs import random_inputs
from ..errors import CollageError
from ..processes import last_line
from .calls import Calls
from .merge import staged
from .stages import Stage, Step, stages_of

_TURNS = 10
"""Rounds in which programs, or numbers of threads, run in turns; the first warms up."""
_SECONDS = 0.05
"""That each runs in a turn, about."""
_ATTEMPTS = 2
"""Programs with stages that are built at most: one with all, one without those that were slower than their kernels."""
_NEGLIGIBLE = 0.01
"""Stages that are slower stay if all of them cost this part of the program's time at most: the program with them is the
one that was measured, and kernels are not independent of each other."""
LEAST_GAIN = 0.02
"""By this part of the time of the program without stages one with them is faster, or it is not taken."""
_TOLERANCE = 1e-4
"""Largest difference of outputs, over their range, from those of the program without stages."""

_SPLIT, _STAGED = "split", "side by side"


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of a trial."""

    stages: tuple[Stage, ...] = ()
    """All steps of the program; none: it stays as it is."""
    split: float = 0.0
    """Seconds of all kernels of the program without stages, when all cores share each of them."""
    side_by_side: float = 0.0
    """Seconds of all kernels of the program with stages."""


@dataclass(frozen=True, slots=True)
class _Timing:
    """Programs with a clock between their kernels."""

    contest: Contest
    target: Target

    def enter(self, name: str, mod: IRModule, kernels: Sequence[str]) -> None:
        """Let the program of ``mod``, which calls these kernels, take part."""
        try:
            lowered = lower(mod, self.target)
            executable = link(InsertTicks()(lowered), self.target)
        except Exception as error:  # a foreign compiler failed
            raise CollageError(f"{type(error).__name__}: {last_line(error)}") from error
        if ticked_kernels(lowered["main"]) != list(kernels):
            raise CollageError("TVM's pipeline has changed the program's kernels")
        if reason := self.contest.enter(name, executable):
            raise CollageError(reason)

    def turns(self, runs: Sequence[tuple[str, int, int | None]]) -> list[list[list[float]]]:
        """What the kernels of each run take, by turn; a run is a name, its number of kernels, its threads or None."""
        found: list[list[list[float]]] = [[] for _ in runs]
        rounds = 3
        for _ in range(_TURNS):
            for position, (name, kernels, threads) in enumerate(runs):
                seconds = self.contest.ticks(name, kernels, rounds, threads)
                if isinstance(seconds, str):
                    raise CollageError(seconds)
                found[position].append(seconds)
            rounds = max(3, min(100, int(_SECONDS / max(sum(turns[0]) for turns in found))))
        return [turns[1:] for turns in found]


def tried(mod: IRModule, calls: Calls, target: Target, threads: int) -> Tried:
    """The stages with which the program is faster, timed kernel by kernel in the running program.

    Raises CollageError where it cannot be built or run with a clock between its kernels.
    """
    with Contest(_inputs(mod), threads) as contest:
        timing = _Timing(contest, target)
        names = calls.kernel_names()
        timing.enter(_SPLIT, mod, names)
        known = timing.turns([(_SPLIT, len(names), None), (_SPLIT, len(names), 1)])
        split, single = (dict(zip(calls.kernels, _medians(turns), strict=True)) for turns in known)
        steps = [
            Step(sources, split.get(number, 0.0), single[number] if number in calls.movable else None)
            for number, sources in enumerate(calls.sources)
        ]
        stages = stages_of(steps, threads)
        best = Tried()
        for _ in range(_ATTEMPTS):
            if all(len(stage) == 1 for stage in stages):
                break
            found = _compared(timing, mod, calls, stages)
            if found.is_faster() and (not best.stages or found.outcome.side_by_side < best.side_by_side):
                best = found.outcome
            losing = found.losing()
            if not losing:
                break
            stages = [
                part for stage in stages for part in (_one_by_one(stage) if stage in losing else [stage])
            ]
        return best


@dataclass(frozen=True, slots=True)
class _Compared:
    """A program with stages beside the one without, by turn."""

    outcome: Tried
    split: list[float]
    side_by_side: list[float]
    lost: dict[Stage, float]
    """Seconds by which a stage is slower than its kernels were."""

    def is_faster(self) -> bool:
        """Whether it is so by the margin in most turns, and at all in nearly all of them."""
        ratios = sorted(a / b for a, b in zip(self.side_by_side, self.split, strict=True))
        return median(ratios) <= 1 - LEAST_GAIN and ratios[-2] < 1.0

    def losing(self) -> set[Stage]:
        """The stages that are slower than their kernels were; none if that is not worth another program."""
        return set(self.lost) if sum(self.lost.values()) > _NEGLIGIBLE * median(self.split) else set()


def _compared(timing: _Timing, mod: IRModule, calls: Calls, stages: Sequence[Stage]) -> _Compared:
    """Build the program with ``stages`` and time it in turns with the one without."""
    program = staged(mod, calls, stages)
    called = Calls.of(program)
    assert isinstance(called, Calls)
    names = called.kernel_names()
    timing.contest.leave(_STAGED)
    timing.enter(_STAGED, program, names)
    error = timing.contest.error(_STAGED, _SPLIT)
    if isinstance(error, str) or error > _TOLERANCE:
        raise CollageError(f"branches side by side compute something else: {error}")
    apart, together = timing.turns([(_SPLIT, len(calls.kernels), None), (_STAGED, len(names), None)])
    alone = dict(zip(calls.kernels, _medians(apart), strict=True))
    running = [stage for stage in stages if stage[0][0] in alone]
    lost = {
        stage: more
        for stage, seconds in zip(running, _medians(together), strict=True)
        if len(stage) > 1
        and (more := seconds - sum(alone[number] for lane in stage for number in lane)) > 0.0
    }
    split, side_by_side = [sum(turn) for turn in apart], [sum(turn) for turn in together]
    return _Compared(Tried(tuple(stages), median(split), median(side_by_side)), split, side_by_side, lost)


def _medians(turns: Sequence[Sequence[float]]) -> list[float]:
    return [median(of_kernel) for of_kernel in zip(*turns, strict=True)]


def _one_by_one(stage: Stage) -> list[Stage]:
    return [((number,),) for lane in stage for number in lane]


def _inputs(mod: IRModule) -> list[np.ndarray]:
    """Random ones; integers, which may be indices, are 0."""
    main: Any = mod["main"]
    return [value if value.dtype.kind == "f" else np.zeros_like(value) for value in random_inputs(main)]
