"""What the end-to-end tests share: quick programs from fixed costs, and what a program computes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm

from unity_collage.compiler import compile_with
from unity_collage.cost.model import CostModel, Overheads, Workload
from unity_collage.frontend.models import Model
from unity_collage.pipeline import collage
from unity_collage.plan.costs import Cost
from unity_collage.program import Program
from unity_collage.testing.fixed_cost import FixedCost

LIBRARIES_FIRST = FixedCost({"onednn": 1e-6, "openblas": 2e-6, "tvm": 3e-6})


@dataclass(frozen=True)
class DrawnCost(CostModel):
    """Costs drawn by backend, operators and types: plans that mix everything, as no measurement would."""

    seed: str

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        return {workload.key: self._cost(workload) for workload in workloads}

    def overheads(self, backends: Sequence[str]) -> Overheads:
        return Overheads(3e-7)

    def _cost(self, workload: Workload) -> Cost:
        types = " ".join(str(param.ty) for param in workload.func.params)
        question = f"{self.seed} {workload.backend} {workload.label} {types}"
        drawn = int.from_bytes(hashlib.sha256(question.encode()).digest()[:4], "big") / 2**32
        seconds = 1e-6 + 9e-6 * drawn
        return Cost(seconds, seconds, seconds, 1, "formula")


def compiled(
    model: Model, backends: Sequence[str] | None = None, cost: CostModel = LIBRARIES_FIRST
) -> Program:
    """``model`` by the costs of ``cost``, measuring nothing."""
    return compile_with(collage(backends, cost), model)


def arrays(results: Any) -> Any:
    """Results as numpy arrays, in the nesting that the program gives them."""
    return (
        results.numpy() if isinstance(results, tvm.runtime.Tensor) else [arrays(result) for result in results]
    )


def backends_of(program: Program) -> set[str]:
    """The backends that have kernels in the plan of a program."""
    return {kernel.backend for plan in (program.plan or {}).values() for kernel in plan.kernels}


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype="float32")
