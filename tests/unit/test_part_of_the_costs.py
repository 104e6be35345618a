"""A spent budget leaves any part of the costs: there is a plan all the same, since TVM can make every kernel."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from rich.console import Console
from tvm import relax
from tvm.ir import IRModule
from tvm.relax import op
from tvm.target import Target

from unity_collage.annotations import CANDIDATES, COSTS, PLAN
from unity_collage.graph import DataflowGraph, members
from unity_collage.passes import AnnotateCandidates, Prepare, SearchPartition
from unity_collage.plan.costs import OUT_OF_TIME, STOPPED, UNKNOWN, Cost, Costs
from unity_collage.plan.plan import Plan, PlannedKernel, WithoutCost
from unity_collage.report import plan_summary
from unity_collage.testing.fake_backend import fake_backend, only_backends

TOY = fake_backend("toy", "relax.matmul", "relax.nn.relu", "relax.sigmoid")
W = relax.const(np.ones((8, 8), "float32"))


def chain(x: relax.Expr) -> relax.Expr:
    return op.exp(op.tanh(op.sigmoid(op.nn.relu(op.matmul(x, W)))))


def fork(x: relax.Expr) -> relax.Expr:
    hidden = op.sigmoid(op.matmul(x, W))
    return op.nn.softmax(op.tanh(op.add(hidden, op.nn.relu(op.matmul(hidden, W)))), 1)


def annotated(make: Callable[[relax.Expr], relax.Expr]) -> IRModule:
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(make(x)))
        builder.emit_func_output(result)
    return tvm.transform.Sequential([Prepare(), AnnotateCandidates()])(builder.get())


@pytest.mark.parametrize("make", [chain, fork])
def test_there_is_a_plan_whatever_the_budget_has_left(make) -> None:
    drawn = random.Random(0)
    late = Cost(None, reason=f"{OUT_OF_TIME}0.01 s was spent", origin=UNKNOWN, bound=0.0)
    with only_backends(TOY), Target("llvm"):
        mod = annotated(make)
        main = mod["main"]
        keys = {candidate.id: str(candidate.id) for candidate in CANDIDATES.read(main)}
        for share in (0.0, 0.1, 0.3, 0.5, 0.8) * 5:
            costs = {key: Cost(1e-6, 1e-6, 1e-6) if drawn.random() < share else late for key in keys.values()}
            costed = COSTS.write(main, Costs(by_key=costs, keys=keys))
            searched = SearchPartition()(IRModule({mod.get_global_var("main"): costed}))
            assert PLAN.on(searched["main"])


def test_a_plan_says_what_a_spent_budget_may_have_cost_and_how_to_go_on() -> None:
    late = [WithoutCost("onednn", "add", reason) for reason in (f"{OUT_OF_TIME}35 s was spent", STOPPED)]
    refused = WithoutCost("tvm", "relu", "its numbers are wrong")
    kernel = PlannedKernel(0, "tvm", "relu", "f", ("y",), 1e-6)
    console = Console(width=200)
    with console.capture() as captured:
        console.print(plan_summary("main", Plan((kernel,), 1e-6, gap=0.125, without_cost=(*late, refused))))
    *_, first, second = captured.get().splitlines()
    assert first == (
        "the plan may be up to 12.5% off: there was no time left to measure 2 candidates; "
        "--budget TIME continues the measuring"
    )
    assert second == "1 candidate without a cost, such as tvm relu: its numbers are wrong"


@pytest.mark.parametrize(("costed", "left"), [(1, 4), (5, 0)])
def test_a_plan_says_how_many_operators_its_prediction_leaves_out(costed: int, left: int) -> None:
    late = Cost(None, reason=f"{OUT_OF_TIME}0.01 s was spent", origin=UNKNOWN, bound=0.0)
    with only_backends(TOY), Target("llvm"):
        mod = annotated(chain)
        main = mod["main"]
        candidates, graph = CANDIDATES.read(main), DataflowGraph(main)
        keys = {candidate.id: str(candidate.id) for candidate in candidates}
        inside = {candidate.id: tuple(members(candidate.sub_graph(graph).inside)) for candidate in candidates}
        measured = [id_ for id_, nodes in inside.items() if len(nodes) == 1 and nodes[0] < costed]
        known = {keys[id_]: Cost(1e-6, 1e-6, 1e-6) for id_ in measured}
        costs = dict.fromkeys(keys.values(), late) | known
        searched = SearchPartition()(IRModule({"main": COSTS.write(main, Costs(by_key=costs, keys=keys))}))
        plan = PLAN.read(searched["main"])
    told = [remark for remark in plan.remarks if remark.startswith("what is predicted leaves out")]
    expected = f"what is predicted leaves out operators without a cost, which TVM compiles: {left}"
    assert len(plan.kernels) == costed and told == ([expected] if left else [])
