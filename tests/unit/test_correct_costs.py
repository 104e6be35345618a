"""CorrectCosts: which costs the running program contradicts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tvm.ir import IRModule
from tvm.target import Target

from unity_collage.annotations import COSTS, PLAN
from unity_collage.feedback.corrections import is_late
from unity_collage.feedback.observed import far_from
from unity_collage.passes import AnnotateCandidates, CorrectCosts, EstimateCosts
from unity_collage.plan.costs import IN_PROGRAM, Cost
from unity_collage.plan.plan import Plan
from unity_collage.testing import graphs
from unity_collage.testing.fixed_cost import FixedCost


def measured(seconds: float) -> Cost:
    return Cost(seconds, 0.9 * seconds, 1.1 * seconds, 20)


def test_a_kernel_that_takes_far_more_in_the_program_costs_that():
    observed = {
        "wrong": [[90.0, 100.0, 110.0]],
        "right": [[10.0, 11.0, 12.0]],
        "as well": [[19.0, 20.0, 21.0]],
    }
    known = {"wrong": measured(1.0), "right": measured(10.0), "as well": measured(20.0)}

    found = far_from(observed, known, total=131.0)

    assert set(found) == {"wrong"}
    cost = found["wrong"]
    assert cost.seconds == 100.0 and cost.low == 95.0 and cost.high == 105.0
    assert cost.origin == IN_PROGRAM and cost.runs == 3


def test_a_machine_that_is_slower_as_a_whole_contradicts_nothing():
    observed = {"a": [[2.0, 2.0]], "b": [[4.0, 4.0]], "c": [[40.0, 40.0]]}

    found = far_from(observed, {"a": measured(1.0), "b": measured(2.0), "c": measured(1.0)}, total=46.0)

    assert {key: cost.seconds for key, cost in found.items()} == {"c": 20.0}


def test_no_machine_explains_that_all_costs_are_wrong():
    found = far_from(
        {"a": [[1000.0]], "b": [[3000.0]]}, {"a": measured(1.0), "b": measured(3.0)}, total=4000.0
    )
    assert {key: cost.seconds for key, cost in found.items()} == {"a": 1000.0, "b": 3000.0}


@pytest.mark.parametrize(
    ("turns", "total"),
    [([9.0, 1.0, 1.0, 9.0, 1.0], 20.0), ([9.0] * 5, 2000.0)],
    ids=["slow in some turns only", "too little of the program"],
)
def test_what_may_be_noise_or_is_not_worth_a_search_keeps_its_cost(turns: list[float], total: float):
    observed = {"a": [turns], "b": [[10.0] * 5]}
    assert far_from(observed, {"a": measured(1.0), "b": measured(10.0)}, total) == {}


def test_candidates_with_one_cost_count_together():
    found = far_from(
        {"a": [[4.0], [6.0]], "b": [[90.0]]}, {"a": measured(1.0), "b": measured(90.0)}, total=100.0
    )
    assert found["a"].seconds == 5.0


def test_formulas_keep_their_costs():
    model = FixedCost({}, default=1e-6)
    with Target("llvm"):
        costed = EstimateCosts(model)(AnnotateCandidates()(IRModule({"main": graphs.chain()})))
        kept = COSTS.read(CorrectCosts(model)(costed)["main"])
    assert replace(kept, skipped=()) == COSTS.read(costed["main"])
    assert kept.skipped == (
        "costs are not compared with the running program: "
        "FixedCost cannot run whole programs where its costs are from",
    )


def test_a_program_is_late_by_a_part_and_by_what_calls_do_not_explain():
    func = graphs.chain()
    planned = {
        seconds: IRModule({"main": PLAN.write(func, Plan(seconds=seconds))}) for seconds in (1e-3, 1e-6)
    }
    assert is_late(1.4e-3, planned[1e-3])
    assert not is_late(1.2e-3, planned[1e-3])
    assert not is_late(30e-6, planned[1e-6])
    assert not is_late(1.0, IRModule({"main": func})), "nothing was planned"
