"""Stages: which kernels run side by side, by their time on one core and on all cores.

Stages of parallel groups come from the Inter-Operator Scheduler (Ding et al., "IOS: Inter-Operator Scheduler for CNN
Acceleration", MLSys 2021). IOS finds the best stages by dynamic programming, which is exponential in the width of a
graph, and times each group. Ours are built one after the other, from two times of each kernel. The method is list
scheduling (Graham, "Bounds on Multiprocessing Timing Anomalies", 1969) with hill climbing.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

_STAGE_SECONDS = 0.5e-6
"""About the overhead of a stage: its call, and the threads that wait for each other."""
_LEAST_GAIN = 1e-6
"""The least number of seconds that a stage must save."""
_CUTS = (1.0, 0.95, 0.8)
"""Kernels beyond these quantiles of the time on one core are left out of all stages: while a much longer kernel runs,
the other lanes are idle. The best of the three is taken."""

_WINDOW = 256
"""How many of the next steps, in the order of the program, are considered for a stage; later ones mostly depend on
them.
"""

Lane = tuple[int, ...]
"""The numbers of steps that run one after the other."""
Stage = tuple[Lane, ...]
"""Lanes that run side by side; one lane of one step is a kernel on all cores."""


@dataclass(frozen=True, slots=True)
class Step:
    """A binding of a program."""

    sources: frozenset[int]
    """The numbers of the steps that it reads."""
    split: float = 0.0
    """Seconds when all cores share its work."""
    single: float | None = None
    """Seconds on one core; None: it cannot be in a stage with others."""


def stages_of(steps: Sequence[Step], lanes: int) -> list[Stage]:
    """All steps in stages that run one after the other, each with at most ``lanes`` lanes."""
    singles = sorted(step.single for step in steps if step.single is not None)
    if not singles or lanes < 2:
        return [((number,),) for number in range(len(steps))]
    limits = dict.fromkeys(singles[int(cut * (len(singles) - 1))] for cut in _CUTS)
    return min((_staged(steps, lanes, limit) for limit in limits), key=lambda found: seconds_of(steps, found))


def seconds_of(steps: Sequence[Step], stages: Sequence[Stage]) -> float:
    """The seconds of all stages together."""
    return sum(_stage_seconds(steps, stage) for stage in stages)


def _stage_seconds(steps: Sequence[Step], stage: Stage) -> float:
    if len(stage) == 1:
        return sum(steps[number].split for number in stage[0])
    return max(_load(steps, lane) for lane in stage) + _STAGE_SECONDS


def _load(steps: Sequence[Step], lane: Sequence[int]) -> float:
    return sum(steps[number].single or 0.0 for number in lane)


def _staged(steps: Sequence[Step], lanes: int, limit: float) -> list[Stage]:
    """Stages of kernels that take at most ``limit`` seconds on one core; each step is in the earliest one possible."""
    found: list[Stage] = []
    done: set[int] = set()
    left = list(range(len(steps)))
    while left:
        # A step that cannot be in a stage comes first, since others may wait for it.
        number = next(
            (n for n in left[:_WINDOW] if steps[n].sources <= done and not _fits(steps[n], limit)), None
        )
        stage = _next_stage(steps, left, lanes, limit) if number is None else ((number,),)
        found.append(stage)
        taken = {number for lane in stage for number in lane}
        done |= taken
        left = [number for number in left if number not in taken]
    return found


def _fits(step: Step, limit: float) -> bool:
    return step.single is not None and step.single <= limit


def _next_stage(steps: Sequence[Step], left: Sequence[int], lanes: int, limit: float) -> Stage:
    """A stage of steps that can run now, or the first step alone if a stage would not be faster."""
    stage = _best_stage(steps, left, lanes, limit)
    if len(stage) > 1 and _gain(steps, stage) >= _LEAST_GAIN:
        return tuple(tuple(lane) for lane in stage)
    waiting = set(left)
    return ((next(number for number in left if not steps[number].sources & waiting),),)


def _best_stage(steps: Sequence[Step], left: Sequence[int], lanes: int, limit: float) -> list[list[int]]:
    """The best lanes, by hill climbing over the lanes of the steps that can run now; their readers follow them."""
    waiting, left = set(left), left[:_WINDOW]
    roots = {n: -1 for n in left if _fits(steps[n], limit) and not steps[n].sources & waiting}

    def stage() -> list[list[int]]:
        return _balanced(steps, _dealt(steps, left, waiting, lanes, limit, roots))

    best = stage()
    climbing = True
    while climbing:
        climbing = False
        for root, lane in itertools.product(roots, range(lanes)):
            before = roots[root]
            roots[root] = lane
            found = stage()
            if _gain(steps, found) > _gain(steps, best) + _LEAST_GAIN:
                best, climbing = found, True
            else:
                roots[root] = before
    return best


def _dealt(
    steps: Sequence[Step],
    left: Sequence[int],
    waiting: AbstractSet[int],
    lanes: int,
    limit: float,
    roots: Mapping[int, int],
) -> list[list[int]]:
    """The steps of ``left`` that read from at most one lane of this stage, in lanes.

    ``waiting``: all steps that have not run yet. ``roots``: the lane of each step that can run now; -1 stands for the
    lane with the least to do.
    """
    dealt: list[list[int]] = [[] for _ in range(lanes)]
    loads = [0.0] * lanes
    lane_of: dict[int, int] = {}
    for number in left:
        step = steps[number]
        at = {lane_of.get(source, -1) for source in step.sources & waiting}
        if not _fits(step, limit) or len(at) > 1 or -1 in at:
            continue
        lane = at.pop() if at else roots[number]
        if lane < 0:
            lane = loads.index(min(loads))
        lane_of[number] = lane
        dealt[lane].append(number)
        loads[lane] += step.single or 0.0
    return dealt


def _balanced(steps: Sequence[Step], dealt: list[list[int]]) -> list[list[int]]:
    """The lanes without the last steps of the longest lanes, as far as these are faster in a later stage."""
    best, found = _gain(steps, dealt), [list(lane) for lane in dealt]
    while sum(map(bool, dealt)) > 1:
        max(dealt, key=lambda lane: _load(steps, lane)).pop()
        if (gain := _gain(steps, dealt)) > best:
            best, found = gain, [list(lane) for lane in dealt]
    return [lane for lane in found if lane]


def _gain(steps: Sequence[Step], stage: Sequence[Sequence[int]]) -> float:
    split = sum(steps[number].split for lane in stage for number in lane)
    return split - max((_load(steps, lane) for lane in stage), default=0.0) - _STAGE_SECONDS
