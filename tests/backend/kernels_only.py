"""Measured costs of kernels, with given overheads: measuring overheads takes eight seconds for each new backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unity_collage.cost.model import Overheads
from unity_collage.measure.measured import MeasuredCost


@dataclass(frozen=True)
class KernelsOnly(MeasuredCost):
    """A kernel call costs 0.1 us, and no transition costs anything."""

    def overheads(self, backends: Sequence[str]) -> Overheads:
        return Overheads(1e-7)
