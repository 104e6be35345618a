"""MeasuredCost: costs measured on this machine, in a worker process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from tvm.target import Target

from .. import runtime
from ..cost.bounds import lower_bound
from ..cost.fingerprint import backend_version, cost_fingerprint
from ..cost.model import Capability, Workload, by_target
from ..database.answers import HINT
from ..database.rows import digest
from ..errors import CollageError, MissingCost
from ..lowering.object_store import ObjectStore, object_store
from ..machine.caches import Caches, reported
from ..machine.last_level import caches
from ..machine.load import LoadWatch
from ..machine.peaks import Machine, known_machine, machine
from ..plan.costs import Cost, Point
from ..target import current_target
from .copies import measured_copies, pairs_of
from .kernel_costs import KernelCosts
from .pace import in_questions
from .packed import PackedCosts
from .questions import Client, Fingerprints, costs_in_turns
from .runnable import why_not_measured
from .tuning.costs import Tuning, tuning_folder
from .tuning.tuner import Tuner


@dataclass(frozen=True)
class MeasuredCost(KernelCosts):
    """Kernels are timed in a worker process. It starts when the first cost is measured, and ends with :meth:`close`."""

    tuning_folder: Path | None = None
    """The folder of tuned schedules; None: next to the database."""
    packs: bool = True
    """Whether packs of costs for this processor's family are used, if a measured sample agrees."""

    capabilities: ClassVar[frozenset[Capability]] = frozenset(Capability)

    def evict_bytes(self, working_set: int) -> int:
        """How many bytes to read before each run of a kernel to evict the caches, for a network of ``working_set``
        bytes.

        The third-level cache is measured unless all fits into the second.
        """
        here = self._caches() if reported().evict_bytes(working_set) else reported()
        return here.evict_bytes(working_set)

    def lower_bounds(self, workloads: Sequence[Workload]) -> dict[str, float]:
        """Lower bounds of costs in seconds, by key; the machine's peaks are measured once."""
        peaks = self._known_peaks()
        if peaks is None:
            database = self._opened()
            if self.locked:
                raise MissingCost(f"the peaks of this machine are not in {database.name}, and it is locked")
            peaks = machine(database)
        return {workload.key: lower_bound(workload, peaks) for workload in workloads}

    def _known_peaks(self) -> Machine | None:
        """The peaks of this machine, if the database has them: it is asked once in a session."""
        peaks, threads = self._session.peaks, runtime.num_threads()
        if threads not in peaks and (known := known_machine(self._opened())) is not None:
            peaks[threads] = known
        return peaks.get(threads)

    def copies(self, places: Sequence[str], *, shared: bool = False) -> Mapping[str, Sequence[Point]]:
        """The costs of copies between devices of this machine, measured once.

        Raises MissingCost if they cannot be measured.
        """
        found: dict[str, Sequence[Point]] = {}
        kind = "shared copy" if shared else "copy"
        for source, destination in pairs_of(places):
            name = f"{source}>{destination}"
            measure = partial(measured_copies, source, destination, shared)
            known = self.known_or_measured(
                f"{kind} {name}", (), f"copies from {source} to {destination}", measure
            )
            if known is None:
                raise MissingCost(
                    f"what a {kind} {name} costs is not in the database, and nothing may be measured"
                )
            found[name] = tuple((int(nbytes), float(seconds)) for nbytes, seconds in known)
        return found

    def tuning(self, trials: int) -> Tuning:
        """Costs with schedules that MetaSchedule finds in ``trials`` trials; use the result as a context manager."""
        folder = self.tuning_folder or tuning_folder(self._opened())
        tuner, ended = Tuner(folder, trials), self.is_budget_spent
        return Tuning(tuner, current_target(), self.compared, self.locked, ended, self.progress)

    def confirmed(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """Costs of kernels that have costs already, all timed in turns and stored as one fact.

        The kernels may compute different things, but are all of one network. The result is empty where the costs are
        not known and cannot be measured: the database is locked, or the budget is spent.
        """
        found: dict[str, Cost] = {}
        for scope, group in by_target(workloads):
            with scope:
                confirmed = self._confirmed(group)
            if not confirmed:  # costs of some targets alone would change the plan by chance
                return {}
            found |= confirmed
        return found

    def confirmed_in(self, function: Sequence[Workload], workloads: Sequence[Workload]) -> dict[str, Cost]:
        """:meth:`confirmed`, or the last session for this function where the database is locked and lacks this one.

        What a compile measures behind this step may be near the plan of the next one.
        """
        database, found = self._opened(), self.confirmed(workloads)
        name = f"{HINT}together {_digest(function)}"
        fingerprint = self._fingerprints().of_several(workload.backend for workload in function)
        last: list[str] = database.fact(name, fingerprint) or []
        if self.locked and not found:
            return self.confirmed([workload for workload in function if workload.key in last])
        keys = sorted(workload.key for workload in workloads)
        if found and keys != last and not (self.locked or database.read_only):
            database.keep_fact(name, fingerprint, keys)
        return found

    def _confirmed(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """:meth:`confirmed` of kernels for the target in scope."""
        here = self._fingerprints()
        fact = f"together {_digest(workloads)}"
        fingerprint = here.of_several(workload.backend for workload in workloads)
        known = self._fact(fact, fingerprint)
        if known is not None:
            return _stored_costs(known)
        if self.locked or self.is_budget_spent():
            return {}
        self.progress(0, 1, f"measuring {len(workloads)} kernels that may be in the plan once more, in turns")
        # Once all caches are evicted, more memory between two runs makes no difference. Caches are measured only for
        # networks that do not fit into the second level.
        behind = workloads[0].evict_bytes
        apart = behind == 0 or behind < self._caches().all_bytes
        found = costs_in_turns(self._client(), workloads, here, apart, self._seconds_for(fact))
        self.progress(1, 1, "")
        if not found:
            return _stored_costs(self._fact_of_before(fact, fingerprint) or {})
        fields = ("seconds", "low", "high", "runs", "is_doubtful")
        measured = {key: {name: getattr(cost, name) for name in fields} for key, cost in found.items()}
        doubtful_seconds = _seconds(cost for cost in found.values() if cost.is_doubtful)
        kept = self._keep_fact(fact, fingerprint, measured, 2 * doubtful_seconds > _seconds(found.values()))
        return found if kept == measured else _stored_costs(kept)

    def known_or_measured(
        self, name: str, backends: Iterable[str], what: str, measure: Callable[[], Any]
    ) -> Any | None:
        """The fact ``name`` about kernels of ``backends``: from the database, else what ``measure`` returns, which is
        stored.

        None where it is not known and may not be measured: the database is locked, or the budget is spent. ``what``
        names it for progress. A doubtful fact holds if measuring it again fails.
        """
        fingerprint = self._fingerprints().of_several(backends)
        known = self._fact(name, fingerprint)
        if known is None and not self.locked and not self.is_budget_spent():
            self.progress(0, 1, f"measuring {what}")
            watch = LoadWatch()
            try:
                measured = measure()
            except CollageError:
                known = self._fact_of_before(name, fingerprint)
                if known is None:
                    raise
                return known
            self.progress(1, 1, "")
            known = self._keep_fact(name, fingerprint, measured, watch.load().is_busy)
        return known

    def _bounds_if_known(self, workloads: Sequence[Workload]) -> dict[str, float]:
        """Lower bounds by key; 0 where the machine's peaks are not known yet."""
        if self._known_peaks() is None:
            return super()._bounds_if_known(workloads)
        return self.lower_bounds(workloads)

    def _packed(
        self, workloads: Sequence[Workload], own: Mapping[str, Cost], here: Fingerprints
    ) -> dict[str, Cost]:
        """Costs from packs; where one is tried, also those of the sample that is measured for it."""
        if not self.packs:
            return {}
        if self._session.packs is None:
            self._session.packs = PackedCosts(self._opened())

        def measure(workload: Workload) -> Cost:
            return self._measured([workload], here)[workload.key]

        return self._session.packs.costs(workloads, own, here, None if self.locked else measure)

    def _spread_new(
        self, groups: Sequence[list[Workload]], work: Callable[[Client, list[Workload]], dict[str, Cost]]
    ) -> Iterable[dict[str, Cost]]:
        """The results of ``work`` for several groups at a time: their kernels are compiled on all cores."""
        return (work(self._client(), several) for several in in_questions(groups, self._seconds_left))

    def _client(self) -> Client:
        threads = runtime.num_threads()
        folder = self.object_store().folder
        objects = None if folder is None else str(folder)
        return self._session.client(
            threads, self.method, self.timeout_seconds, self.memory_bytes, objects=objects
        )

    def object_store(self) -> ObjectStore:
        """The object code of TVM's kernels, in a folder next to the file of costs."""
        database = self._opened()
        return object_store(database.path, self.locked or database.read_only)

    def _fingerprints(self) -> Fingerprints:
        target = current_target()
        return Fingerprints(
            target,
            lambda backend: cost_fingerprint(backend, target, self.method),
            backend_version,
        )

    def why_not_measured(self, target: Target) -> str | None:
        return why_not_measured(target)

    def _caches(self) -> Caches:
        return caches(self._opened(), locked=self.locked)


def _digest(workloads: Iterable[Workload]) -> str:
    return digest("\n".join(sorted(workload.key for workload in workloads)))


def _stored_costs(fact: Mapping[str, Mapping[str, Any]]) -> dict[str, Cost]:
    return {key: Cost(**cost, origin="database") for key, cost in fact.items()}


def _seconds(costs: Iterable[Cost]) -> float:
    return sum(cost.seconds or 0.0 for cost in costs)
