"""Where nothing has to be chosen nothing is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R
from tvm.target import Target

from unity_collage import runtime
from unity_collage.annotations import COSTS, PLAN
from unity_collage.cost.model import CostModel, Overheads, Workload
from unity_collage.measure.choices import has_no_choice, why_costs_matter
from unity_collage.passes import AnnotateCandidates, EstimateNeededCosts, SearchPartition
from unity_collage.plan.costs import Cost
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import fake_backend, only_backends

TOY = fake_backend("toy", "relax.nn.relu")


@dataclass(frozen=True)
class Asked(CostModel):
    """Remembers what it was asked for."""

    questions: list[str] = field(default_factory=list[str])

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        self.questions.extend(workload.label for workload in workloads)
        return {workload.key: Cost(1e-6, 1e-6, 1e-6, 1) for workload in workloads}

    def overheads(self, backends: Sequence[str]) -> Overheads:
        self.questions.append("overheads")
        return Overheads()


def product(size: int) -> relax.Function:
    """One matrix product of this size."""
    x = relax.Var("x", relax.TensorType((size, size), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(R.matmul(x, relax.const(np.ones((size, size), "float32"))))
        builder.emit_func_output(y)
    return builder.get()["main"]


def annotated(func: relax.Function) -> IRModule:
    with only_backends(TOY), Target("llvm"):
        return AnnotateCandidates()(IRModule({"main": func}))


CASES: list[tuple[Callable[[], relax.Function], int, str | None]] = [
    (lambda: product(1024), 2, None),
    (lambda: product(8), 2, "tvm matmul may be faster on one thread"),
    (lambda: product(8), 1, None),
    (graphs.chain, 1, "is not the only candidate for its operators"),
]


@pytest.mark.parametrize(("make", "threads", "why"), CASES)
def test_what_has_to_be_chosen(
    make: Callable[[], relax.Function], threads: int, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "num_threads", lambda: threads)
    with only_backends(TOY), Target("llvm"):
        found = why_costs_matter(annotated(make())["main"])
    assert found is None if why is None else found is not None and why in found


def test_a_kernel_of_a_library_is_checked_and_so_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "num_threads", lambda: 1)
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(R.nn.relu(x))
        builder.emit_func_output(y)
    with only_backends(TOY), Target("llvm"):
        mod = AnnotateCandidates(("toy",))(IRModule({"main": builder.get()["main"]}))
        found = why_costs_matter(mod["main"])
    assert found == "toy relu may not pass its checks, and then TVM makes that kernel"


def test_two_products_may_run_side_by_side_and_two_in_a_row_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def two(body: Callable[[relax.BlockBuilder, relax.Var, relax.Expr], relax.Expr]) -> str | None:
        x = relax.Var("x", relax.TensorType((1024, 1024), "float32"))
        weights = relax.const(np.ones((1024, 1024), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            with builder.dataflow():
                y = builder.emit_output(body(builder, x, weights))
            builder.emit_func_output(y)
        with only_backends(TOY), Target("llvm"):
            return why_costs_matter(annotated(builder.get()["main"])["main"])

    monkeypatch.setattr(runtime, "num_threads", lambda: 2)
    assert two(lambda b, x, w: R.matmul(b.emit(R.matmul(x, w)), w)) is None
    both = two(lambda b, x, w: relax.Tuple([b.emit(R.matmul(x, w)), b.emit(R.matmul(w, x))]))
    assert both == "kernels may run side by side"


@pytest.mark.parametrize("only_choices", [True, False])
def test_nothing_is_asked_where_only_one_plan_is_possible(
    only_choices: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "num_threads", lambda: 2)
    model = Asked()
    with only_backends(TOY), Target("llvm"):
        costed = EstimateNeededCosts(model, only_choices=only_choices)(annotated(product(1024)))
        planned = SearchPartition()(costed)
    assert has_no_choice(costed) is only_choices and (model.questions == []) is only_choices
    plan = PLAN.read(planned["main"])
    assert [kernel.label for kernel in plan.kernels] == ["matmul"] and plan.proved
    assert plan.has_costs is not only_choices
    assert ("nothing was measured: only one plan is possible" in plan.remarks) is only_choices
    assert plan.kernels[0].interval is None or not only_choices


def test_a_choice_is_measured_all_the_same() -> None:
    model = Asked()
    with only_backends(TOY), Target("llvm"):
        costed = EstimateNeededCosts(model, only_choices=True)(annotated(graphs.chain()))
    assert "overheads" in model.questions and COSTS.read(costed["main"]).by_key
    tvm.ir.assert_structural_equal(
        costed, EstimateNeededCosts(Asked(), only_choices=False)(annotated(graphs.chain()))
    )
