"""RemoteCost: costs from the database, and missing ones from servers behind an RPC tracker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tvm
from tvm.target import Target

from ...cost.bounds import lower_bound
from ...cost.fingerprint import made_by
from ...cost.model import Workload
from ...errors import CollageError, MissingCost
from ...machine.caches import Caches
from ...machine.fingerprint import fields_of
from ...machine.last_level import LAST_LEVEL
from ...machine.peaks import PEAKS, Machine, machine_from
from ...plan.costs import Cost
from ...target import current_target, processor_of
from ..kernel_costs import KernelCosts
from ..questions import Client, Fingerprints
from ..session import Session
from .client import ATTEMPTS, RemoteClient
from .fleet import Fleet
from .messages import address
from .servers import Lost, Servers

_SLACK = 10.0
"""How many times the limit of one kernel to wait for a reply: a server replies for several kernels at once."""


class _RemoteSession(Session):
    """The servers of one RemoteCost, requested when they are first needed."""

    def __init__(self) -> None:
        super().__init__()
        self.remote: Fleet | None = None
        self.peaks_there: Machine | None = None
        """The peaks of the servers, once they are known."""

    def close(self) -> None:
        """End the sessions."""
        if self.remote is not None:
            self.remote.close()
        self.remote = self.peaks_there = None


@dataclass(frozen=True)
class RemoteCost(KernelCosts):
    """Kernels are built here, and checked and timed by a server; compile for its :meth:`target`.

    Questions are spread over all servers that are free, which must be alike. A server that is lost during a question
    is replaced. Kernels of a plan are not timed together, since they would be timed on different servers. Whole
    programs are not run, since they would run here while the costs are of another machine.
    """

    tracker: str = "127.0.0.1:9190"
    """``host:port``."""
    key: str = "unity_collage"
    """The key that the servers announce."""
    wait_seconds: float = 60.0
    """How long to wait for a free server."""
    _session: _RemoteSession = field(default_factory=_RemoteSession, init=False, repr=False, compare=False)

    def target(self) -> Target:
        """The processor of the servers, with all its instruction sets and their number of threads."""
        return Target(json.loads(self._client().facts("", "")["target"]))

    def why_not_measured(self, target: Target) -> str | None:
        theirs, asked = processor_of(self.target()), processor_of(target)
        return None if asked == theirs else f"the servers are {theirs}, and the target is {asked}"

    def evict_bytes(self, working_set: int) -> int:
        """How many bytes a server reads before each run of a kernel, for a network of ``working_set`` bytes.

        As for this machine, the third-level cache is measured unless all fits into the second, or the database is
        locked.
        """
        said = self._reported()
        if not said.evict_bytes(working_set):
            return 0
        known = self._fact_of_server(LAST_LEVEL)
        return (said if known is None else replace(said, l3_bytes=int(known))).evict_bytes(working_set)

    def lower_bounds(self, workloads: Sequence[Workload]) -> dict[str, float]:
        """Lower bounds of costs in seconds, by key; the peaks of the servers are measured once."""
        if self._session.peaks_there is None:
            known = self._fact_of_server(PEAKS)
            if known is None:
                name = self._opened().name
                raise MissingCost(f"the peaks of the servers are not in {name}, and it is locked")
            self._session.peaks_there = machine_from(known)
        return {workload.key: lower_bound(workload, self._session.peaks_there) for workload in workloads}

    def _bounds_if_known(self, workloads: Sequence[Workload]) -> dict[str, float]:
        """Lower bounds by key; 0 where the peaks of the servers are not known yet."""
        if self._session.peaks_there is None:
            return super()._bounds_if_known(workloads)
        return self.lower_bounds(workloads)

    def _reported(self) -> Caches:
        """The caches that the servers report."""
        return Caches(**self._said("caches"))

    def _fact_of_server(self, name: str) -> Any | None:
        """A fact about the servers as machines: from the database, else one of them measures itself now.

        None if the database is locked and does not have it.
        """
        database, fingerprints = self._opened(), self._said("fingerprints")
        known = database.fact(name, fingerprints[name])
        if known is None and not self.locked:
            self.progress(0, 1, "measuring a server: caches and peaks")
            measured = self._client().machine()
            for each, fingerprint in fingerprints.items():
                if database.fact(each, fingerprint) is None:
                    database.keep_fact(each, fingerprint, measured[each])
            known = measured[name]
        return known

    def _said(self, name: str) -> Any:
        """What the servers say about themselves under this name; raises CollageError for an older version."""
        facts = self._client().facts("", "")
        if name not in facts:
            raise CollageError(
                f"a server for {self.key!r} does not say its {name}: install this version of unity_collage there"
            )
        return facts[name]

    def _spread(
        self, groups: Sequence[list[Workload]], work: Callable[[Client, list[Workload]], dict[str, Cost]]
    ) -> Iterable[dict[str, Cost]]:
        """The result of ``work`` for each group, on all free servers at once."""
        answers = self._fleet().spread(groups, work)
        for group, answer in zip(groups, answers, strict=True):
            yield _given_up(group, answer) if isinstance(answer, Lost) else answer

    def _client(self) -> RemoteClient:
        return self._fleet().client

    def _fleet(self) -> Fleet:
        if self._session.remote is None:
            self._session.remote = Fleet(self._made)
        return self._session.remote

    def _made(self, first: RemoteClient | None) -> RemoteClient:
        servers = Servers(address(self.tracker), self.key, self.wait_seconds, _SLACK * self.timeout_seconds)
        return RemoteClient(servers, self.method, self.timeout_seconds, self.memory_bytes, first)

    def _fingerprints(self) -> Fingerprints:
        target = current_target()

        def said(backend: str) -> dict[str, str]:
            return self._client().facts(str(target), backend)["backends"][backend]

        def fingerprint(backend: str) -> str:
            there = said(backend)
            return there.get("reason") or _made_here(there["fingerprint"])

        return Fingerprints(target, fingerprint, lambda backend: said(backend).get("version", ""))


def _made_here(there: str) -> str:
    """The fingerprint ``there``, with our versions of the tools that build kernels."""
    theirs = fields_of(there)
    ours = {"tvm": tvm.__version__, "made by": made_by(theirs["backend"])}
    if all(ours[name] == theirs[name] for name in ours):
        return there
    return f"{there}\nbuilt by: tvm {ours['tvm']}, {ours['made by']}"


def _given_up(group: Sequence[Workload], lost: Lost) -> dict[str, Cost]:
    """Unknown costs for this run, which are not stored in the database."""
    reason = f"not measured: {ATTEMPTS} servers were lost over it, the last one with: {lost}"
    return {workload.key: Cost(None, reason=reason) for workload in group}
