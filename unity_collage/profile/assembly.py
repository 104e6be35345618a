"""Puts a profile together: readings of the clock become kernels with their layers, costs and limits."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .. import runtime
from ..machine.peaks import Machine
from ..plan.plan import Plan, PlannedKernel
from .lanes import StageClocks
from .readings import KernelCall, decoded
from .result import Event, Profile, ProfiledCall, ProfiledKernel, with_limits
from .side_by_side import distinct_kernels, lane_events, lane_kernels
from .timing_points import Call, TimedRegion

TRACED = 3
"""How many single runs are kept for a trace."""

SIDE_BY_SIDE = "branches side by side"
"""The label of a kernel that runs branches side by side, a core each."""

_FASTER = 25
"""The percentile of runs that other work of the machine disturbs little."""

RUNTIME = "runtime"
"""In place of a backend: a function of the runtime, such as ``relax.run.unique``."""

Site = tuple[int, int]
"""Where a kernel is called: the region, and the step in it."""


@dataclass(slots=True)
class Series:
    """The readings of all turns, in seconds."""

    plain: list[float] = field(default_factory=list[float])
    """Runs of the program itself."""
    timed: list[float] = field(default_factory=list[float])
    """Runs with timing points."""
    gaps: list[list[float]] = field(default_factory=list[list[float]])
    """For each of other runs with timing points, the seconds between its readings."""
    pauses: list[float] = field(default_factory=list[float])
    """The seconds between the runs of the last turn."""
    lanes: list[Any] = field(default_factory=list[Any])
    """For each of these runs, the readings of the lanes of branches side by side, in nanoseconds."""


def profile_of(
    regions: Sequence[TimedRegion],
    path: Sequence[int],
    series: Series,
    plans: Mapping[str, Plan],
    machine: Machine | None = None,
    stages: Mapping[str, StageClocks] | None = None,
) -> Profile:
    """The profile of a program for runs through the branches ``path``; ``stages``: those of branches side by side."""
    runs = [decoded(regions, path, gaps) for gaps in series.gaps]
    reading = statistics.median(seconds for _, readings in runs for seconds in readings)
    sites = [(timed.region, timed.step) for timed in runs[0][0]]
    net = np.array([[max(0.0, timed.seconds - reading) for timed in calls] for calls, _ in runs])
    described = _described(regions, sites, net, plans, machine, stages or {})
    kernels = {kernel.name: kernel for kernel, _ in described}
    inside = {
        name: lane_kernels(clocks, plans.get(kernels[name].calls[0].function), series.lanes)
        for name, clocks in (stages or {}).items()
        if name in kernels and len(kernels[name].calls) == 1  # the readings of the last call
    }
    return Profile(
        tuple(sorted(kernels.values(), key=lambda kernel: -kernel.seconds)),
        seconds=statistics.median(series.plain),
        overhead=float(np.percentile(series.timed, _FASTER) - np.percentile(series.plain, _FASTER)),
        run_kernel_seconds=float(np.median(net.sum(axis=1))),
        reading_seconds=reading,
        readings=len(series.gaps[0]) + 1,
        runs=len(runs),
        threads=runtime.num_threads(),
        events=_events([calls for calls, _ in runs], series, described, stages or {}, inside),
        side_by_side=tuple(distinct_kernels(inside.values())),
        remarks=tuple(_not_compared((call for _, call in described), plans)),
    )


def _described(
    regions: Sequence[TimedRegion],
    sites: Sequence[Site],
    net: np.ndarray,
    plans: Mapping[str, Plan],
    machine: Machine | None,
    stages: Mapping[str, StageClocks],
) -> list[tuple[ProfiledKernel, ProfiledCall]]:
    """The calls of a run, in order, each with its kernel; ``net``: (runs, calls), the seconds of each."""
    spread = np.percentile(net, (50, 5, 95), axis=0).T if sites else ()
    planned = planned_kernels(regions, plans)
    calls: dict[str, list[ProfiledCall]] = {}
    first: dict[str, Site] = {}
    order: list[tuple[str, int]] = []
    for site, seconds in zip(sites, spread, strict=True):
        name = _call_at(regions, site).kernel
        first.setdefault(name, site)
        own = calls.setdefault(name, [])
        order.append((name, len(own)))
        own.append(_profiled_call(regions, site, planned.get(site), plans, tuple(map(float, seconds))))
    kernels = {
        name: with_limits(_kernel(regions, first[name], planned, own), machine) for name, own in calls.items()
    }
    for name in filter(kernels.__contains__, stages):
        kernels[name] = replace(kernels[name], label=SIDE_BY_SIDE)
    return [(kernels[name], kernels[name].calls[number]) for name, number in order]


def planned_kernels(regions: Sequence[TimedRegion], plans: Mapping[str, Plan]) -> dict[Site, PlannedKernel]:
    """The kernel of the plan that each call runs: of those of its function, the one with its result, or the next."""
    left: dict[tuple[str, str], list[PlannedKernel]] = {}
    for function, plan in plans.items():
        for kernel in plan.kernels:
            left.setdefault((function, kernel.function), []).append(kernel)
    found: dict[Site, PlannedKernel] = {}
    for number, region in enumerate(regions):
        for step, call in enumerate(region.steps):
            if not isinstance(call, Call) or not (options := left.get((region.function, call.kernel))):
                continue
            named = (kernel for kernel in options if call.result in kernel.bindings)
            found[number, step] = next(named, options[0])
            options.remove(found[number, step])
    return found


def _call_at(regions: Sequence[TimedRegion], site: Site) -> Call:
    region, step = site
    call = regions[region].steps[step]
    assert isinstance(call, Call)
    return call


def _profiled_call(
    regions: Sequence[TimedRegion],
    site: Site,
    planned: PlannedKernel | None,
    plans: Mapping[str, Plan],
    spread: Sequence[float],
) -> ProfiledCall:
    """``spread``: the median of the seconds, the 5th and the 95th percentile."""
    function, call = regions[site[0]].function, _call_at(regions, site)
    result = (call.result,) if call.result else ()
    return ProfiledCall(
        function,
        result if planned is None else planned.bindings,
        call.shapes,
        *spread,
        cost=_cost(planned, plans.get(function)),
    )


def _cost(planned: PlannedKernel | None, plan: Plan | None) -> float | None:
    """What the plan predicts, where a run can be compared with it."""
    if planned is None or plan is None or plan.why_not_compared is not None:
        return None
    return plan.predicted(planned)


def _not_compared(called: Iterable[ProfiledCall], plans: Mapping[str, Plan]) -> Iterator[str]:
    """The functions of a run with costs that cannot be compared with its times, and why."""
    for function in dict.fromkeys(call.function for call in called):
        if function in plans and (reason := plans[function].why_not_compared) is not None:
            yield f"{function} has no costs here: {reason}"


def _kernel(
    regions: Sequence[TimedRegion],
    site: Site,
    planned: Mapping[Site, PlannedKernel],
    calls: Sequence[ProfiledCall],
) -> ProfiledKernel:
    call, own = _call_at(regions, site), planned.get(site)
    if own is not None:
        return ProfiledKernel(call.kernel, own.backend, own.label, tuple(calls), own.work)
    backend = "tvm" if call.is_function else RUNTIME
    return ProfiledKernel(call.kernel, backend, "", tuple(calls), None)


def _events(
    runs: Sequence[Sequence[KernelCall]],
    series: Series,
    described: Sequence[tuple[ProfiledKernel, ProfiledCall]],
    stages: Mapping[str, StageClocks],
    inside: Mapping[str, Sequence[ProfiledKernel]],
) -> tuple[Event, ...]:
    """The kernels of the last consecutive runs; ``described``: the calls of a run in order."""
    count = min(TRACED, len(series.pauses) + 1)
    pauses = [*series.pauses[len(series.pauses) - count + 1 :], 0.0]
    events: list[Event] = []
    begin = 0.0
    for run in range(count):
        number = len(runs) - count + run
        for timed, (kernel, call) in zip(runs[number], described, strict=True):
            event = Event(run, kernel, call, begin + timed.start, timed.seconds)
            events.append(event)
            if kernel.name in inside:
                of_lanes = lane_events(event, stages[kernel.name], inside[kernel.name], series.lanes[number])
                events += of_lanes
        begin += sum(series.gaps[number]) + pauses[run]
    return tuple(events)
