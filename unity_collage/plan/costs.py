"""Cost: seconds of one kernel, or the reason why it has none."""

from __future__ import annotations

from dataclasses import dataclass, field

UNKNOWN = "unknown"
"""The origin of a cost that was not measured because the time was used up."""

IN_PROGRAM = "in the program"
"""The origin of a cost that was observed in the running program, among the other kernels of its plan."""

PACKED = "pack"
"""The origin of a cost of another machine with a processor of this family, scaled to this machine."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The seconds of one run of a kernel, or the reason why it has no cost."""

    seconds: float | None
    low: float = 0.0
    high: float = 0.0
    """The interval that the median lies in."""
    runs: int = 0
    origin: str = "measured"
    """``measured``, ``database``, ``formula``, ``UNKNOWN``, ``IN_PROGRAM`` or ``PACKED``."""
    reason: str = ""
    """Why there is no cost; empty where there is one."""
    is_doubtful: bool = False
    """Whether other work of the machine disturbed the measurement, so that it is worth another one."""
    bound: float | None = None
    """A lower bound in seconds of a kernel that was not measured: it cannot be in the plan, or time was used up."""

    @property
    def is_open(self) -> bool:
        """Whether there may be a cost, which was not measured: time was used up, or it was not needed."""
        return self.seconds is None and (self.origin == UNKNOWN or self.bound is not None)

    @property
    def interval(self) -> tuple[float, float] | None:
        """``(low, high)`` of a measured cost."""
        known = self.seconds is not None and self.low <= self.seconds <= self.high
        return (self.low, self.high) if known else None


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of the candidates of one function."""

    by_key: dict[str, Cost] = field(default_factory=dict[str, Cost])
    keys: dict[int, str] = field(default_factory=dict[int, str])
    """The cost key of each candidate, by its id."""
    launch_seconds: float = 0.0
    """The VM's overhead for a call of a kernel whose backend is not in ``launches``."""
    launches: dict[str, float] = field(default_factory=dict[str, float])
    """The same overhead by backend."""
    transitions: dict[str, float] = field(default_factory=dict[str, float])
    """Seconds for a value that one backend writes and another reads, by ``"writer>reader"``."""
    skipped: tuple[str, ...] = ()
    """The steps that were left out because the cost model cannot do them, each with its reason."""

    def of(self, candidate: int) -> Cost:
        """The cost of a candidate, by its id."""
        return self.by_key[self.keys[candidate]]
