"""FixedCost: prices typed by hand, for tests of the passes that need no measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..annotations import Cost
from ..cost.model import Workload


@dataclass(frozen=True)
class FixedCost:
    """A cost model that looks prices up by ``"backend:label"``, then by backend, else charges ``default``."""

    seconds: Mapping[str, float | str] = field(default_factory=dict)
    """A price in seconds, or the reason why there is none."""
    default: float = 1.0
    launch: float = 0.0

    def prices(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        return {workload.key: self._cost(workload) for workload in workloads}

    def launch_seconds(self) -> float:
        return self.launch

    def _cost(self, workload: Workload) -> Cost:
        by_label = self.seconds.get(f"{workload.backend}:{workload.label}")
        found = self.seconds.get(workload.backend, self.default) if by_label is None else by_label
        return Cost(None, reason=found) if isinstance(found, str) else Cost(found, found, found, 1, "formula")
