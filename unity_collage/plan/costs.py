"""Cost: seconds of one kernel, or the reason why it has none."""

from __future__ import annotations

from dataclasses import dataclass, field

UNKNOWN = "unknown"
"""The origin of a cost that was not measured for want of time: it may be anything."""

IN_PROGRAM = "in the program"
"""The origin of a cost that was observed in the running program, among the other kernels of its plan."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds a run of one kernel, or why there is no cost."""

    seconds: float | None
    low: float = 0.0
    high: float = 0.0
    """The interval that the median lies in."""
    runs: int = 0
    origin: str = "measured"
    """``measured``, ``database``, ``formula``, ``UNKNOWN`` or ``IN_PROGRAM``."""
    reason: str = ""
    """Why there is no cost; empty where there is one."""
    bound: float | None = None
    """A lower bound in seconds, where the kernel was not measured: it cannot matter, or there was no time."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """``(low, high)`` of a cost that was measured."""
        known = self.seconds is not None and self.low <= self.seconds <= self.high
        return (self.low, self.high) if known else None


@dataclass(frozen=True, slots=True)
class Costs:
    """What EstimateCosts found for one function."""

    by_key: dict[str, Cost] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)
    """The cost key of each candidate, by its id."""
    launch_seconds: float = 0.0
    """What the VM pays to call one kernel, where ``launches`` does not say it."""
    launches: dict[str, float] = field(default_factory=dict)
    """The same by backend."""
    transitions: dict[str, float] = field(default_factory=dict)
    """Seconds for a value that one backend writes and another reads, by ``"writer>reader"``."""
    lower_bound: float | None = None
    """No plan of all candidates is cheaper, as far as a search that has not measured all of them has proved."""
    skipped: tuple[str, ...] = ()
    """Steps that were left out because the cost model cannot do them, each with its reason."""

    def of(self, candidate: int) -> Cost:
        """The cost of a candidate, by its id."""
        return self.by_key[self.keys[candidate]]
