"""Chooses the branches to run side by side, by the times of kernels in the running program on one core and on all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tvm.ir import IRModule
from tvm.target import Target

from ..errors import CollageError
from ..lowering.branches.calls import Calls
from ..lowering.branches.merge import staged
from ..lowering.branches.stages import Stage, Step, stages_of
from ..profile.inputs import dummy_inputs
from ..profile.kernels import KernelProfiler, Run, medians
from ..profile.programs import ProgramWorker

_ATTEMPTS = 2
"""The most programs with stages that are built: one with all stages, one without the slow ones."""
_NEGLIGIBLE = 0.01
"""Slow stages stay if together they cost at most this part of the program's time. The program was measured with them,
and kernels affect each other."""
LEAST_GAIN = 0.02
"""The part of its time that the program must save with stages."""
_TOLERANCE = 1e-4
"""The largest difference of outputs from those of the program without stages, as a part of their range."""

_SPLIT, _STAGED = "split", "side by side"


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of a trial."""

    stages: tuple[Stage, ...] = ()
    """All steps of the program in stages; empty: the program does not change."""
    split: float = 0.0
    """Seconds of all kernels of the program without stages, where all cores share each kernel."""
    side_by_side: float = 0.0
    """Seconds of all kernels of the program with stages."""


def tried(mod: IRModule, calls: Calls, target: Target, threads: int) -> Tried:
    """The stages that make the program faster, found by profiles of the running program.

    Raises CollageError where the program cannot be built or profiled.
    """
    with ProgramWorker([dummy_inputs(mod)], threads, model=mod) as worker:
        profiler = KernelProfiler(worker, target)
        names = calls.kernel_names()
        _add(profiler, _SPLIT, mod, names)
        known = profiler.turns([Run(_SPLIT, len(names)), Run(_SPLIT, len(names), 1)])
        split, single = (dict(zip(calls.kernels, medians(turns), strict=True)) for turns in known)
        steps = [
            Step(sources, split.get(number, 0.0), single[number] if number in calls.movable else None)
            for number, sources in enumerate(calls.sources)
        ]
        stages = stages_of(steps, threads)
        best = Tried()
        for _ in range(_ATTEMPTS):
            if all(len(stage) == 1 for stage in stages):
                break
            found = _compared(profiler, mod, calls, stages)
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
    """A program with stages and the one without, both timed in turns."""

    outcome: Tried
    split: list[float]
    side_by_side: list[float]
    lost: dict[Stage, float]
    """By how many seconds each slow stage is slower than its kernels were."""

    def is_faster(self) -> bool:
        """Whether the program with stages is faster by ``LEAST_GAIN`` in most turns, and faster in nearly all."""
        ratios = sorted(a / b for a, b in zip(self.side_by_side, self.split, strict=True))
        return median(ratios) <= 1 - LEAST_GAIN and ratios[-2] < 1.0

    def losing(self) -> set[Stage]:
        """The slow stages; none if they cost too little to build another program."""
        return set(self.lost) if sum(self.lost.values()) > _NEGLIGIBLE * median(self.split) else set()


def _compared(profiler: KernelProfiler, mod: IRModule, calls: Calls, stages: Sequence[Stage]) -> _Compared:
    """Build the program with ``stages`` and time it in turns with the one without."""
    program = staged(mod, calls, stages)
    called = Calls.of(program)
    assert isinstance(called, Calls)
    names = called.kernel_names()
    profiler.worker.remove(_STAGED)
    _add(profiler, _STAGED, program, names)
    error = profiler.worker.error(_STAGED, _SPLIT)
    if isinstance(error, str) or error > _TOLERANCE:
        raise CollageError(f"the program with branches side by side computes other numbers: {error}")
    apart, together = profiler.turns([Run(_SPLIT, len(calls.kernels)), Run(_STAGED, len(names))])
    alone = dict(zip(calls.kernels, medians(apart), strict=True))
    running = [stage for stage in stages if stage[0][0] in alone]
    lost = {
        stage: more
        for stage, seconds in zip(running, medians(together), strict=True)
        if len(stage) > 1
        and (more := seconds - sum(alone[number] for lane in stage for number in lane)) > 0.0
    }
    split, side_by_side = [sum(turn) for turn in apart], [sum(turn) for turn in together]
    return _Compared(Tried(tuple(stages), median(split), median(side_by_side)), split, side_by_side, lost)


def _add(profiler: KernelProfiler, name: str, mod: IRModule, kernels: Sequence[str]) -> None:
    """Instrument and load the program of ``mod``, which calls these kernels."""
    if profiler.add(name, mod) != list(kernels):
        raise CollageError("the kernels of the program cannot be timed: TVM's pipeline has changed them")


def _one_by_one(stage: Stage) -> list[Stage]:
    return [((number,),) for lane in stage for number in lane]
