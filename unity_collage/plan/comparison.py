"""The comparison of candidate programs for one model, as plain data."""

from __future__ import annotations

from dataclasses import dataclass

DIFFERS = "its outputs differ"
"""Prefix of the reason for a program that computes something else than the first one."""


@dataclass(frozen=True, slots=True)
class ProgramTimes:
    """A candidate program: its time, or why it was dropped."""

    name: str
    seconds: float | None = None
    """The median of its rounds."""
    rounds: tuple[float, ...] = ()
    """Median seconds of a run, by round."""
    reason: str = ""
    remark: str = ""
    """What is notable about its outputs."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The seconds that the kernels of a plan took in its program, against their costs."""

    plan: str
    predicted: float
    kernels_in_place: float


@dataclass(frozen=True, slots=True)
class FirstCall:
    """The first call of a program with sizes that it has not met: libraries make their primitives for them then."""

    sizes: dict[str, int]
    """The size of each free dimension, by name: none of the samples."""
    seconds: float
    later: float
    """The median seconds of later calls with these sizes."""
    differs: str = ""
    """By how much its results differ from those of another program, where no two programs agree."""
    kernels: int = 0
    """How many kernels libraries compiled in the first call."""
    compiling: float = 0.0
    """The seconds of the first call in which they compiled them."""


@dataclass(frozen=True, slots=True)
class Denormals:
    """How long our program takes as it is, and where denormal numbers count as zero, in seconds."""

    seconds: float
    flushed: float


@dataclass(frozen=True, slots=True)
class ProgramComparison:
    """Programs that were timed in turns, and the fastest of them."""

    winner: str
    programs: tuple[ProgramTimes, ...]
    iterations: tuple[Prediction, ...] = ()
    """The plans with kernels that were timed in the running program."""
    predicted: float | None = None
    """Seconds of the winner by the costs of its kernels."""
    measured: float | None = None
    origin: str = "measured"
    """``measured`` or ``database``."""
    created: float = 0.0
    """When the programs were timed, in seconds since the epoch."""
    samples: int = 1
    """At how many sizes of open dimensions each program was timed; times are sums over them."""
    others: float = 0.0
    """How many cores other processes kept busy during the comparison."""
    first_call: FirstCall | None = None
    """Of the winner, if sizes are free and it takes others than the samples."""
    denormals: Denormals | None = None
    """Of our program, if it takes notably longer than its kernels cost."""

    @property
    def additive_error(self) -> float | None:
        """By how many seconds the winner is slower than the sum of its costs."""
        if self.measured is None or self.predicted is None:
            return None
        return self.measured - self.predicted
