"""Plan: the kernels that compute a function, their costs, and what is proved about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..search.certificate import Certificate
from ..search.tie_claim import TieClaim
from ..showing import Shown
from .comparison import ProgramComparison
from .in_place import InPlace
from .memory import PlanMemory
from .ranges import PlanAtSample, RangeClaim

VIEW = "view"
"""In place of a backend, for bindings that return their operand: they need no kernel and cost nothing."""


@dataclass(frozen=True, slots=True)
class Rival:
    """Another candidate for exactly the operators of a kernel."""

    backend: str
    seconds: float | None = None
    reason: str = ""
    """Why it has no cost."""


@dataclass(frozen=True, slots=True)
class Tie:
    """A candidate that costs the same as a kernel of the plan, within the measured intervals."""

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
    """By how many seconds that plan costs more."""
    exact: bool = True
    """False: the regret is a lower bound."""


@dataclass(frozen=True, slots=True)
class KernelWork:
    """The arithmetic and the bytes of a run of a kernel, as its operators are written."""

    flops: float
    """Operations of its convolutions and products by the direct algorithm, two for a multiply-add."""
    nbytes: int
    """Bytes of its inputs, weights and results, each once."""
    dtype: str = ""
    """The type of the operands of its convolutions and products; empty: it has none."""


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
    """The interval that the measured median lies in."""
    threads: int | None = None
    """How many threads run the kernel; None: its backend decides."""
    work: KernelWork | None = None
    """None where shapes are not known."""
    device: str = ""
    """The virtual device that the kernel runs on, as ``kind:index``; empty: there is only one."""
    others: tuple[Rival, ...] = ()
    ties: tuple[tuple[Tie, ...], ...] = ()
    """Groups of candidates; each group could replace the kernel."""
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
    condition: str = "predicate"
    """What refused them, as in :class:`.candidate.DeclinedBinding`; for a ``limit`` the last one of each group."""


def hidden_by_limits(declined: Sequence[DeclinedBindings]) -> Iterator[str]:
    """One line about the groups that were not offered as candidates because of a limit of a rule."""
    limits = [group for group in declined if group.condition == "limit"]
    if limits:
        places = len({binding for group in limits for binding in group.bindings})
        reasons = "; ".join(dict.fromkeys(f"{group.backend}: {group.reason}" for group in limits))
        yield f"groups that end at {places} bindings were not all offered ({reasons})"


@dataclass(frozen=True, slots=True)
class SideBySide:
    """What running independent branches side by side gained."""

    stages: int
    kernels: int
    split_seconds: float
    """Seconds of all kernels when all threads share each of them."""
    seconds: float
    """Seconds of all kernels with branches side by side."""


@dataclass(frozen=True, slots=True)
class Plan(Shown):
    """The plan of one function: its kernels, their costs, what is proved, and why other candidates were not chosen.

    It is plain data: :data:`unity_collage.annotations.PLAN` writes it into the module, :func:`.encoding.encode` writes
    it into the JSON of reports, :func:`.encoding.decode` reads both.
    """

    kernels: tuple[PlannedKernel, ...] = ()
    """In the order in which they run."""
    seconds: float = 0.0
    """The cost of kernels, launches and transitions together."""
    lower_bound: float = 0.0
    """No valid plan of the candidates is cheaper."""
    gap: float = 0.0
    """The difference between the plan's cost and the lower bound, as a part of its cost."""
    proved: bool = False
    algorithm: str = ""
    visited_states: int = 0
    launch_seconds: float = 0.0
    """For a call of a kernel of a backend that is not in ``launches``."""
    launches: Mapping[str, float] = field(default_factory=dict[str, float])
    """For a call of a kernel, by backend, where that differs."""
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    """The values of symbolic dimensions that the function is for, by name; empty unless it is a variant."""
    variants: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    """Of a function that only chooses one by the sizes of its inputs: its variants, and the sizes of each."""
    at_samples: tuple[PlanAtSample, ...] = ()
    """Of a function with free sizes: what its plan costs at each sample. ``seconds`` is the weighted sum then."""
    range: RangeClaim | None = None
    """Of a function that chooses a variant: what runs at each sample, and its regret."""
    left_behind: tuple[str, ...] = ()
    """Bindings in no kernel: views, and operators that TVM compiles as they are."""
    without_cost: tuple[WithoutCost, ...] = ()
    declined: tuple[DeclinedBindings, ...] = ()
    remarks: tuple[str, ...] = ()
    """Remarks for readers: steps that were skipped, doubts, changes after the search."""
    certificate: Certificate | None = None
    """A claim about the cheapest plan that :func:`unity_collage.search.certificate.why_not` checks."""
    problem: str = ""
    """The problem that the certificate answers, as :mod:`.instance` packs it."""
    tie_policy: TieClaim | None = None
    """What the policy for ties changed in that plan."""
    more_than_cheapest: float = 0.0
    """Seconds that the policy for ties added."""
    measured_seconds: float | None = None
    """Measured seconds of a run of the whole program."""
    percentile: float = 50.0
    """Which percentile of the runs the costs of kernels are, and ``measured_seconds``."""
    expected: int = 0
    """How many of its kernels were not measured, but have costs that are expected from those of others."""
    doubt: float = 0.0
    """The part of its cost by which another plan may be cheaper, because costs were measured while other processes
    used the machine.
    """
    branches: SideBySide | None = None
    comparison: ProgramComparison | None = None
    """The comparison of candidate programs, if :class:`unity_collage.feedback.Refinement` asked for one."""
    memory: PlanMemory | None = None
    """The bytes that its program holds while each kernel runs; None before it is built, or where that is not known."""
    in_place: InPlace | None = None
    """The times of its kernels in the running program, if that was profiled and passed this plan."""

    @property
    def has_costs(self) -> bool:
        """Whether its kernels have costs; otherwise it was chosen by rule, or no other plan is possible."""
        return any(kernel.seconds for kernel in self.kernels)

    @property
    def additive_error(self) -> float | None:
        """By how many seconds the whole program is slower than the sum of costs; None where one is not known."""
        if self.measured_seconds is None or not self.has_costs:
            return None
        return self.measured_seconds - self.seconds

    def with_times(self, times: InPlace) -> Plan:
        """The plan with the times of its kernels, and of the whole program in the same runs, if that is known."""
        timed = replace(self, in_place=times)
        if times.program is None or self.why_not_compared is not None:
            return timed
        return replace(timed, measured_seconds=times.program)

    def predicted(self, kernel: PlannedKernel) -> float | None:
        """The seconds to compare the time of a kernel in a profile with: its cost and its launch, if it has a cost."""
        if not kernel.seconds:
            return None
        return kernel.seconds + self.launches.get(kernel.backend, self.launch_seconds)

    @property
    def why_not_compared(self) -> str | None:
        """Why the times of a run cannot be compared with the costs; None if they can."""
        if self.at_samples:
            sizes = f"{len(self.at_samples)} size{'' if len(self.at_samples) == 1 else 's'}"
            return f"the costs are weighed over {sizes}, and a run has one"
        if self.percentile != 50.0:
            return (
                f"the costs are the {self.percentile:g}th percentile of the runs, and a profile has medians"
            )
        return None


class Plans(dict[str, Plan], Shown):
    """The plan of each function, by its name."""


WITHOUT_CANDIDATES = Plan(remarks=("TVM compiles it as it is",))
"""The plan of a function without candidates."""
