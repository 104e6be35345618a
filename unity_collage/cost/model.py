"""CostModel: where the cost of a kernel comes from, and what else such a source can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from tvm import relax
from tvm.target import Target

from ..machine.caches import reported
from ..plan.costs import Cost

if TYPE_CHECKING:
    from ..database.costs import CostDatabase


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """One question to a cost model: what does one run of ``func`` cost as a kernel of ``backend``?"""

    digest: str
    """Of the computation and its types, :class:`unity_collage.graph.Signatures`."""
    backend: str
    label: str
    func: relax.Function
    """The sub-graph alone; its constants are trailing parameters (attribute ``LIFTED``)."""
    evict_bytes: int
    """How many bytes of other memory are touched between two runs (:mod:`unity_collage.machine.caches`)."""
    schedule: str = ""
    """Digest of the tuned schedule that ``func`` carries; empty: as the backend makes it by itself."""

    @property
    def key(self) -> str:
        """Names the cost inside one module."""
        tuned = f":{self.schedule}" if self.schedule else ""
        return f"{self.backend}:{self.digest}:{self.evict_bytes >> 10}K{tuned}"


@dataclass(frozen=True, slots=True)
class Overheads:
    """What a plan pays besides its kernels, in seconds."""

    launch_seconds: float = 0.0
    """For a call of a kernel, where ``launches`` does not say it."""
    launches: Mapping[str, float] = field(default_factory=dict)
    """For a call of a kernel, by backend."""
    transitions: Mapping[str, float] = field(default_factory=dict)
    """For a value that one backend writes and another reads, by ``"writer>reader"``."""


@dataclass(frozen=True, slots=True)
class TunedCost:
    """A kernel with a tuned schedule that is faster than with ours."""

    workload: Workload
    cost: Cost
    kernel: str
    """:func:`unity_collage.schedule.tuned.kernel_name`."""
    trace: str


class TuningSession(Protocol):
    """What :meth:`CostModel.tuning` opens."""

    def tuned(self, workload: Workload) -> TunedCost | None:
        """The cost with the best schedule; None where that gains nothing, there is none, or there is no time."""
        ...


class Capability(Enum):
    """What a cost model may be able to do besides saying what kernels cost."""

    COMPARE = "time kernels for one computation against each other"
    CONFIRM = "time the kernels of a plan together, in turns"
    RUN_PROGRAMS = "run whole programs where its costs are from"
    TUNE = "have kernels tuned"


Progress = Callable[[int, int, str], None]
"""Is told how many questions are answered, of how many, and which one is next."""


class CostModel(ABC):
    """Where a cost comes from: a measurement, a database of them, a formula, or a table typed by hand.

    A subclass says what kernels cost (:meth:`costs`). What else it can do it declares in ``capabilities``, and
    implements the method that belongs to it; all others have defaults. A pass asks :meth:`why_not` before it
    asks for more, and a step that is skipped leaves the reason in the plan.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset()

    @abstractmethod
    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """A cost, or the reason why there is none, for each workload's key."""

    def overheads(self, backends: Sequence[str]) -> Overheads:
        """Launches and transitions of these backends; by default all are free."""
        return Overheads()

    def lower_bounds(self, workloads: Sequence[Workload]) -> dict[str, float]:
        """Seconds that no kernel of each workload beats, by key; by default 0."""
        return {workload.key: 0.0 for workload in workloads}

    def evict_bytes(self, working_set: int) -> int:
        """How many bytes to touch before a kernel of a network that touches ``working_set`` bytes a run; by default
        what the caches that this machine reports ask for.
        """
        return reported().evict_bytes(working_set)

    def target(self) -> Target | None:
        """What programs are compiled for, where the costs are of another machine; None: the target in scope."""
        return None

    def is_budget_spent(self) -> bool:
        """Whether nothing more is measured for want of time."""
        return False

    @property
    def has_budget(self) -> bool:
        """Whether the time for measuring is limited."""
        return False

    def kept_in(self) -> tuple[CostDatabase | None, bool]:
        """The database of the costs, if there is one, and whether it is locked: then nothing is measured."""
        return None, False

    def why_not(self, capability: Capability) -> str | None:
        """Why this model cannot do that, or None when it can."""
        if capability in self.capabilities:
            return None
        return f"{type(self).__name__} cannot {capability.value}"

    def compared(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """Costs by key of kernels for one computation, all timed in turns (``COMPARE``).

        Raises MissingCost where one is not known and nothing may be measured.
        """
        raise NotImplementedError(self.why_not(Capability.COMPARE))

    def confirmed(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """Costs by key of kernels that have costs already, for whatever computations, all timed in turns (``CONFIRM``).

        All are of one network. Empty where nothing may be measured.
        """
        raise NotImplementedError(self.why_not(Capability.CONFIRM))

    def remembered(self, name: str, what: str, measure: Callable[[], Any]) -> Any | None:
        """What is known under ``name`` of this machine, else what ``measure`` finds: plain data (``RUN_PROGRAMS``).

        None where nothing may be measured. ``what`` is for progress.
        """
        raise NotImplementedError(self.why_not(Capability.RUN_PROGRAMS))

    def tuning(self, trials: int) -> AbstractContextManager[TuningSession]:
        """Costs with schedules that a tuner finds in so many trials a kernel (``TUNE``)."""
        raise NotImplementedError(self.why_not(Capability.TUNE))
