"""Compares stored costs with new measurements of a random sample, to see whether they still hold here."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm

from ..cost.model import Progress, Workload
from ..database.costs import CostDatabase
from ..database.rows import CostRow, digest
from ..plan.costs import Cost
from ..scratch import Scratch
from .measured import MeasuredCost


@dataclass(frozen=True, slots=True)
class Verified:
    """A stored cost and the cost that was measured now."""

    stored: CostRow
    now: Cost

    @property
    def ratio(self) -> float | None:
        """The new cost over the stored one; None when the kernel has no cost any more."""
        if not self.now.seconds or not self.stored.seconds:
            return None
        return self.now.seconds / self.stored.seconds


def checkable(database: CostDatabase, here: Mapping[str, str]) -> list[CostRow]:
    """The costs that this process can measure again; ``here`` holds the fingerprint of each of its backends."""
    costs = [cost for cost in database.costs() if cost.seconds and cost.workload]
    digests = {name: digest(text) for name, text in here.items()}
    return [cost for cost in costs if digests.get(cost.backend) == cost.fingerprint]


def verify(
    database: CostDatabase, costs: Sequence[CostRow], sample: int, seed: int, progress: Progress
) -> list[Verified]:
    """Measure ``sample`` of the ``costs`` again, drawn by ``seed``; the new costs are not stored in ``database``."""
    chosen = random.Random(seed).sample(costs, min(sample, len(costs)))
    texts = database.workloads(cost.workload for cost in chosen)
    with (
        Scratch("verify") as folder,
        CostDatabase(Path(folder) / "again.sqlite") as scratch,
        MeasuredCost(scratch, progress=progress, packs=False) as model,
    ):
        now = model.costs([_workload(cost, texts[cost.workload]) for cost in chosen])
    return [Verified(cost, now[cost.key]) for cost in chosen]


def _workload(cost: CostRow, text: str) -> Workload:
    """The workload that ``cost`` was measured for."""
    backend, computation, evicted, *variant = cost.key.split(":")
    func = tvm.ir.load_json(text)
    return Workload(
        computation, backend, cost.label, func, int(evicted.removesuffix("K")) << 10, ":".join(variant)
    )
