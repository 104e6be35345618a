"""Explanation: for every candidate of a function, why it became a kernel or why not, as plain data.

What a candidate would have cost is its *best-through* cost: that of the cheapest valid plan that contains it. Its
*regret* is that minus the cost of the plan chosen, so much would its cost alone have to fall
for it to win its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from .costs import Cost
from .unrecognised import NearMiss


class Verdict(str, Enum):
    """What became of a candidate."""

    CHOSEN = "chosen"
    RUNNER_UP = "runner-up"
    """In the cheapest plan without some chosen kernel."""
    COSTS_MORE = "costs more"
    NO_PLAN = "in no plan"
    """It has a cost, but no valid plan contains it."""
    NO_COST = "no cost"
    NOT_MEASURED = "not measured"
    """A lower bound of its cost showed that it cannot matter, or the budget was spent."""


@dataclass(frozen=True, slots=True)
class ExplainedBinding:
    """One binding of the function that was partitioned."""

    name: str
    op: str
    type: str
    """``float32 (1, 56, 56, 64)``, as far as it is known."""
    host: bool = False
    """Whether the VM evaluates it by itself, for free."""


@dataclass(frozen=True, slots=True)
class ExplainedCost:
    """What one distinct workload costs on one backend; equal candidates share it."""

    key: str
    seconds: float | None = None
    low: float = 0.0
    high: float = 0.0
    """The interval that the median lies in."""
    runs: int = 0
    origin: str = ""
    reason: str = ""
    """Why there is none; empty where there is one."""
    bound: float | None = None
    """Seconds that it costs at least, where that was enough to know."""

    @classmethod
    def of(cls, key: str, cost: Cost) -> ExplainedCost:
        return cls(key, cost.seconds, cost.low, cost.high, cost.runs, cost.origin, cost.reason, cost.bound)


@dataclass(frozen=True, slots=True)
class ExplainedCandidate:
    """One candidate and what became of it; the number of a bid is its candidate's id."""

    id: int
    backend: str
    rule: str
    label: str
    bindings: tuple[int, ...]
    cost: int
    """Which of the costs is its own, by position."""
    verdict: Verdict
    best_through: float | None = None
    """Seconds of the cheapest plan with it; None if there is none or it has no cost."""
    regret: float | None = None
    """Seconds by which that is more expensive than the plan chosen."""
    exact: bool = True
    """False: both are at least that much."""
    saved: float | None = None
    """The part of its cost that had to go for it to win here; 1 or more: it could not win even at no cost."""
    within_noise: bool = False
    """Whether the ends of the measured intervals would make it as cheap as the kernels it competes with."""
    hidden: tuple[int, ...] = ()
    """Bindings that it computes for itself though others read them too."""


@dataclass(frozen=True, slots=True)
class ExplainedKernel:
    """One kernel of the plan."""

    candidate: int
    """Its id."""
    function: str = ""
    """The function that it was outlined as, if it was."""
    reads: tuple[int, ...] = ()
    """The kernels, by number, whose values it reads."""
    runner_up: int | None = None
    """The bid in the cheapest plan without this kernel."""
    margin: float | None = None
    """Seconds by which that plan is more expensive, hence by which the kernel may become more expensive; None: it has no rival."""
    exact: bool = True
    """False: the margin is at least that much."""
    rivals: tuple[int, ...] = ()
    """All measured bids that share a binding with it, by regret."""
    ties: tuple[tuple[int, ...], ...] = ()
    """Bids that are as cheap as far as the measurements tell, each with those that stand in its place together."""


@dataclass(frozen=True, slots=True)
class DeclinedGroup:
    """A backend refused these bindings for this reason."""

    backend: str
    reason: str
    bindings: tuple[int, ...]
    condition: str = "predicate"
    """``predicate``, the backend's own word; ``validity``, the shape of the sub-graph; ``limit`` or ``target``."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What is known of the plan as a whole."""

    seconds: float
    lower_bound: float
    """No valid plan is cheaper."""
    gap: float
    """How much more expensive than the lower bound the plan is at most, as a part of its cost."""
    proved: bool
    algorithm: str
    visited: int = 0
    launch_seconds: float = 0.0
    """Charged for every kernel."""
    tie_seconds: float = 0.0
    """By so much the plan is more expensive than the cheapest one, by ties that the policy has settled."""


@dataclass(frozen=True)
class Explanation:
    """Everything that was decided about one function."""

    proof: Proof
    bindings: tuple[ExplainedBinding, ...] = ()
    kernels: tuple[ExplainedKernel, ...] = ()
    """In the order in which they run."""
    candidates: tuple[ExplainedCandidate, ...] = ()
    costs: tuple[ExplainedCost, ...] = ()
    declined: tuple[DeclinedGroup, ...] = ()
    left_behind: tuple[int, ...] = field(default=())
    """Bindings in no kernel: views that cost nothing, and operators that TVM compiles as they are."""
    near_misses: tuple[NearMiss, ...] = ()
    """Where a rewrite rule found the beginning of its form, but left it."""

    @cached_property
    def by_id(self) -> dict[int, ExplainedCandidate]:
        return {candidate.id: candidate for candidate in self.candidates}

    def cost(self, candidate: ExplainedCandidate) -> ExplainedCost:
        return self.costs[candidate.cost]

    def seconds(self, kernel: ExplainedKernel) -> float:
        """What the kernel costs a run, without its launch."""
        return self.cost(self.by_id[kernel.candidate]).seconds or 0.0

    def names(self, indexes: tuple[int, ...]) -> str:
        return ", ".join(self.bindings[index].name for index in indexes)
