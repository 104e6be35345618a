"""Workload: one question to a cost model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from tvm import relax

from ..annotations import Cost
from ..machine.caches import reported


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """What would one run of ``func`` cost as a kernel of ``backend``?"""

    digest: str
    """Of the computation and its types, :class:`unity_collage.graph.Signatures`."""
    backend: str
    label: str
    func: relax.Function
    """The sub-graph alone; its constants are trailing parameters (attribute ``LIFTED``)."""
    evict_bytes: int
    """So much other memory is touched between two runs, and so far away the constants are (:mod:`.caches`)."""
    schedule: str = ""
    """Digest of the tuned schedule that ``func`` carries; empty: as the backend makes it by itself."""

    @property
    def key(self) -> str:
        """Names the price inside one module."""
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


@runtime_checkable
class Charging(Protocol):
    """A cost model that tells backends apart in what a plan pays besides its kernels."""

    def overheads(self, backends: Sequence[str]) -> Overheads:
        """Launches and transitions of these backends."""
        ...


def overheads_of(model: CostModel, backends: Sequence[str]) -> Overheads:
    """What ``model`` knows of them: one launch for all at least."""
    if isinstance(model, Charging):
        return model.overheads(backends)
    return Overheads(model.launch_seconds())


@runtime_checkable
class Placing(Protocol):
    """A cost model that knows the caches of the machine of its prices."""

    def evict_bytes(self, working_set: int) -> int:
        """What to stream over before a kernel of a network that touches so many bytes a run."""
        ...


def evict_bytes(model: CostModel, working_set: int) -> int:
    """What ``model`` says of it, or what this machine's reported caches do."""
    placing = model if isinstance(model, Placing) else reported()
    return placing.evict_bytes(working_set)


@runtime_checkable
class Remembering(Protocol):
    """A cost model of this machine that keeps what else was measured here."""

    def remembered(self, name: str, what: str, measure: Callable[[], Any]) -> Any | None:
        """What is known under ``name``, else what ``measure`` finds: plain data, kept. None if nothing may be
        measured. ``what`` is for who watches."""
        ...


Progress = Callable[[int, int, str], None]
"""Is told how many questions are answered, of how many, and which one is next."""


class CostModel(Protocol):
    """Where a price comes from: a measurement, a database of them, or a formula."""

    def prices(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """A cost, or the reason why there is none, for each workload's key."""
        ...

    def launch_seconds(self) -> float:
        """What calling one kernel costs besides its run."""
        ...
