"""Kept prices against new measurements of a random sample: is what the database says still true here?"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import tvm

from ..cost.model import Progress, Workload
from ..database.costs import CostDatabase
from ..database.rows import Price, digest
from ..plan.costs import Cost
from .measured import MeasuredCost


@dataclass(frozen=True, slots=True)
class Verified:
    """A kept price and what was measured now."""

    kept: Price
    now: Cost

    @property
    def ratio(self) -> float | None:
        """The new price over the kept one; None when there is none any more."""
        return self.now.seconds / self.kept.seconds if self.now.seconds and self.kept.seconds else None


def checkable(database: CostDatabase, here: Mapping[str, str]) -> list[Price]:
    """The prices that this process can measure again as it is; ``here``: the fingerprints of its backends."""
    prices = [price for price in database.prices() if price.seconds and price.workload]
    circumstances = {name: digest(text) for name, text in here.items()}
    return [price for price in prices if circumstances.get(price.backend) == price.fingerprint]


def verify(
    database: CostDatabase, prices: Sequence[Price], sample: int, seed: int, progress: Progress
) -> list[Verified]:
    """Measure ``sample`` of ``prices``, drawn by ``seed``, as they were measured first; nothing is kept."""
    chosen = random.Random(seed).sample(prices, min(sample, len(prices)))
    texts = database.workloads(price.workload for price in chosen)
    with (
        TemporaryDirectory() as folder,
        CostDatabase(Path(folder) / "again.sqlite") as scratch,
        MeasuredCost(scratch, progress=progress) as model,
    ):
        now = model.prices([_workload(price, texts[price.workload]) for price in chosen])
    return [Verified(price, now[price.key]) for price in chosen]


def _workload(price: Price, text: str) -> Workload:
    """The question that ``price`` was the answer to."""
    backend, computation, evicted, *schedule = price.key.split(":")
    func = tvm.ir.load_json(text)
    return Workload(
        computation, backend, price.label, func, int(evicted.removesuffix("K")) << 10, "".join(schedule)
    )
