"""Plan: which kernels compute a function, at what cost, and what is proved of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..search.certificate import Certificate, TieClaim


@dataclass(frozen=True, slots=True)
class Rival:
    """Another candidate for exactly the operators of a kernel."""

    backend: str
    seconds: float | None = None
    reason: str = ""
    """Why it has no cost."""


@dataclass(frozen=True, slots=True)
class Tie:
    """A candidate that is as cheap as a kernel of the plan, as far as the measurements tell."""

    backend: str
    label: str
    bindings: tuple[str, ...]
    seconds: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The candidate in the cheapest plan without a kernel."""

    backend: str
    label: str
    bindings: tuple[str, ...]
    seconds: float | None
    regret: float | None
    """Seconds by which that plan costs more."""
    exact: bool = True
    """False: the regret is at least that much."""


@dataclass(frozen=True, slots=True)
class PlannedKernel:
    """One kernel of a plan."""

    candidate: int
    """The id of the candidate."""
    backend: str
    label: str
    function: str
    """The function that it was outlined as."""
    bindings: tuple[str, ...]
    seconds: float
    """Its cost, without launch and transitions."""
    interval: tuple[float, float] | None = None
    """That the measured median lies in."""
    threads: int | None = None
    """How many threads run it; None: its backend decides."""
    device: str = ""
    """The virtual device that it runs on, as ``kind:index``; empty: the only one there is."""
    others: tuple[Rival, ...] = ()
    ties: tuple[tuple[Tie, ...], ...] = ()
    """Each with those that stand in the place of the kernel together."""
    runner_up: RunnerUp | None = None


@dataclass(frozen=True, slots=True)
class WithoutCost:
    """A distinct kernel that has no cost."""

    backend: str
    label: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeclinedBindings:
    """A backend refused these bindings for this reason."""

    backend: str
    reason: str
    bindings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SideBySide:
    """What running independent branches side by side gave."""

    stages: int
    kernels: int
    split_seconds: float
    """All kernels of the program when all threads share each of them."""
    seconds: float
    """All kernels of the program as it is."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One variant of a function: its kernels, what they cost, what is proved, and why the rest was not taken.

    It is plain data: :data:`unity_collage.annotations.PLAN` writes it into the module, :func:`.encoding.encode` makes
    the JSON of reports from it, :func:`.encoding.decode` reads both.
    """

    kernels: tuple[PlannedKernel, ...] = ()
    """In the order in which they run."""
    seconds: float = 0.0
    """Kernels, launches and transitions together."""
    lower_bound: float = 0.0
    """No valid plan of the candidates is cheaper."""
    gap: float = 0.0
    """By what part of its cost the plan may be more expensive than the cheapest one."""
    proved: bool = False
    algorithm: str = ""
    visited_states: int = 0
    launch_seconds: float = 0.0
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    """The values of symbolic dimensions that the costs hold for, by name; empty: every size is known."""
    left_behind: tuple[str, ...] = ()
    """Bindings in no kernel: views, and operators that TVM compiles as they are."""
    without_cost: tuple[WithoutCost, ...] = ()
    declined: tuple[DeclinedBindings, ...] = ()
    remarks: tuple[str, ...] = ()
    """What a reader should know besides the figures: steps that were skipped, doubts, changes after the search."""
    certificate: Certificate | None = None
    """A claim about the cheapest plan that :func:`unity_collage.search.certificate.why_not` checks."""
    tie_policy: TieClaim | None = None
    """What the policy for ties has changed in that plan."""
    more_than_cheapest: float = 0.0
    """Seconds that the policy for ties has added."""
    measured_seconds: float | None = None
    """A run of the whole program."""
    branches: SideBySide | None = None
    comparison: Mapping[str, Any] | None = None
    """How candidate programs compared, if they were timed: what :class:`unity_collage.feedback.Refinement` asks for."""


WITHOUT_CANDIDATES = Plan(remarks=("TVM compiles it as it is",))
"""Of a function without candidates."""
