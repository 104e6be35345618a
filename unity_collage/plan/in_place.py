"""The kernels of a plan, timed where they run, as plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KernelTime:
    """How long a kernel takes in the running program, from the end of the kernel before it. All are seconds."""

    seconds: float
    """The median of the runs."""
    low: float
    """The 5th percentile."""
    high: float
    """The 95th percentile."""


@dataclass(frozen=True, slots=True)
class InPlace:
    """The kernels of a plan, timed in the running program."""

    kernels: tuple[KernelTime | None, ...]
    """In the order of the plan.

    None for a kernel that runs side by side with others, not exactly once, or not with these inputs.
    """
    side_by_side: float
    """Seconds of all branches that run side by side."""
    program: float | None
    """The median seconds of a run of the whole program, without timing points; None if it passes other plans too."""
    medians: float
    """Seconds of all kernels of the program: the sum of their medians."""
    together: float
    """The median over the runs of the sum of all kernels, in seconds: far more than ``medians`` if the machine was
    disturbed.
    """
    runs: int
    """How many runs were timed kernel by kernel."""
    threads: int
    since: float | None = None
    """When an earlier compile has taken these times, in seconds since the epoch; None: this compile has."""
