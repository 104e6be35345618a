"""SearchPartition under a limit of memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import tvm
from tvm import relax, tirx
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.target import Target

import unity_collage
from unity_collage.annotations import PLAN
from unity_collage.errors import CollageError, NoPlan
from unity_collage.fastest import _within
from unity_collage.feedback.settings import Refined, Refinement
from unity_collage.graph import DataflowGraph
from unity_collage.lowering.live_memory import with_memory
from unity_collage.passes import AnnotateCandidates, EstimateCosts, SearchPartition, why_not_plan
from unity_collage.plan.candidate import Candidate
from unity_collage.plan.footprint import footprint_of, places_of
from unity_collage.plan.memory import MemorySpace, PlanMemory, memory_goal, nbytes_in
from unity_collage.plan.memory_plan import within_memory
from unity_collage.plan.plan import Plan
from unity_collage.search import Problem, Solution
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


def searched_for(func: relax.Function, goal: MemoryGoal) -> Plan:
    with only_backends(TOY), Target("llvm"):
        passes = [
            AnnotateCandidates(),
            EstimateCosts(FixedCost({"toy": 1.0, **FUSED})),
            SearchPartition(memory=goal),
        ]
        found = tvm.transform.Sequential(passes)(IRModule({"main": func}))
    return PLAN.read(found["main"])


def test_values_of_free_sizes_are_named() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([tirx.Var("n", "int64"), 4], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.exp(builder.emit(relax.op.nn.relu(x))))
        builder.emit_func_output(out)
    remarks = searched_for(builder.get()["main"], MemoryGoal(10)).remarks
    assert any(
        "holds 0 bytes at most by the sizes of its values, without the 2 of free sizes" in r for r in remarks
    )


def test_of_several_devices_the_search_knows_the_sum() -> None:
    @I.ir_module
    class Two:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function
        def main(x: R.Tensor((4, 4), "float32", "llvm:0")) -> R.Tensor((4, 4), "float32", "llvm:1"):
            with R.dataflow():
                a = R.nn.relu(x)
                b = R.to_vdevice(a, "llvm:1")
                c = R.exp(b)
                R.output(c)
            return c

    graph = DataflowGraph(Two["main"])
    kinds = footprint_of(graph, ()).kinds
    assert kinds[0] != kinds[1] == kinds[2]
    assert len(places_of(graph)) == 2


def test_a_search_that_chooses_devices_has_no_goal_of_memory() -> None:
    graph = DataflowGraph(graphs.chain())
    candidates = [Candidate(n, "toy", "unary", "relu", (0,), device=f"llvm:{n}") for n in range(2)]
    problem = Problem(((),), 1, ())
    solution = Solution((), 0, 0.0, 0.0, "exact", 0)
    with pytest.raises(CollageError, match="cannot choose devices"):
        within_memory(graph, problem, (solution, solution), candidates, MemoryGoal(10))


def test_a_program_with_values_of_unknown_size_says_so() -> None:
    memory = PlanMemory(("conv",), (MemorySpace("llvm:0", live=(10,)),), unknown=3)
    built = Refined(IRModule({}), with_memory(SimpleNamespace(), {"main": memory}))
    assert _within(MemoryGoal(25), built).remarks[-1].endswith("not in the goal: 3")


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
