"""CostModel: the source of kernel costs, and its optional capabilities."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from tvm import relax
from tvm.target import Target

from ..errors import CollageError
from ..machine.caches import reported
from ..plan.costs import Cost, Point

if TYPE_CHECKING:
    from ..database.costs import CostDatabase


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """A request to a cost model: the cost of one run of ``func`` as a kernel of ``backend``."""

    digest: str
    """Digest of the computation, its types, and the parts and threads that the kernel is made of."""
    backend: str
    label: str
    func: relax.Function
    """The sub-graph as a function; its constants are the last parameters (attribute ``LIFTED``)."""
    evict_bytes: int
    """How many bytes of other memory are read between two runs (:mod:`unity_collage.machine.caches`)."""
    schedule: str = ""
    """Digest of the tuned schedule that ``func`` carries; empty: the backend's own schedule."""
    computation: str = ""
    """Digest of the function computed, whatever the kernel: kernels with equal digests are checked and timed
    together.
    """
    target: str = ""
    """The target of the kernel as JSON, if it is not the one in scope."""

    @property
    def key(self) -> str:
        """The key of the cost, for one fingerprint."""
        tuned = f":{self.schedule}" if self.schedule else ""
        place = f":{hashlib.sha256(self.target.encode()).hexdigest()[:8]}" if self.target else ""
        return f"{self.backend}:{self.digest}:{self.evict_bytes >> 10}K{tuned}{place}"


def by_target(workloads: Iterable[Workload]) -> Iterator[tuple[AbstractContextManager[Any], list[Workload]]]:
    """The workloads of each target, in order, with the scope of that target; nothing to enter for the one in scope."""
    groups: dict[str, list[Workload]] = {}
    for workload in workloads:
        groups.setdefault(workload.target, []).append(workload)
    for text, group in groups.items():
        yield (Target(json.loads(text)) if text else nullcontext()), group


@dataclass(frozen=True, slots=True)
class Overheads:
    """The costs of a plan other than those of its kernels, in seconds."""

    launch_seconds: float = 0.0
    """For a call of a kernel of a backend that is not in ``launches``."""
    launches: Mapping[str, float] = field(default_factory=dict[str, float])
    """For a call of a kernel, by backend."""
    transitions: Mapping[str, Sequence[Point]] = field(default_factory=dict[str, "Sequence[Point]"])
    """For a value that one backend writes and another reads, by ``"writer>reader"``: seconds by bytes, ascending."""
    unknown: Mapping[str, str] = field(default_factory=dict[str, str])
    """The backends with unknown transitions, which count as free, with the reason."""


@dataclass(frozen=True, slots=True)
class TunedCost:
    """A kernel that is faster with a tuned schedule than with ours."""

    workload: Workload
    cost: Cost
    kernel: str
    """:func:`unity_collage.schedule.tuned.kernel_name`."""
    trace: str


class TuningSession(Protocol):
    """The result of :meth:`CostModel.tuning`."""

    def tuned(self, workload: Workload) -> TunedCost | None:
        """The cost with the best schedule; None where ours is as fast, there is no schedule, or no time is left."""
        ...


class Capability(Enum):
    """What a cost model may be able to do in addition to returning costs."""

    COMPARE = "time kernels for one computation in turns"
    CONFIRM = "time the kernels of a plan together, in turns"
    RUN_PROGRAMS = "run whole programs where its costs are from"
    TUNE = "tune kernels"


Progress = Callable[[int, int, str], None]
"""Called with the number of finished workloads, the number of all, and the name of the next one."""


class CostModel(ABC):
    """The source of costs: measurements, a database of them, a formula, or a table.

    A subclass implements :meth:`costs`. For anything more it declares the capability and implements the method that
    belongs to it; all other methods have defaults. A pass calls :meth:`why_not` before it uses a capability. A step
    that is skipped leaves the reason in the plan.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset()

    @abstractmethod
    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """The cost for each workload's key, or the reason why there is none."""

    def known(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """The costs and refusals that need no measurement, by key; by default none."""
        del workloads
        return {}

    def doubtful(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """The known costs that :meth:`costs` would measure again, as they are, by key; by default none."""
        del workloads
        return {}

    def overheads(self, backends: Sequence[str]) -> Overheads:
        """Launches and transitions of these backends; by default they cost nothing."""
        return Overheads()

    def copies(self, places: Sequence[str], *, shared: bool = False) -> Mapping[str, Sequence[Point]]:
        """The costs of copies from each device of the machine, such as ``cpu:1``, to each: seconds by bytes,
        ascending.

        The keys are ``"from>to"``, also of a device to itself: two VDevices may be on one device. With ``shared`` the
        devices have one memory, so a value is not copied, but gets a second name. By default costs are not known, and
        devices are not chosen: raises CollageError.
        """
        del places, shared
        raise CollageError(f"{type(self).__name__} does not know what copies between devices cost")

    def lower_bounds(self, workloads: Sequence[Workload]) -> dict[str, float]:
        """Lower bounds of costs in seconds, by key; by default 0."""
        return {workload.key: 0.0 for workload in workloads}

    def evict_bytes(self, working_set: int) -> int:
        """How many bytes of other memory to read before each run of a kernel, for a network of ``working_set`` bytes.

        By default it follows from the caches that this machine reports.
        """
        return reported().evict_bytes(working_set)

    def target(self) -> Target | None:
        """The target to compile for, where the costs are of another machine; None: the target in scope."""
        return None

    def is_limited(self) -> bool:
        """Whether the time for measuring has a limit; if so, building programs has a limit too."""
        return True

    def is_budget_spent(self) -> bool:
        """Whether the time for measuring is used up; nothing more is measured then."""
        return False

    def sharing(self, part: float) -> AbstractContextManager[None]:
        """While the result is entered, measuring ends when this part of its time is over; by default it does not."""
        del part
        return nullcontext()

    def finishing(self) -> AbstractContextManager[None]:
        """While the result is entered, costs that are not known may take all time that is left: nothing is measured
        once more behind them. By default nothing changes.
        """
        return nullcontext()

    def database_and_lock(self) -> tuple[CostDatabase | None, bool]:
        """The database of the costs, if there is one, and whether it is locked, so that nothing is measured."""
        return None, False

    def why_not(self, capability: Capability) -> str | None:
        """Why this model does not have ``capability``, or None when it does."""
        if capability in self.capabilities:
            return None
        return f"{type(self).__name__} cannot {capability.value}"

    def compared(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """Costs by key of kernels for one computation, all timed in turns (``COMPARE``).

        Raises MissingCost where a cost is not known and nothing may be measured.
        """
        raise CollageError(self.why_not(Capability.COMPARE))

    def confirmed(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """Costs by key of kernels that have costs already, all timed in turns (``CONFIRM``).

        The kernels may compute different things, but are all of one network. Empty where nothing may be measured.
        """
        raise CollageError(self.why_not(Capability.CONFIRM))

    def confirmed_in(self, function: Sequence[Workload], workloads: Sequence[Workload]) -> dict[str, Cost]:
        """:meth:`confirmed` of some of the workloads of a function, all of which are given.

        Where nothing may be measured, it may be of other workloads: those of the last session for this function.
        """
        del function
        return self.confirmed(workloads)

    def known_or_measured(
        self, name: str, backends: Iterable[str], what: str, measure: Callable[[], Any]
    ) -> Any | None:
        """The fact ``name`` of this machine, else what ``measure`` returns: plain data (``RUN_PROGRAMS``).

        It holds for one version of each of ``backends``, the backends of the kernels that run. None where nothing may
        be measured. ``what`` names it for progress.
        """
        raise CollageError(self.why_not(Capability.RUN_PROGRAMS))

    def tuning(self, trials: int) -> AbstractContextManager[TuningSession]:
        """Costs with schedules that a tuner finds in ``trials`` trials for each kernel (``TUNE``)."""
        raise CollageError(self.why_not(Capability.TUNE))
