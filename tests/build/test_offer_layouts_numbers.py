"""OfferLayouts changes no number, whatever mixture of layouts the costs lead to."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import tvm
from test_channels_last_numbers import inception, module, run, separable
from tvm.ir import IRModule

from unity_collage.annotations import CANDIDATES, PLAN
from unity_collage.cost.model import CostModel, Workload
from unity_collage.pipeline import Pipeline, collage
from unity_collage.plan.candidate import VIEW
from unity_collage.plan.costs import Cost

TARGET = tvm.target.Target("llvm")


@dataclass(frozen=True)
class Drawn(CostModel):
    """Costs that depend on nothing but the kernel and a number; permutations are as cheap as all else."""

    number: int

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        return {workload.key: self._cost(workload.key) for workload in workloads}

    def _cost(self, key: str) -> Cost:
        digest = hashlib.sha256(f"{self.number} {key}".encode()).digest()
        seconds = 1.0 + digest[0] / 64
        return Cost(seconds, seconds, seconds, origin="formula")


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("body", [inception, separable])
def test_a_mixture_of_layouts_computes_the_same(body, number: int) -> None:
    before = module(body, (2, {inception: 3, separable: 8}[body], 9, 7))
    x = np.random.default_rng(0).standard_normal(
        tuple(map(int, before["main"].params[0].ty.shape)), "float32"
    )
    with TARGET:
        after = collage(("tvm",), Drawn(number), layouts=True)(before)
    moved = [k for k in PLAN.read(after["main"]).kernels if "permute_dims" in k.label]
    assert moved
    for left, right in zip(run(before, [x]), run(after, [x]), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


def test_nothing_is_offered_unless_it_is_asked_for() -> None:
    before = module(inception, (2, 3, 9, 7))

    def views(**options: bool) -> int:
        with TARGET:
            mod: IRModule = tvm.transform.Sequential(
                Pipeline(backends=("tvm",), **options).until_candidates()
            )(before)
        return sum(candidate.backend == VIEW for candidate in CANDIDATES.read(mod["main"]))

    assert views() == 0 < views(layouts=True)
