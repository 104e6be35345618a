"""MeasuredCost: prices from the database, and from a worker process for what is not there yet."""

from __future__ import annotations

import hashlib
import platform
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import tvm
from tvm.target import Target

from .. import runtime
from ..annotations import Cost
from ..backends.registry import get
from ..target import current_target
from .client import WorkerClient
from .database import SCHEMA_VERSION, CostDatabase
from .method import Method
from .workload import Progress, Workload, fingerprint_digest


def _no_progress(_done: int, _total: int, _label: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class MeasuredCost:
    """Every distinct kernel is built, checked against a reference and timed once, in a process of its own."""

    database: CostDatabase | None = None
    """Where prices are kept; None: the user's own database."""
    timeout_seconds: float = 60.0
    """A kernel that needs longer, building and reference included, has no price."""
    method: Method = field(default_factory=Method)
    progress: Progress = _no_progress

    def prices(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """Costs by workload key: from the database, else measured now and kept."""
        database = self._opened()
        target = current_target()
        distinct = {workload.key: workload for workload in workloads}
        known: dict[str, Cost] = {}
        for backend in dict.fromkeys(workload.backend for workload in workloads):
            keys = [key for key, workload in distinct.items() if workload.backend == backend]
            known.update(database.get(keys, self._fingerprint(backend, target)))
        missing = [workload for key, workload in distinct.items() if key not in known]
        missing.sort(key=lambda workload: workload.digest)
        with self._client() as client:
            for done, workload in enumerate(missing):
                self.progress(done, len(missing), f"{workload.backend} {workload.label}")
                cost, lasting = _measured(client, workload, target)
                if lasting:
                    fingerprint = self._fingerprint(workload.backend, target)
                    database.put(workload.key, fingerprint, workload.label, cost)
                known[workload.key] = cost
        self.progress(len(missing), len(missing), "")
        if known and all(cost.seconds is None for cost in known.values()):
            reason = next(iter(known.values())).reason
            warnings.warn(
                f"no kernel could be priced, all is left to TVM; the first reason: {reason}", stacklevel=2
            )
        return known

    def launch_seconds(self) -> float:
        """What the VM pays for one kernel call, measured once per machine."""
        database, target = self._opened(), current_target()
        fingerprint = self._fingerprint("tvm", target)
        known = database.get(["launch"], fingerprint).get("launch")
        if known is not None and known.seconds is not None:
            return known.seconds
        with self._client() as client:
            reply = client.ask({"ask": "launch", "target": str(target)})
        if "seconds" not in reply:
            warnings.warn(
                f"a kernel call could not be timed and counts as free: {reply['reason']}", stacklevel=2
            )
            return 0.0
        seconds = float(reply["seconds"])
        database.put("launch", fingerprint, "launch", Cost(seconds, seconds, seconds, 1))
        return seconds

    def _opened(self) -> CostDatabase:
        return CostDatabase() if self.database is None else self.database

    def _client(self) -> WorkerClient:
        return WorkerClient(runtime.num_threads(), self.method, self.timeout_seconds)

    def _fingerprint(self, backend: str, target: Target) -> str:
        return fingerprint_digest(
            " | ".join(
                (
                    f"schema {SCHEMA_VERSION}",
                    get(backend).fingerprint(),
                    f"tvm {tvm.__version__}",
                    f"kernels {_kernel_makers()}",
                    f"target {target}",
                    f"machine {platform.machine()}",
                    f"threads {runtime.num_threads()}",
                    f"method {self.method}",
                )
            )
        )


_MAKERS = ("backends", "cost", "passes", "runtime", "schedule")
"""The parts of this package that decide what a kernel is and how it is timed."""


@cache
def _kernel_makers() -> str:
    """A digest of our own code that makes kernels: a changed schedule is another kernel."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(path for part in _MAKERS for path in (package / part).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _measured(client: WorkerClient, workload: Workload, target: Target) -> tuple[Cost, bool]:
    """The cost, and whether it holds for the next run too: a timeout may be the load of the machine."""
    reply = client.ask(
        {
            "ask": "price",
            "function": tvm.ir.save_json(workload.func),
            "backend": workload.backend,
            "digest": workload.digest,
            "target": str(target),
            "weights_in": workload.weights_in,
        }
    )
    if "reason" in reply:
        return Cost(None, reason=reply["reason"]), not reply.get("timeout", False)
    return Cost(reply["seconds"], reply["low"], reply["high"], reply["runs"]), True
