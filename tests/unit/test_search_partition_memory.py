"""SearchPartition under a limit of memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

import unity_collage
from unity_collage.annotations import PLAN
from unity_collage.errors import CollageError, NoPlan
from unity_collage.fastest import _within
from unity_collage.feedback.settings import Refined, Refinement
from unity_collage.lowering.live_memory import with_memory
from unity_collage.passes import AnnotateCandidates, EstimateCosts, SearchPartition, why_not_plan
from unity_collage.plan.memory import MemorySpace, PlanMemory, memory_goal, nbytes_in
from unity_collage.plan.plan import Plan
from unity_collage.search.memory_bounded import MemoryGoal
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import fake_backend, only_backends
from unity_collage.testing.fixed_cost import FixedCost

TOY = fake_backend("toy", "relax.nn.relu", "relax.exp", "relax.tanh")
FUSED = {"tvm": 9.0, "tvm:exp+tanh": 2.5, "tvm:relu+exp": 9.0, "tvm:relu+exp+tanh": 4.0}
PAGE = 4096


def searched(goal: MemoryGoal | None) -> tuple[Plan, str | None]:
    """The plan of relu, exp and tanh, whose values take a page each, and what is wrong with it."""
    with only_backends(TOY), Target("llvm"):
        passes = [AnnotateCandidates(), EstimateCosts(FixedCost({"toy": 1.0, **FUSED}))]
        costed = tvm.transform.Sequential(passes)(IRModule({"main": graphs.chain()}))
        found = SearchPartition(memory=goal)(costed)
    assert isinstance(costed["main"], relax.Function) and isinstance(found["main"], relax.Function)
    return PLAN.read(found["main"]), why_not_plan(costed["main"], found["main"])


@pytest.mark.parametrize(
    ("goal", "kernels", "seconds"),
    [
        (None, ["relu", "exp", "tanh"], 3.0),
        (MemoryGoal(3 * PAGE), ["relu", "exp", "tanh"], 3.0),
        (MemoryGoal(2 * PAGE - 1), ["relu+exp+tanh"], 4.0),
        (MemoryGoal(seconds_per_byte=1.5 / PAGE), ["relu+exp+tanh"], 4.0),
        (MemoryGoal(seconds_per_byte=0.5 / PAGE), ["relu", "exp", "tanh"], 3.0),
    ],
)
def test_the_plan_keeps_under_the_limit(goal: MemoryGoal | None, kernels: list[str], seconds: float) -> None:
    plan, wrong = searched(goal)
    assert wrong is None
    assert [kernel.label for kernel in plan.kernels] == kernels
    assert plan.seconds == pytest.approx(seconds)
    assert plan.proved == (seconds == 3.0)
    assert any("the best one" in remark for remark in plan.remarks) == (goal is not None)


def test_where_no_plan_is_under_the_limit_it_says_so() -> None:
    with pytest.raises(
        NoPlan, match="no plan of the measured candidates is under the memory limit of 4095 bytes"
    ):
        searched(MemoryGoal(PAGE - 1))


@pytest.mark.parametrize(
    ("text", "nbytes"), [("200MB", 200_000_000), ("1.5GiB", 3 << 29), ("2 kB", 2000), (4096, 4096)]
)
def test_sizes_are_read_with_their_units(text: str | int, nbytes: int) -> None:
    assert nbytes_in(text) == nbytes


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "3x", "0", "nan"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(CollageError, match="is not a size: write 200MB"):
        nbytes_in(text)


def test_a_program_above_the_limit_is_refused() -> None:
    memory = PlanMemory(("conv", "softmax"), (MemorySpace("llvm:0", live=(10, 20), weights=5),))
    built = Refined(IRModule({}), with_memory(SimpleNamespace(), {"main": memory}))
    assert _within(MemoryGoal(25), built).executable is built.executable
    with pytest.raises(
        CollageError, match="the program takes 25 bytes at softmax, above the memory limit of 24"
    ):
        _within(MemoryGoal(24), built)


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"measure": False}, "needs costs"), ({"refine": Refinement()}, "refine compares others")],
)
def test_what_contradicts_a_limit_is_named(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(CollageError, match=reason):
        unity_collage.compile(IRModule({"main": graphs.chain()}), memory_limit="1MB", **options)


def test_an_objective_weighs_latency_and_memory() -> None:
    assert memory_goal(None, None) is None and memory_goal(None, {"latency": 2}) is None
    assert memory_goal("1kB", {"latency": 2, "memory": 1}) == MemoryGoal(1000, 0.5)
    with pytest.raises(CollageError, match="an objective has no 'energy'"):
        memory_goal(None, {"energy": 1})
    with pytest.raises(CollageError, match="weight of latency above 0"):
        memory_goal(None, {"memory": 1})


@pytest.mark.parametrize(
    ("objective", "reason"),
    [
        ({"latency": 1, "memory": float("inf")}, "weight of latency above 0"),
        ({"latency": float("nan")}, "weight of latency above 0"),
        ({"latency": "fast"}, "an objective is like"),
        (0.5, "an objective is like"),
    ],
)
def test_what_is_no_objective_is_refused(objective: Any, reason: str) -> None:
    with pytest.raises(CollageError, match=reason):
        memory_goal(None, objective)
