"""Workload: one question to a cost model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tvm import relax

from ..annotations import Cost


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """What would one run of ``func`` cost as a kernel of ``backend``?"""

    digest: str
    """Of the computation and its types, :class:`unity_collage.graph.Signatures`."""
    backend: str
    label: str
    func: relax.Function
    """The sub-graph alone; its constants are trailing parameters (attribute ``LIFTED``)."""
    weights_in: str
    """Where a run finds the constants: ``L2``, ``L3`` or ``memory`` (:mod:`unity_collage.cost.caches`)."""

    @property
    def key(self) -> str:
        """Names the price inside one module."""
        return f"{self.backend}:{self.digest}:{self.weights_in}"


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


def fingerprint_digest(fingerprint: str) -> str:
    """A short name for all that can change a price."""
    return hashlib.sha256(fingerprint.encode()).hexdigest()[:16]
