"""Puts the times of a profile into the plans of its program, for reports."""

from __future__ import annotations

from collections.abc import Mapping

from ..plan.in_place import InPlace, KernelTime
from ..plan.plan import Plan
from .assembly import SIDE_BY_SIDE
from .result import Profile, ProfiledCall


def with_times(plans: Mapping[str, Plan], profile: Profile) -> dict[str, Plan]:
    """The ``plans`` of a program; those that the profiled run passed have the times of their kernels.

    If the run passed one plan only, the time of the whole program is that of the profile: then all times of the plan
    were measured together.
    """
    calls: dict[tuple[str, tuple[str, ...]], list[ProfiledCall]] = {}
    stages: dict[str, float] = {}
    for kernel in profile.kernels:
        for call in kernel.calls:
            if kernel.label == SIDE_BY_SIDE:
                stages[call.function] = stages.get(call.function, 0.0) + call.seconds
            elif kernel.label:  # other kernels are not in the plan
                calls.setdefault((call.function, call.layers), []).append(call)
    passed = {*stages, *(function for function, _ in calls)}
    found = dict(plans)
    for name in passed & plans.keys():
        times = tuple(_time(calls.get((name, kernel.bindings), ())) for kernel in plans[name].kernels)
        whole = profile.seconds if len(passed) == 1 else None
        timed = InPlace(
            times,
            stages.get(name, 0.0),
            whole,
            profile.kernel_seconds,
            profile.run_kernel_seconds,
            profile.runs,
            profile.threads,
        )
        found[name] = plans[name].with_times(timed)
    return found


def _time(calls: list[ProfiledCall] | tuple[()]) -> KernelTime | None:
    return KernelTime(calls[0].seconds, calls[0].low, calls[0].high) if len(calls) == 1 else None
