"""KernelCosts: costs from the database; what is missing there is measured by other processes."""

from __future__ import annotations

import logging
import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar

from tvm.target import Target
from typing_extensions import Self

from ..cost.method import Method
from ..cost.model import Capability, CostModel, Overheads, Progress, Workload, by_target
from ..database.costs import CostDatabase
from ..errors import MissingCost, warn
from ..plan.costs import OUT_OF_TIME, STOPPED, UNKNOWN, Cost
from .locked import missing_costs, missing_fact
from .overheads import measured_overheads, points_of
from .questions import Client, Fingerprints, grouped_by_computation, known_costs, measured_costs, named
from .session import Session

LOGGER = logging.getLogger(__name__)

_FIRST_PART = 0.75
"""The part of a budget for unknown costs; the rest is for measuring costs near the plan once more."""

_LAST_PART = 0.15
"""The part of a budget that the last new costs have at least, those at other sizes."""

SECONDS_AGAIN = 5.0
"""How many seconds a compile spends on doubtful costs."""


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
    remeasure: bool = False
    """Whether costs that are known are measured again, once; otherwise only those that are doubtful."""
    _session: Session = field(default_factory=Session, init=False, repr=False, compare=False)

    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.COMPARE})

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """Costs by workload key: from the database, else measured now and stored there."""
        found: dict[str, Cost] = {}
        for scope, group in by_target(workloads):
            with scope:
                found |= self._costs(group)
        return found

    def _costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """:meth:`costs` of kernels for the target in scope."""
        database, here = self._opened(), self._fingerprints()
        distinct = {workload.key: workload for workload in workloads}
        known = self._known(list(distinct.values()), here)
        missing = [workload for key, workload in distinct.items() if key not in known]
        if missing and self.locked:
            raise MissingCost(missing_costs(database, missing, here.cost))
        LOGGER.info("%d costs are in %s, %d are to be measured", len(known), database.name, len(missing))
        return known | self._measured(missing, here) | self._measured_again(distinct, known, here)

    def known(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """The costs and refusals in the database and in packs, by key, without those that are to be measured again."""
        found = self._known_of_all(workloads)
        sure = {key for key, cost in found.items() if not self._is_worth(key, cost)}
        return self.costs([workload for workload in workloads if workload.key in sure])

    def doubtful(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """The costs in the database that are to be measured again, by key."""
        found = self._known_of_all(workloads)
        return {key: cost for key, cost in found.items() if self._is_worth(key, cost)}

    def _known_of_all(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """:meth:`_known` of kernels for several targets."""
        found: dict[str, Cost] = {}
        for scope, group in by_target(workloads):
            with scope:
                found |= self._known(group, self._fingerprints())
        return found

    def _known(self, workloads: Sequence[Workload], here: Fingerprints) -> dict[str, Cost]:
        """The costs and refusals in the database, and those that :meth:`_packed` adds."""
        own = known_costs(self._opened(), workloads, here)
        return self._packed(workloads, own, here) | own

    def _packed(
        self, _workloads: Sequence[Workload], _own: Mapping[str, Cost], _here: Fingerprints
    ) -> dict[str, Cost]:
        """Costs from packs for those that have none in ``_own``; by default none."""
        return {}

    def _measured(self, missing: Sequence[Workload], here: Fingerprints) -> dict[str, Cost]:
        """The costs of kernels that have none yet."""
        if missing and (reason := self.why_not_measured(here.target)):
            return {workload.key: Cost(None, reason=reason) for workload in missing}
        answered: list[Workload] = []

        def work(client: Client, group: list[Workload]) -> dict[str, Cost]:
            self.progress(len(answered), len(missing), f"measuring {named(group)}{self._time_left()}")
            found: dict[str, Cost] = {}
            if not self._is_spent(self._first_part()):
                found = measured_costs(client, self._opened(), group, here, seconds=self._seconds_to_answer())
            answered.extend(group)
            late = [workload for workload in group if workload.key not in found]
            return found | self._out_of_time(late)

        found: dict[str, Cost] = {}
        for costs in self._spread_new(grouped_by_computation(missing), work):
            found |= costs
        self.progress(len(missing), len(missing), "")
        self._session.measured |= found.keys()
        return found

    def why_not_measured(self, target: Target) -> str | None:
        """Why kernels for ``target`` cannot run where this model measures, or None if no reason is known."""
        del target
        return None

    def _measured_again(
        self, asked: Mapping[str, Workload], known: Mapping[str, Cost], here: Fingerprints
    ) -> dict[str, Cost]:
        """New costs of those that are doubtful, in the order in which they are asked for, as long as time is left."""
        again = [
            workload for key, workload in asked.items() if key in known and self._is_worth(key, known[key])
        ]
        if not again:
            return {}

        def work(client: Client, group: list[Workload]) -> dict[str, Cost]:
            if not self._has_time_again():
                return {}
            begin = time.monotonic()
            self.progress(0, 1, f"measuring {group[0].backend} {group[0].label} once more")
            found = measured_costs(client, self._opened(), group, here)
            refused = [w for w in group if w.key in found and found[w.key].seconds is None]
            lasting = known_costs(self._opened(), refused, here)
            found |= {w.key: lasting.get(w.key, known[w.key]) for w in refused}
            self._session.seconds_again += time.monotonic() - begin
            self._session.measured |= found.keys()
            return found

        found: dict[str, Cost] = {}
        for costs in self._spread([[workload] for workload in again], work):
            found |= {
                key: cost for key, cost in costs.items() if known[key].is_doubtful or not cost.is_doubtful
            }
        return found

    def _is_worth(self, key: str, cost: Cost) -> bool:
        """Whether a known cost is to be measured again."""
        if self.locked or cost.seconds is None or key in self._session.measured:
            return False
        return self.remeasure or cost.is_doubtful

    def _has_time_again(self) -> bool:
        """Whether something may be measured that is known already."""
        if self.locked or self._is_spent(1.0):
            return False
        return self.remeasure or self._session.seconds_again < SECONDS_AGAIN

    def _fact(self, name: str, fingerprint: str) -> Any | None:
        """A fact of the database; None where it is not known, or is to be measured again."""
        database, session = self._opened(), self._session
        known = database.fact(name, fingerprint)
        if known is None or name in session.measured or not self._has_time_again():
            return known
        if not self.remeasure and database.fact(name, fingerprint, sure=True) is not None:
            return known
        session.again[name] = time.monotonic()
        return None

    def _seconds_for(self, fact: str) -> float:
        """The most seconds that :meth:`_fact` may measure for."""
        if self.remeasure or fact not in self._session.again:
            return math.inf
        return SECONDS_AGAIN - self._session.seconds_again

    def _keep_fact(self, name: str, fingerprint: str, value: Any, is_doubtful: bool) -> Any:
        """Store a fact; returns the one that holds: a doubtful fact does not replace a sure one."""
        self._opened().keep_fact(name, fingerprint, value, is_doubtful)
        self._end_again(name)
        return self._opened().fact(name, fingerprint)

    def _fact_of_before(self, name: str, fingerprint: str) -> Any | None:
        """The fact that :meth:`_fact` has left out to be measured again, of which nothing came; None if there is none.

        It holds: a compile that may not measure finds it too.
        """
        self._end_again(name)
        return self._opened().fact(name, fingerprint)

    def _end_again(self, name: str) -> None:
        """Measure a fact no more in this session, and count the seconds if it was known already."""
        begin = self._session.again.pop(name, None)
        if begin is not None:
            self._session.seconds_again += time.monotonic() - begin
        self._session.measured.add(name)

    def overheads(self, backends: Sequence[str]) -> Overheads:
        """Launches and transitions of these backends, measured once per machine."""
        here = self._fingerprints()
        names = sorted({*backends, "tvm"})
        fingerprint, fact = here.of_several(names), f"overheads by size {' '.join(names)}"
        known = self._fact(fact, fingerprint)
        if known is None and self.locked:
            what = "the overheads of kernel calls"
            raise MissingCost(missing_fact(self._opened(), fact, what, fingerprint))
        if known is None:
            measured = self._new_overheads(names, here.target)
            if "seconds" in measured:
                known = self._keep_fact(fact, fingerprint, measured, measured.pop("doubtful"))
            elif (known := self._fact_of_before(fact, fingerprint)) is None:
                return Overheads(unknown=dict.fromkeys(names, str(measured["reason"])))
        return Overheads(
            float(known["seconds"]),
            known["launches"],
            points_of(known["transitions"]),
            known.get("unknown", {}),
        )

    def _new_overheads(self, names: Sequence[str], target: Target) -> dict[str, Any]:
        """The replies about overheads as one, measured now; a ``reason`` if they cannot be."""
        if reason := self.why_not_measured(target):
            return {"reason": reason}
        self.progress(0, 1, "measuring this machine: calls and transitions")
        found = measured_overheads(self._client(), names, str(target))
        if "seconds" not in found:
            warn(f"kernel calls could not be timed and count as free: {found['reason']}")
        return found

    def compared(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """Costs of kernels for one computation; if one is not known, it is timed in turns with the others.

        Those that are known, in the database or from a pack, keep their costs: the others are scaled to their level.
        """
        found: dict[str, Cost] = {}
        for scope, group in by_target(workloads):
            with scope:
                found |= self._compared(group)
        return found

    def _compared(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """:meth:`compared` of kernels for the target in scope."""
        database, here = self._opened(), self._fingerprints()
        known = self._known(workloads, here)
        missing = [workload for workload in workloads if workload.key not in known]
        if not missing:
            return known
        if self.locked:
            raise MissingCost(missing_costs(database, missing, here.cost))
        running = [w for w in workloads if w.key not in known or known[w.key].seconds is not None]
        (found,) = self._spread(
            [running], lambda client, group: measured_costs(client, database, group, here, known)
        )
        return found

    def is_limited(self) -> bool:
        """Whether there is a budget."""
        return self.budget_seconds is not None

    def is_budget_spent(self) -> bool:
        """Whether the budget is used up; nothing more is measured then.

        A locked database has no budget: what a compile finds in it does not depend on how long the compile takes.
        """
        return not self.locked and self._is_spent(1.0)

    def stop(self) -> None:
        """Measure nothing more: the plan is the best one that is known so far."""
        self._session.is_stopped = True

    @property
    def was_stopped(self) -> bool:
        """Whether :meth:`stop` has ended the measuring."""
        return self._session.is_stopped

    @contextmanager
    def sharing(self, part: float) -> Iterator[None]:
        """End the time for new costs, and that for measuring some once more, when this part of each is over."""
        before, self._session.share = self._session.share, part
        try:
            yield
        finally:
            self._session.share = before

    @contextmanager
    def finishing(self) -> Iterator[None]:
        """Give all time that is left to new costs, and at least ``_LAST_PART`` of the budget: searches may have taken
        it."""
        session, before = self._session, self._session.finishing
        if self.budget_seconds:
            session.finishing = max(1.0, session.seconds_since_start() / self.budget_seconds + _LAST_PART)
        try:
            yield
        finally:
            session.finishing = before

    def _first_part(self) -> float:
        """The part of the budget in which unknown costs are measured."""
        return self._session.finishing or _FIRST_PART

    def _is_spent(self, part: float) -> bool:
        """Whether this part of the budget is used up."""
        if self._session.is_stopped:
            return True
        begin = 0.0 if part <= _FIRST_PART else _FIRST_PART
        end = begin + (part - begin) * self._session.share
        return (
            self.budget_seconds is not None
            and self._session.seconds_since_start() >= end * self.budget_seconds
        )

    def is_unused(self) -> bool:
        """Whether this object has no results of an earlier compile, so each answer comes from the database."""
        return self._session.is_unused()

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
        """The result of ``work`` for each group, one after the other."""
        return (work(self._client(), group) for group in groups)

    def _spread_new(
        self, groups: Sequence[list[Workload]], work: Callable[[Client, list[Workload]], dict[str, Cost]]
    ) -> Iterable[dict[str, Cost]]:
        """:meth:`_spread` for kernels that have no costs yet."""
        return self._spread(groups, work)

    def _out_of_time(self, group: Sequence[Workload]) -> dict[str, Cost]:
        """Unknown costs for ``group``, which the budget left no time for."""
        reason = STOPPED
        if self.budget_seconds is not None and not self._session.is_stopped:
            reason = f"{OUT_OF_TIME}{self.budget_seconds:g} s was spent"
        bounds = self._bounds_if_known(group)
        return {key: Cost(None, reason=reason, origin=UNKNOWN, bound=bounds[key]) for key in bounds}

    def _seconds_to_answer(self) -> float:
        """The limit for a question about new costs. A late one gets the time that is kept for measuring once more."""
        if self.budget_seconds is None:
            return math.inf
        return max(self._seconds_left(), (1 - self._first_part()) * self._session.share * self.budget_seconds)

    def _time_left(self) -> str:
        left = self._seconds_left()
        return f", for at most {left:.0f} s more" if math.isfinite(left) else ""

    def _seconds_left(self) -> float:
        """The time that is left for new costs."""
        if self.budget_seconds is None:
            return math.inf
        part = self._first_part() * self._session.share
        left = part * self.budget_seconds - self._session.seconds_since_start()
        return max(left, 0.0)

    def _bounds_if_known(self, workloads: Sequence[Workload]) -> dict[str, float]:
        """Lower bounds by key that need no measurement."""
        return {workload.key: 0.0 for workload in workloads}

    def _opened(self) -> CostDatabase:
        return CostDatabase() if self.database is None else self.database
