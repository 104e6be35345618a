"""KernelCosts: costs from the database; what is missing there is measured by other processes."""

from __future__ import annotations

import logging
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import ClassVar

from typing_extensions import Self

from ..cost.method import Method
from ..cost.model import Capability, CostModel, Overheads, Progress, Workload
from ..database.costs import CostDatabase
from ..errors import MissingCost
from ..plan.costs import UNKNOWN, Cost
from .locked import missing_costs
from .questions import Client, Fingerprints, grouped_by_computation, known_costs, measured_costs
from .session import Session

LOGGER = logging.getLogger(__name__)


def _no_progress(_done: int, _total: int, _label: str) -> None:
    """Ignore the progress."""


@dataclass(frozen=True)
class KernelCosts(CostModel):
    """Every distinct kernel is built, checked against a reference and timed once; the database keeps its cost.

    Kernels for one computation are timed in turns, so ask for them together. A subclass chooses the process that
    measures.
    """

    database: CostDatabase | None = None
    """The database of costs; None: the one in the user's cache directory."""
    timeout_seconds: float = 60.0
    """The limit for one step of a kernel: to build, to run or to time it. A kernel that needs longer has no cost."""
    memory_bytes: int | None = None
    """How many bytes the worker process may grow; None: half of the machine's memory."""
    method: Method = field(default_factory=Method)
    progress: Progress = _no_progress
    locked: bool = False
    """Whether nothing is measured: a cost that is not in the database is an error, so every build is the same."""
    budget_seconds: float | None = None
    """How many seconds after the first question to stop measuring; kernels without a cost by then have none."""
    _session: Session = field(default_factory=Session, init=False, repr=False, compare=False)

    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.COMPARE})

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """Costs by workload key: from the database, else measured now and stored there."""
        database, here = self._opened(), self._fingerprints()
        distinct = {workload.key: workload for workload in workloads}
        known = known_costs(database, list(distinct.values()), here)
        missing = [workload for key, workload in distinct.items() if key not in known]
        if missing and self.locked:
            raise MissingCost(missing_costs(database, missing, here.cost))
        LOGGER.info("%d costs are in %s, %d are to be measured", len(known), database.name, len(missing))
        answered: list[Workload] = []
        hits = len(known)

        def work(client: Client, group: list[Workload]) -> dict[str, Cost]:
            what = f"{', '.join(w.backend for w in group)} {group[0].label}"
            self.progress(len(answered), len(missing), f"{what} ({hits} known before)")
            found = self._out_of_time(group) or measured_costs(client, database, group, here)
            answered.extend(group)
            return found

        for found in self._spread(grouped_by_computation(missing), work):
            known |= found
        self.progress(len(missing), len(missing), "")
        return known

    def overheads(self, backends: Sequence[str]) -> Overheads:
        """Launches and transitions of these backends, measured once per machine."""
        database, here = self._opened(), self._fingerprints()
        names = sorted({*backends, "tvm"})
        fingerprint, fact = here.of_several(names), f"overheads {' '.join(names)}"
        known = database.fact(fact, fingerprint)
        if known is None and self.locked:
            raise MissingCost(f"the overheads of kernel calls are not in {database.name}, and it is locked")
        if known is None:
            question = {"ask": "launch", "target": str(here.target)}
            known = self._client().ask({**question, "backends": names})
            if "seconds" not in known:  # a backend has ended the process: ask for TVM's launches alone
                known = self._client().ask({**question, "backends": ["tvm"]})
            if "seconds" not in known:
                warnings.warn(
                    f"kernel calls could not be timed and count as free: {known['reason']}", stacklevel=2
                )
                return Overheads()
            database.keep_fact(fact, fingerprint, known)
        return Overheads(float(known["seconds"]), known["launches"], known["transitions"])

    def compared(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """Costs of kernels for one computation; if one is not known, all are timed again in turns."""
        database, here = self._opened(), self._fingerprints()
        known = known_costs(database, workloads, here)
        missing = [workload for workload in workloads if workload.key not in known]
        if not missing:
            return known
        if self.locked:
            raise MissingCost(missing_costs(database, missing, here.cost))
        (found,) = self._spread(
            [list(workloads)], lambda client, group: measured_costs(client, database, group, here)
        )
        return found

    def is_budget_spent(self) -> bool:
        """Whether the budget is used up; nothing more is measured then."""
        return self.budget_seconds is not None and self._session.seconds_since_start() >= self.budget_seconds

    @property
    def has_budget(self) -> bool:
        return self.budget_seconds is not None

    def database_and_lock(self) -> tuple[CostDatabase | None, bool]:
        return self.database, self.locked

    def close(self) -> None:
        """End the processes that measure; the next question that needs one starts another."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def _client(self) -> Client:
        """The client of the process that measures."""

    @abstractmethod
    def _fingerprints(self) -> Fingerprints:
        """The fingerprints of costs on the machine that measures."""

    def _spread(
        self, groups: Sequence[list[Workload]], work: Callable[[Client, list[Workload]], dict[str, Cost]]
    ) -> Iterable[dict[str, Cost]]:
        """What ``work`` returns for each group, one after the other."""
        return (work(self._client(), group) for group in groups)

    def _out_of_time(self, group: Sequence[Workload]) -> dict[str, Cost]:
        """Unknown costs for ``group`` once the budget is used up; empty before that."""
        if not self.is_budget_spent():
            return {}
        reason = f"not measured: the budget of {self.budget_seconds:g} s was spent"
        bounds = self._bounds_if_known(group)
        return {key: Cost(None, reason=reason, origin=UNKNOWN, bound=bounds[key]) for key in bounds}

    def _bounds_if_known(self, workloads: Sequence[Workload]) -> dict[str, float]:
        """Lower bounds by key that need no measurement."""
        return {workload.key: 0.0 for workload in workloads}

    def _opened(self) -> CostDatabase:
        return CostDatabase() if self.database is None else self.database
