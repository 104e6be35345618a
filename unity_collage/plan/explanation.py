"""Explanation: why each candidate of a function became a kernel or did not, as plain data.

The *best-through* cost of a candidate is that of the cheapest valid plan that contains it. Its *regret* is the
difference to the cost of the chosen plan. If the cost of the candidate alone fell by its regret, it would be chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from .costs import Cost
from .unrecognised import NearMiss


class Verdict(str, Enum):
    """Whether a candidate was chosen, or why not."""

    CHOSEN = "chosen"
    RUNNER_UP = "runner-up"
    """It is in the cheapest plan without some chosen kernel."""
    COSTS_MORE = "costs more"
    NO_PLAN = "in no plan"
    """It has a cost, but no valid plan contains it."""
    NO_COST = "no cost"
    NOT_MEASURED = "not measured"
    """A lower bound of its cost showed that it cannot be in the plan, or the budget was used up."""


@dataclass(frozen=True, slots=True)
class ExplainedBinding:
    """One binding of the function that was partitioned."""

    name: str
    op: str
    type: str
    """``float32 (1, 56, 56, 64)``, as far as it is known."""
    host: bool = False
    """Whether the VM evaluates it without a kernel, at no cost."""


@dataclass(frozen=True, slots=True)
class ExplainedCost:
    """The cost of one distinct workload on one backend; equal candidates share it."""

    key: str
    seconds: float | None = None
    low: float = 0.0
    high: float = 0.0
    """The interval that the median lies in."""
    runs: int = 0
    origin: str = ""
    reason: str = ""
    """Why there is no cost; empty where there is one."""
    bound: float | None = None
    """A lower bound in seconds of a kernel that was not measured."""

    @classmethod
    def of(cls, key: str, cost: Cost) -> ExplainedCost:
        """The explained ``cost`` of a key."""
        return cls(key, cost.seconds, cost.low, cost.high, cost.runs, cost.origin, cost.reason, cost.bound)


@dataclass(frozen=True, slots=True)
class ExplainedCandidate:
    """One candidate with its verdict; it has the id of the candidate."""

    id: int
    backend: str
    rule: str
    label: str
    bindings: tuple[int, ...]
    cost: int
    """The position of its cost in ``Explanation.costs``."""
    verdict: Verdict
    best_through: float | None = None
    """Seconds of the cheapest plan with it; None if there is no such plan or it has no cost."""
    regret: float | None = None
    """By how many seconds that plan costs more than the chosen one."""
    exact: bool = True
    """False: ``best_through`` and ``regret`` are lower bounds."""
    saved: float | None = None
    """The part of its cost that it must save to be chosen; with 1 or more it would not be chosen even at no cost."""
    within_noise: bool = False
    """Whether it may be as cheap as the chosen kernels within the measured intervals."""
    hidden: tuple[int, ...] = ()
    """Bindings that it computes without writing their values, although other kernels read them too."""


@dataclass(frozen=True, slots=True)
class ExplainedKernel:
    """One kernel of the plan."""

    candidate: int
    """The id of the candidate."""
    function: str = ""
    """The function that it was outlined as; empty if it was not outlined."""
    reads: tuple[int, ...] = ()
    """The numbers of the kernels whose values it reads."""
    runner_up: int | None = None
    """The candidate in the cheapest plan without this kernel."""
    margin: float | None = None
    """By how many seconds that plan costs more, so the kernel may cost this much more; None: it has no rival."""
    exact: bool = True
    """False: the margin is a lower bound."""
    rivals: tuple[int, ...] = ()
    """All measured candidates that share a binding with it, by regret."""
    ties: tuple[tuple[int, ...], ...] = ()
    """Groups of candidates that could replace it, and that cost the same within the measured intervals."""
    inputs: tuple[int, ...] = ()
    """The bindings that it reads, without the inputs of the function."""
    script: int | None = None
    """The position of its operators as TVMScript in ``Explanation.texts``; equal kernels share the first one's."""
    source: int | None = None
    """The position of the loops or the source that the program runs for it; None for a library's kernel."""


@dataclass(frozen=True, slots=True)
class DeclinedGroup:
    """A backend refused these bindings for this reason."""

    backend: str
    reason: str
    bindings: tuple[int, ...]
    condition: str = "predicate"
    """What refused it: ``predicate`` of the backend, ``validity`` of the group, a ``limit`` or the ``target``."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What is proved about the plan as a whole."""

    seconds: float
    lower_bound: float
    """No valid plan is cheaper."""
    gap: float
    """The difference between the plan's cost and the lower bound, as a part of its cost."""
    proved: bool
    """Whether a proof that can be checked shows that no valid plan is cheaper."""
    algorithm: str
    visited: int = 0
    launch_seconds: float = 0.0
    """The overhead of every kernel call."""
    tie_seconds: float = 0.0
    """By how many seconds the plan costs more than the cheapest one, because the policy settled ties."""
    unproved: float = 0.0
    """The part of its cost by which another plan may be cheaper by what is proved."""


@dataclass(frozen=True)
class Explanation:
    """All decisions about one function, with their reasons."""

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
    """Where a rewrite rule matched the beginning of its form, but did not apply."""
    texts: tuple[str, ...] = ()
    """The texts of kernels, each once."""

    @cached_property
    def by_id(self) -> dict[int, ExplainedCandidate]:
        """The candidates by their ids."""
        return {candidate.id: candidate for candidate in self.candidates}

    def cost(self, candidate: ExplainedCandidate) -> ExplainedCost:
        """The cost of a candidate."""
        return self.costs[candidate.cost]

    def seconds(self, kernel: ExplainedKernel) -> float:
        """The cost of the kernel in seconds, without its launch."""
        return self.cost(self.by_id[kernel.candidate]).seconds or 0.0

    def names(self, indexes: tuple[int, ...]) -> str:
        """The names of these bindings, separated by commas."""
        return ", ".join(self.bindings[index].name for index in indexes)
