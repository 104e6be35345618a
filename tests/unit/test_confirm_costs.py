"""ConfirmCosts: the kernels that may be in the plan are timed together, and the others keep their costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tvm.ir import IRModule
from tvm.target import Target

from unity_collage.annotations import COSTS, PLAN
from unity_collage.cost.asking import workloads
from unity_collage.cost.model import Capability, CostModel, Overheads, Workload
from unity_collage.database.costs import CostDatabase
from unity_collage.measure import measured
from unity_collage.measure.measured import MeasuredCost
from unity_collage.passes import AnnotateCandidates, ConfirmCosts, EstimateCosts, SearchPartition
from unity_collage.passes.confirm_costs import contenders, levelled
from unity_collage.plan.costs import Cost
from unity_collage.search import Option, Problem
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import fake_backend, only_backends
from unity_collage.testing.fixed_cost import FixedCost

TOY = fake_backend("toy", "relax.nn.relu")


@dataclass(frozen=True)
class TwoMinutes(CostModel):
    """Costs of kernels that are timed alone, and other costs a minute later, when they are timed together."""

    capabilities = frozenset({Capability.CONFIRM})

    alone: FixedCost
    turns: FixedCost
    asked: list[list[str]] = field(default_factory=list)

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        return self.alone.costs(workloads)

    def overheads(self, backends: Sequence[str]) -> Overheads:
        return self.alone.overheads(backends)

    def confirmed(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        self.asked.append([f"{w.backend}:{w.label}" for w in workloads])
        return self.turns.costs(workloads)


def annotated() -> IRModule:
    with only_backends(TOY), Target("llvm"):
        return AnnotateCandidates()(IRModule({"main": graphs.chain()}))


def planned(model: TwoMinutes) -> list[str]:
    """The backends of the plan's kernels."""
    with Target("llvm"), only_backends(TOY):
        mod = SearchPartition()(ConfirmCosts(model)(EstimateCosts(model)(annotated())))
    return [kernel.backend for kernel in PLAN.read(mod["main"]).kernels]


def test_a_kernel_that_was_lucky_alone_loses_together() -> None:
    fused = {"tvm:relu+exp+tanh": 2.4e-6}
    alone = FixedCost({"toy": 1.0e-6, **fused}, default=1.1e-6)
    turns = FixedCost({"toy": 1.5e-6, **fused}, default=1.1e-6)
    assert "toy" in planned(TwoMinutes(alone, alone))
    model = TwoMinutes(alone, turns)
    assert "toy" not in planned(model)
    assert any("toy:relu" in names for names in model.asked)


def test_a_kernel_that_was_unlucky_alone_is_found_out() -> None:
    """``relu`` costs more than ``relu+exp``, which does the same and more: that cannot be."""
    alone = FixedCost({"tvm:relu": 9e-6, "tvm:relu+exp": 3e-6, "toy": 4e-6}, default=1e-6)
    turns = FixedCost({"tvm:relu": 1e-6, "tvm:relu+exp": 3e-6, "toy": 4e-6}, default=1e-6)
    model = TwoMinutes(alone, turns)
    with Target("llvm"), only_backends(TOY):
        costs = COSTS.read(ConfirmCosts(model)(EstimateCosts(model)(annotated()))["main"])
    assert "tvm:relu" in model.asked[0]
    assert 9e-6 not in {cost.seconds for cost in costs.by_key.values()}


def test_who_was_not_near_keeps_the_cost() -> None:
    model = TwoMinutes(FixedCost({"toy": 9e-6}, default=1e-6), FixedCost({"toy": 1e-9}, default=1e-6))
    with Target("llvm"), only_backends(TOY):
        mod = ConfirmCosts(model)(EstimateCosts(model)(annotated()))
    costs = COSTS.read(mod["main"]).by_key
    assert {cost.seconds for key, cost in costs.items() if key.startswith("toy")} == {9e-6}


def test_a_model_that_cannot_measure_keeps_every_cost() -> None:
    costs = FixedCost({"toy": 1e-6}, default=1.1e-6)
    costed = EstimateCosts(costs)(annotated())
    after = COSTS.read(ConfirmCosts(costs)(costed)["main"])
    assert replace(after, skipped=()) == COSTS.read(costed["main"])
    assert after.skipped == (
        "costs are not confirmed: FixedCost cannot time the kernels of a plan together, in turns",
    )


def test_a_locked_database_without_a_session_changes_nothing() -> None:
    @dataclass(frozen=True)
    class Locked(TwoMinutes):
        def confirmed(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
            return {}

    costs = FixedCost({"toy": 1e-6}, default=1.1e-6)
    costed = EstimateCosts(costs)(annotated())
    after = ConfirmCosts(Locked(costs, costs))(costed)
    assert COSTS.read(after["main"]) == COSTS.read(costed["main"])


def test_a_locked_database_gives_the_last_session_of_a_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a compile measures behind this step may be near the plan of the next one."""

    def in_turns(_client: object, group: Sequence[Workload], *_: object) -> dict[str, Cost]:
        return {workload.key: Cost(1e-6, 1e-6, 1e-6, 5) for workload in group}

    monkeypatch.setattr(measured, "costs_in_turns", in_turns)
    database = CostDatabase(tmp_path / "costs.sqlite")
    model, locked = MeasuredCost(database), MeasuredCost(database, locked=True)
    with Target("llvm"):
        func = AnnotateCandidates(("tvm",))(IRModule({"main": graphs.chain()}))["main"]
        asked = list({workload.key: workload for workload in workloads(func, model).values()}.values())
        assert model.confirmed_in(asked, asked[:2]).keys() == {workload.key for workload in asked[:2]}
        assert locked.confirmed_in(asked, asked[:3]).keys() == {workload.key for workload in asked[:2]}
        assert locked.confirmed_in(asked[:4], asked[:3]) == {}, "they are of another function"


def test_contenders_are_the_plan_and_what_is_near() -> None:
    def option(id_: int, inside: int, seconds: float) -> Option:
        return Option(id_, inside, seconds)

    problem = Problem(
        ((), (0,)), 0, (option(0, 1, 5.0), option(1, 2, 5.0), option(2, 3, 9.0), option(3, 3, 30.0))
    )
    keys = {0: "first", 1: "second", 2: "fused", 3: "slow"}
    assert contenders(problem, keys, margin=0.25) == ["fused", "first", "second"]
    assert contenders(problem, keys, margin=0.25, most=2) == ["fused", "first"]
    assert contenders(problem, keys, margin=0.1) == []  # the plan alone: nothing to decide


@pytest.mark.parametrize("slower", [0.5, 1.0, 3.0])
def test_the_minute_itself_is_taken_out(slower: float) -> None:
    before = {key: Cost(1.0, 0.9, 1.1, 9) for key in "abc"}
    found = {key: replace(before[key], seconds=slower) for key in "abc"}
    found["c"] = Cost(2.0 * slower, 1.8 * slower, 2.2 * slower, 25)
    after = levelled(found, before)
    assert [after[key].seconds for key in "abc"] == pytest.approx([1.0, 1.0, 2.0])
    assert (after["c"].low, after["c"].high) == pytest.approx((1.8, 2.2))


def test_what_short_kernels_share_is_not_the_minute() -> None:
    before = {
        key: Cost(seconds, seconds, seconds, 9) for key, seconds in (("long", 60.0), ("a", 1.0), ("b", 1.0))
    }
    found = {"long": replace(before["long"], seconds=66.0)}
    found |= {key: replace(before[key], seconds=2.0) for key in "ab"}
    after = levelled(found, before)
    assert [after[key].seconds for key in ("long", "a", "b")] == pytest.approx([60.0, 2.0 / 1.1, 2.0 / 1.1])


def test_every_binding_is_kept() -> None:
    model = TwoMinutes(FixedCost(default=1e-6), FixedCost(default=2e-6))
    costed = EstimateCosts(model)(annotated())
    after = ConfirmCosts(model)(costed)
    assert after["main"].without_attr(COSTS.name).script() == costed["main"].without_attr(COSTS.name).script()
