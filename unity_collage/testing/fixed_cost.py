"""FixedCost: a table of costs, for tests of passes without measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..cost.model import CostModel, Overheads, Workload
from ..plan.costs import Cost, Point


@dataclass(frozen=True)
class FixedCost(CostModel):
    """A cost model with a table: costs by ``"backend:label"``, then by backend, else ``default``."""

    seconds: Mapping[str, float | str] = field(default_factory=dict)
    """Seconds, or the reason why there is no cost."""
    default: float = 1.0
    """Seconds of a kernel that is not in the table."""
    launch: float = 0.0
    """Seconds of a kernel call."""
    copy: float | Mapping[str, float] = 0.0
    """Seconds of a copy between devices of the machine, or of pairs, by ``"from>to"``; others cost nothing."""

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        return {workload.key: self._cost(workload) for workload in workloads}

    def overheads(self, backends: Sequence[str]) -> Overheads:
        return Overheads(self.launch)

    def copies(self, places: Sequence[str], *, shared: bool = False) -> Mapping[str, Sequence[Point]]:
        del shared
        given, pairs = self.copy, [f"{source}>{destination}" for source in places for destination in places]
        seconds = given if isinstance(given, Mapping) else dict.fromkeys(pairs, given)
        return {pair: ((1, seconds.get(pair, 0.0)),) for pair in pairs}

    def _cost(self, workload: Workload) -> Cost:
        by_label = self.seconds.get(f"{workload.backend}:{workload.label}")
        found = self.seconds.get(workload.backend, self.default) if by_label is None else by_label
        return Cost(None, reason=found) if isinstance(found, str) else Cost(found, found, found, 1, "formula")
