"""MeasuredCost: prices from the database, and from a worker process for what is not there yet."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import runtime
from ..annotations import UNKNOWN, Cost
from ..cost.bounds import lower_bound
from ..cost.fingerprint import backend_version, price_fingerprint
from ..cost.method import Method
from ..cost.model import Overheads, Progress, Workload
from ..database.costs import CostDatabase
from ..database.rows import digest
from ..errors import MissingPrice
from ..machine.caches import Caches, reported
from ..machine.last_level import caches
from ..machine.peaks import known_machine, machine
from ..target import current_target
from .locked import missing_prices
from .questions import Circumstances, Client, costs_together, known_costs, measured_costs, rivals
from .session import Session

if TYPE_CHECKING:
    from .tuning.pricing import Tuning


def _no_progress(_done: int, _total: int, _label: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class MeasuredCost:
    """Every distinct kernel is built, checked against a reference and timed once, in a worker process.

    The process lives from the first question that needs it until :meth:`close`, or as long as this value; those
    for one computation are timed in turns, so ask for them together.
    """

    database: CostDatabase | None = None
    """Where prices are kept; None: the user's own database."""
    timeout_seconds: float = 60.0
    """A kernel that needs longer for one step (to be built, to be run, to be timed) has no price."""
    memory_bytes: int | None = None
    """By so much the worker process may grow; None: by half of the machine's memory."""
    method: Method = field(default_factory=Method)
    progress: Progress = _no_progress
    locked: bool = False
    """Nothing is measured: what the database does not know is an error, so that every build is the same."""
    budget_seconds: float | None = None
    """From the first question on so much time is spent on measuring; what is not known then has no price."""
    tuning_folder: Path | None = None
    """Where tuned schedules are kept; None: beside the database."""
    _session: Session = field(default_factory=Session, init=False, repr=False, compare=False)

    def prices(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """Costs by workload key: from the database, else measured now and kept."""
        database, here = self._opened(), self._circumstances()
        distinct = {workload.key: workload for workload in workloads}
        known = known_costs(database, list(distinct.values()), here)
        missing = [workload for key, workload in distinct.items() if key not in known]
        if missing and self.locked:
            raise MissingPrice(missing_prices(database, missing, here.fingerprint))
        answered: list[Workload] = []
        hits = len(known)

        def work(client: Client, group: list[Workload]) -> dict[str, Cost]:
            what = f"{', '.join(w.backend for w in group)} {group[0].label}"
            self.progress(len(answered), len(missing), f"{what} ({hits} known before)")
            found = self._not_now(group) or measured_costs(client, database, group, here)
            answered.extend(group)
            return found

        for found in self._spread(rivals(missing), work):
            known |= found
        self.progress(len(missing), len(missing), "")
        return known

    def launch_seconds(self) -> float:
        """What the VM pays for one call of a kernel that TVM has made."""
        return self.overheads(("tvm",)).launch_seconds

    def overheads(self, backends: Sequence[str]) -> Overheads:
        """Launches and transitions of these backends, measured once per machine."""
        database, here = self._opened(), self._circumstances()
        names = sorted({*backends, "tvm"})
        fingerprint, fact = here.fingerprint("tvm"), f"overheads {' '.join(names)}"
        known = database.fact(fact, fingerprint)
        if known is None and self.locked:
            raise MissingPrice(f"what kernel calls cost on this machine is not in {database.name}")
        if known is None:
            question = {"ask": "launch", "target": str(here.target)}
            known = self._client().ask({**question, "backends": names})
            if "seconds" not in known:  # some backend took the process with it: TVM's kernels do not
                known = self._client().ask({**question, "backends": ["tvm"]})
            if "seconds" not in known:
                warnings.warn(
                    f"kernel calls could not be timed and count as free: {known['reason']}", stacklevel=2
                )
                return Overheads()
            database.keep_fact(fact, fingerprint, known)
        return Overheads(float(known["seconds"]), known["launches"], known["transitions"])

    def evict_bytes(self, working_set: int) -> int:
        """What to stream over before a kernel of such a network; what is not said of the caches is measured."""
        here = self._caches() if reported().evict_bytes(working_set) else reported()
        return here.evict_bytes(working_set)

    def lower_bounds(self, workloads: Sequence[Workload]) -> dict[str, float]:
        """Seconds that no kernel of each workload beats, by key; the machine's peaks are measured once."""
        database = self._opened()
        if self.locked and known_machine(database) is None:
            raise MissingPrice(f"what this machine can do at most is not in {database.name}")
        peaks = machine(database)
        return {workload.key: lower_bound(workload, peaks) for workload in workloads}

    def tuning(self, trials: int) -> Tuning:
        """Prices with schedules that MetaSchedule finds in so many trials; close it when done."""
        from .tuning.pricing import Tuning, tuning_folder  # builds kernels by the passes, which import this
        from .tuning.tuner import Tuner

        folder = self.tuning_folder or tuning_folder(self._opened())
        tuner, ended = Tuner(folder, trials), self.is_budget_spent
        return Tuning(tuner, current_target(), self.raced, self.locked, ended, self.progress)

    def raced(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """Costs of kernels for one computation; if one is not known, all are timed anew, against each other."""
        database, here = self._opened(), self._circumstances()
        known = known_costs(database, workloads, here)
        missing = [workload for workload in workloads if workload.key not in known]
        if not missing:
            return known
        if self.locked:
            raise MissingPrice(missing_prices(database, missing, here.fingerprint))
        (found,) = self._spread(
            [list(workloads)], lambda client, group: measured_costs(client, database, group, here)
        )
        return found

    def together(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """Costs of kernels that have prices already, for whatever computations, all timed in turns and kept as one.

        All are of one network. Empty where it is not known and cannot be measured: the
        database is locked, or the budget is spent.
        """
        database, here = self._opened(), self._circumstances()
        versions = [
            f"{backend} {here.version(backend)}" for backend in sorted({w.backend for w in workloads})
        ]
        named = "\n".join([*versions, *sorted(workload.key for workload in workloads)])
        fact, fingerprint = f"together {digest(named)}", here.fingerprint("tvm")
        known = database.fact(fact, fingerprint)
        if known is not None:
            return {key: Cost(**cost, origin="database") for key, cost in known.items()}
        if self.locked or self.is_budget_spent():
            return {}
        self.progress(0, 1, f"{len(workloads)} kernels that may be in the plan, once more, together")
        # Where nothing stays in any cache, more memory between two runs makes no difference. Caches are measured
        # for networks that leave the second level only.
        behind = workloads[0].evict_bytes
        apart = behind == 0 or behind < self._caches().all_bytes
        found = costs_together(self._client(), workloads, here, apart)
        self.progress(1, 1, "")
        numbers = ("seconds", "low", "high", "runs")
        database.keep_fact(
            fact, fingerprint, {key: {n: getattr(cost, n) for n in numbers} for key, cost in found.items()}
        )
        return found

    def remembered(self, name: str, what: str, measure: Callable[[], Any]) -> Any | None:
        """What is known under ``name`` of this machine, else what ``measure`` finds: plain data, and kept.

        None where it is not known and may not be measured: the database is locked, or there is a budget, which this
        could exceed by any time.
        """
        database, fingerprint = self._opened(), self._circumstances().fingerprint("tvm")
        known = database.fact(name, fingerprint)
        if known is None and not self.locked and self.budget_seconds is None:
            self.progress(0, 1, what)
            known = measure()
            self.progress(1, 1, "")
            database.keep_fact(name, fingerprint, known)
        return known

    def close(self) -> None:
        """End the worker process; the next question that needs one starts another."""
        self._session.close()

    def __enter__(self) -> MeasuredCost:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def is_budget_spent(self) -> bool:
        """Whether nothing more is measured."""
        return self._session.seconds_since_start() > (self.budget_seconds or math.inf)

    def _spread(
        self, groups: Sequence[list[Workload]], work: Callable[[Client, list[Workload]], dict[str, Cost]]
    ) -> Iterable[dict[str, Cost]]:
        """What ``work`` finds out about each group, one after the other."""
        return (work(self._client(), group) for group in groups)

    def _not_now(self, group: Sequence[Workload]) -> dict[str, Cost]:
        """The costs of what is not measured any more, for want of time; empty while there is some."""
        if not self.is_budget_spent():
            return {}
        reason = f"not measured: the budget of {self.budget_seconds:g} s was spent"
        bounds = self._bounds_if_known(group)
        return {key: Cost(None, reason=reason, origin=UNKNOWN, bound=bounds[key]) for key in bounds}

    def _bounds_if_known(self, workloads: Sequence[Workload]) -> dict[str, float]:
        """Lower bounds by key; 0 where measuring the machine for them would take more time."""
        if known_machine(self._opened()) is None:
            return {workload.key: 0.0 for workload in workloads}
        return self.lower_bounds(workloads)

    def _opened(self) -> CostDatabase:
        return CostDatabase() if self.database is None else self.database

    def _client(self) -> Client:
        threads = runtime.num_threads()
        return self._session.client(threads, self.method, self.timeout_seconds, self.memory_bytes)

    def _circumstances(self) -> Circumstances:
        target = current_target()
        return Circumstances(
            target,
            lambda backend: price_fingerprint(backend, target, self.method),
            backend_version,
        )

    def _caches(self) -> Caches:
        return caches(self._opened(), locked=self.locked)
