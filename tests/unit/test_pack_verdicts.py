"""The verdict on a pack, and what plans and explanations say of packed costs."""

from __future__ import annotations

import pytest
from packed_machines import (
    cost,
)
from tvm.ir import IRModule
from tvm.target import Target

from unity_collage.annotations import CANDIDATES, COSTS, PLAN
from unity_collage.measure.verdict import spread, verdict_on
from unity_collage.passes import AnnotateCandidates, SearchPartition
from unity_collage.plan.costs import PACKED, Cost, Costs
from unity_collage.plan.explanation import ExplainedCost
from unity_collage.report.words import costed
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import fake_backend, only_backends


def test_the_interval_is_as_wide_as_the_disagreement_of_three_quarters() -> None:
    verdict = verdict_on((cost(1.0), cost(ratio)) for ratio in (1.9, 1.92, 1.98, 2.0, 2.0, 2.02, 2.1, 9.0))
    assert verdict is not None and (verdict.ratio, verdict.sample) == (2.0, 8)
    assert verdict.deviation == pytest.approx(0.05)
    assert verdict.applied(Cost(1.0, 0.9, 1.0, 9, PACKED)) == Cost(
        2.0, pytest.approx(1.8 / 1.05), pytest.approx(2.0 * 1.05), 9, PACKED
    )


def test_a_sample_is_spread_over_costs_and_backends() -> None:
    costs = {f"{backend}{n}": cost(float(n + 1)) for n in range(40) for backend in ("a", "b")}
    chosen = spread(costs, {key: key[0] for key in costs}, 8)
    seconds = sorted(costs[key].seconds or 0.0 for key in chosen)
    assert [key[0] for key in chosen].count("a") == 4
    assert all(5 * part < value <= 5 * (part + 1) for part, value in enumerate(seconds))
    first = [costs[key].seconds or 0.0 for key in chosen[:4]]
    assert max(first) - min(first) >= 25


@pytest.mark.parametrize(
    ("ratios", "ratio", "is_used"),
    [
        ([1.0] * 8, 1.0, True),
        ([2.0] * 6 + [9.0, 0.1], 2.0, True),
        ([2.0] * 5 + [2.3, 9.0, 0.1], 2.0, False),
        ([1.0, 1.02, 1.04, 1.06, 1.08, 1.1, 1.12, 1.14], 1.07, True),
        ([0.0] * 8, 1.0, False),
    ],
)
def test_three_quarters_must_agree(ratios: list[float], ratio: float, is_used: bool) -> None:
    verdict = verdict_on((cost(1.0), cost(each) if each else Cost(None, reason="no")) for each in ratios)
    assert verdict is not None
    assert verdict.ratio == pytest.approx(ratio) and (verdict.why_not is None) == is_used


def test_the_plan_and_the_explanation_say_where_a_cost_is_from() -> None:
    known = Cost(2e-6, 1.8e-6, 2.2e-6, 9, PACKED)
    with only_backends(fake_backend("toy", "relax.nn.relu", "relax.exp", "relax.tanh")), Target("llvm"):
        func = AnnotateCandidates()(IRModule({"main": graphs.chain()}))["main"]
        keys = {candidate.id: candidate.backend for candidate in CANDIDATES.read(func)}
        costs = Costs({"toy": known, "tvm": Cost(9e-6)}, keys)
        plan = PLAN.read(SearchPartition()(IRModule({"main": COSTS.write(func, costs)}))["main"])
    assert "the costs of 3 of its kernels are from a pack and were not measured here" in plan.remarks
    assert costed(ExplainedCost.of("toy", known)) == "2.00 us (1.80 us to 2.20 us, from a pack)"
