"""The kernels of branches that run side by side, from the readings of their lanes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from ..plan.plan import Plan
from .lanes import LaneCall, StageClocks
from .result import Event, ProfiledCall, ProfiledKernel

_NANOSECOND = 1e-9


def lane_kernels(stage: StageClocks, plan: Plan | None, runs: Sequence[np.ndarray]) -> list[ProfiledKernel]:
    """A kernel with one call for each call of a stage, in their order; ``runs``: the readings of each run.

    A kernel has no cost here: its cost was measured on all threads, and it runs on one. Where the plan calls a kernel
    several times, each call has the layers of all of them.
    """
    spans = np.array([[read[call.first + 1] - read[call.first] for call in stage.calls] for read in runs])
    spread = np.percentile(_NANOSECOND * spans, (50, 5, 95), axis=0).T
    return [
        _kernel(call, plan, tuple(map(float, seconds)))
        for call, seconds in zip(stage.calls, spread, strict=True)
    ]


def distinct_kernels(stages: Iterable[Sequence[ProfiledKernel]]) -> Iterator[ProfiledKernel]:
    """The kernels of all stages, each once with all its calls, the slowest first."""
    found: dict[str, ProfiledKernel] = {}
    for kernel in (kernel for stage in stages for kernel in stage):
        known = found.get(kernel.name)
        found[kernel.name] = kernel if known is None else replace(known, calls=known.calls + kernel.calls)
    yield from sorted(found.values(), key=lambda kernel: -kernel.seconds)


def lane_events(
    event: Event, stage: StageClocks, kernels: Sequence[ProfiledKernel], readings: np.ndarray
) -> Iterator[Event]:
    """The kernels of a stage in one run; ``event`` is the stage, which ends with the last of its readings."""
    end = event.start + event.seconds
    for call, kernel in zip(stage.calls, kernels, strict=True):
        start = end - _NANOSECOND * float(readings[stage.end] - readings[call.first])
        seconds = _NANOSECOND * float(readings[call.first + 1] - readings[call.first])
        yield Event(event.run, kernel, kernel.calls[0], start, seconds, call.lane + 1)


def _kernel(call: LaneCall, plan: Plan | None, spread: Sequence[float]) -> ProfiledKernel:
    own = [] if plan is None else [kernel for kernel in plan.kernels if kernel.function == call.kernel]
    layers = tuple(dict.fromkeys(layer for kernel in own for layer in kernel.bindings))
    profiled = (ProfiledCall("", layers, (), *spread, cost=None),)
    if not own:
        return ProfiledKernel(call.kernel, "tvm", "", profiled, None)
    return ProfiledKernel(call.kernel, own[0].backend, own[0].label, profiled, own[0].work)
