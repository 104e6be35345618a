"""Which branches to run side by side, by what kernels take in the running program on one core and on all."""

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


def tried(mod: IRModule, calls: Calls, target: Target, threads: int) -> Tried:
    """The stages with which the program is faster, timed kernel by kernel in the running program.

    Raises CollageError where it cannot be built or run kernel by kernel.
    """
    with ProgramWorker(dummy_inputs(mod), threads) as worker:
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
        raise CollageError(f"branches side by side compute something else: {error}")
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
        raise CollageError("TVM's pipeline has changed the program's kernels")


def _one_by_one(stage: Stage) -> list[Stage]:
    return [((number,),) for lane in stage for number in lane]
