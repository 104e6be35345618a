"""Cost: seconds of one kernel, or the reason why it has none."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

UNKNOWN = "unknown"
"""The origin of a cost that was not measured because the time was used up."""

OUT_OF_TIME = "not measured: the budget of "
"""Prefix of the reason for a cost that was left out by a budget."""

STOPPED = "not measured: it was stopped"
"""The reason of a cost that the user has left out."""

IN_PROGRAM = "in the program"
"""The origin of a cost that was observed in the running program, among the other kernels of its plan."""

PACKED = "pack"
"""The origin of a cost of another machine with a processor of this family, scaled to this machine."""


EXPECTED = "expected"
"""The origin of a cost that was not measured because the time was used up.

It is a cost of the same kernel at another size, or of similar kernels, scaled by the lower bounds.
"""

NOT_NEEDED = "not needed"
"""The origin of a placeholder for a cost that was not needed, since only one plan is possible."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The seconds of one run of a kernel, or the reason why it has no cost."""

    seconds: float | None
    low: float = 0.0
    high: float = 0.0
    """The interval that the median lies in."""
    runs: int = 0
    origin: str = "measured"
    """``measured``, ``database``, ``formula``, ``UNKNOWN``, ``IN_PROGRAM``, ``PACKED``, ``EXPECTED`` or
    ``NOT_NEEDED``."""
    reason: str = ""
    """Why there is no cost; empty where there is one."""
    is_doubtful: bool = False
    """Whether other work of the machine disturbed the measurement, so that it should be repeated."""
    bound: float | None = None
    """A lower bound in seconds of a kernel that was not measured: it cannot be in the plan, or time was used up.

    An ``EXPECTED`` cost has one too: proofs count with it, and not with the seconds.
    """

    @property
    def is_open(self) -> bool:
        """Whether there may be a cost, which was not measured: time was used up, or it was not needed."""
        return self.seconds is None and (self.origin == UNKNOWN or self.bound is not None)

    @property
    def bound_of_guess(self) -> float | None:
        """The lower bound in seconds where the seconds are a guess; None where they are not."""
        return self.bound or 0.0 if self.seconds is not None and self.origin == EXPECTED else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """``(low, high)`` of a measured cost."""
        if self.seconds is None or self.origin == NOT_NEEDED:
            return None
        return (self.low, self.high) if self.low <= self.seconds <= self.high else None


Point = tuple[int, float]
"""The bytes of a value, and seconds."""


def at_size(points: Sequence[Point], nbytes: int) -> float:
    """The seconds for a value of ``nbytes``, between ``points``, which ascend: linear in the logarithm of the size.

    Outside of the points the nearest one counts, so a single point holds for all sizes.
    """
    after = bisect_left(points, (nbytes, -math.inf))
    if after in (0, len(points)):
        return points[min(after, len(points) - 1)][1]
    (smaller, low), (larger, high) = points[after - 1 : after + 1]
    return low + (high - low) * math.log(nbytes / smaller) / math.log(larger / smaller)


@dataclass(frozen=True, slots=True)
class SampleCosts:
    """The costs of the candidates of a function with free sizes at one sample."""

    sizes: dict[str, int]
    """The size of each free dimension, by name."""
    weight: float
    """The part of all calls that this sample stands for."""
    by_key: dict[str, Cost]
    """One cost for each key of :attr:`Costs.by_key`; a cost that is not known has a lower bound."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of the candidates of one function."""

    by_key: dict[str, Cost] = field(default_factory=dict[str, Cost])
    keys: dict[int, str] = field(default_factory=dict[int, str])
    """The cost key of each candidate, by its id."""
    launch_seconds: float = 0.0
    """The VM's overhead for a call of a kernel of a backend that is not in ``launches``."""
    launches: dict[str, float] = field(default_factory=dict[str, float])
    """The same overhead by backend."""
    transitions: dict[str, tuple[Point, ...]] = field(default_factory=dict[str, "tuple[Point, ...]"])
    """The cost of a value that one backend writes and another reads, by ``"writer>reader"`` (:func:`at_size`)."""
    exclusions: tuple[str, ...] = ()
    """Pairs of backends that cannot be in one plan, as ``"one|other"``."""
    skipped: tuple[str, ...] = ()
    """The steps that were left out because the cost model cannot do them, each with its reason."""
    copies: dict[str, tuple[Point, ...]] = field(default_factory=dict[str, "tuple[Point, ...]"])
    """The cost of copying a value from one device to another, by ``"from>to"`` (:func:`at_size`)."""
    samples: tuple[SampleCosts, ...] = ()
    """Of a function that is weighed over several sizes: the costs at each. ``by_key`` has their weighted sums then."""
    failed: tuple[str, ...] = ()
    """Keys of kernels that cost less than their lower bounds. Then no bound of this machine counts: all are 0."""

    def of(self, candidate: int) -> Cost:
        """The cost of a candidate, by its id."""
        return self.by_key[self.keys[candidate]]


def without_bounds(costs: Costs, failed: Iterable[str]) -> Costs:
    """``costs`` with 0 for each lower bound, since the kernels with the keys ``failed`` cost less than theirs."""
    by_key = {
        key: cost if cost.bound is None else replace(cost, bound=0.0) for key, cost in costs.by_key.items()
    }
    return replace(costs, by_key=by_key, failed=tuple(dict.fromkeys((*costs.failed, *failed))))
