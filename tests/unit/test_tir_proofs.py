"""Plans of random graphs with TIR among their operators: the search finds the cheapest, and the checker knows others.

A graph of TIR has the same candidates as the graph of the operators of Relax that it computes.
``make check-proofs`` draws 125 graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from search_problems import cheapest
from tvm import relax, te, tirx
from tvm.ir import IRModule
from tvm.relax import op
from tvm.target import Target

from unity_collage.annotations import CANDIDATES, PLAN
from unity_collage.cost.model import CostModel, Overheads, Workload
from unity_collage.passes import AnnotateCandidates, EstimateCosts, SearchPartition
from unity_collage.passes.search_partition import stated_problem
from unity_collage.plan.candidate import Candidate
from unity_collage.plan.check import checked
from unity_collage.plan.costs import Cost
from unity_collage.plan.plan import Plan, PlannedKernel
from unity_collage.search.auto import solve
from unity_collage.search.certificate import certificate_of
from unity_collage.search.problem import NoCover, Option
from unity_collage.testing.fake_backend import fake_backend, only_backends

FEWER = settings(max_examples=settings().max_examples // 4)
"""TVM makes each graph."""

TOY = fake_backend("toy", "relax.nn.relu", "relax.exp", "relax.add")

Step = tuple[str, int, int, bool]
"""An operator, its operands among the values so far, and whether it is TIR."""

OPERATORS: dict[str, tuple[int, Callable[..., relax.Expr], Callable[..., te.Tensor]]] = {
    "relu": (1, op.nn.relu, lambda a: te.compute(a.shape, lambda *i: te.max(a(*i), 0.0), name="relu")),
    "add": (2, op.add, lambda a, b: te.compute(a.shape, lambda *i: a(*i) + b(*i), name="add")),
    "exp": (1, op.exp, lambda a: te.compute(a.shape, lambda *i: tirx.exp(a(*i)), name="exp")),
}
"""The number of operands, the operator of Relax, and what it computes."""


@dataclass(frozen=True)
class DrawnCost(CostModel):
    """A cost for each backend and label that follows from a seed, in whole seconds, so that sums are exact."""

    seed: int

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        return {workload.key: self._cost(workload) for workload in workloads}

    def overheads(self, backends: Sequence[str]) -> Overheads:
        return Overheads(float(self.seed % 2))

    def _cost(self, workload: Workload) -> Cost:
        seconds = float(crc32(f"{self.seed} {workload.backend} {workload.key}".encode()) % 7)
        return Cost(seconds, seconds, seconds, 1, "formula")


@st.composite
def graphs(draw: st.DrawFn) -> list[Step]:
    return [
        (
            draw(st.sampled_from(list(OPERATORS))),
            draw(st.integers(0, number)),
            draw(st.integers(0, number)),
            draw(st.booleans()),
        )
        for number in range(draw(st.integers(2, 4)))
    ]


def module(steps: Sequence[Step]) -> IRModule:
    """A module that returns the last value."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            values: list[relax.Var] = [x]
            for kind, first, second, is_tir in steps:
                arity, in_relax, in_te = OPERATORS[kind]
                operands = (values[first], values[second])[:arity]
                if is_tir:
                    made = builder.call_te(in_te, *operands, primfunc_name_hint=f"own_{kind}")
                    values.append(builder.emit(made))
                else:
                    values.append(builder.emit(in_relax(*operands)))
            result = builder.emit_output(values[-1])
        builder.emit_func_output(result)
    return builder.get()


def searched(steps: Sequence[Step], seed: int) -> tuple[IRModule, Plan]:
    """The module with its candidates and costs, and the plan."""
    passes = [AnnotateCandidates(), EstimateCosts(DrawnCost(seed=seed))]
    with only_backends(TOY), Target("llvm"):
        costed = tvm.transform.Sequential(passes)(module(steps))
        return costed, PLAN.read(SearchPartition()(costed)["main"])


@FEWER
@given(graphs(), st.integers(0, 1000))
def test_the_plan_with_tir_is_the_cheapest_and_proved(steps: list[Step], seed: int) -> None:
    costed, plan = searched(steps, seed)
    problem = stated_problem(costed["main"])
    finding = checked(plan, problem)
    assert finding.holds and plan.proved, finding.text
    assert plan.seconds == pytest.approx(cheapest(problem))
    assert all("own_" not in c.label for c in CANDIDATES.read(costed["main"]) if c.backend == "toy")


@FEWER
@given(graphs(), st.integers(0, 1000), st.data())
def test_another_plan_is_not_taken_for_the_cheapest(
    steps: list[Step], seed: int, data: st.DataObject
) -> None:
    """Without one of its kernels the plan costs more, and the proof of the first plan is none of it."""
    costed, plan = searched(steps, seed)
    problem = stated_problem(costed["main"])
    assert plan.certificate is not None
    gone = data.draw(st.sampled_from(plan.certificate.chosen))
    try:
        other = solve(replace(problem, options=tuple(o for o in problem.options if o.id != gone)))
    except NoCover:
        return
    proofs = plan.certificate.proof, plan.certificate.enumeration, plan.certificate.branches
    claim = replace(certificate_of(problem, other, *proofs), proved=True, gap=0.0, lower_bound=other.seconds)
    by_id = {kernel.id: kernel for kernel in CANDIDATES.read(costed["main"])}
    lie = replace(
        plan,
        certificate=claim,
        proved=True,
        seconds=other.seconds,
        lower_bound=other.seconds,
        gap=0.0,
        tie_policy=None,
        more_than_cheapest=0.0,
        left_behind=("left",) * other.left_behind.bit_count(),
        kernels=tuple(_kernel(plan, by_id[o.id], o) for o in other.chosen),
    )
    finding = checked(lie, problem)
    assert not finding.holds or other.seconds == pytest.approx(plan.seconds), finding.text


def _kernel(plan: Plan, candidate: Candidate, option: Option) -> PlannedKernel:
    return replace(
        plan.kernels[0],
        candidate=candidate.id,
        backend=candidate.backend,
        label=candidate.label,
        seconds=option.seconds,
        interval=None if option.low is None else option.interval,
    )


@FEWER
@given(graphs(), st.integers(0, 1000))
def test_tir_fuses_as_the_operators_do_that_it_computes(steps: list[Step], seed: int) -> None:
    def groups(is_tir: bool) -> set[tuple[int, ...]]:
        costed, _ = searched([(kind, a, b, is_tir) for kind, a, b, _ in steps], seed)
        return {tuple(c.indexes) for c in CANDIDATES.read(costed["main"]) if c.backend == "tvm"}

    assert groups(is_tir=True) == groups(is_tir=False)
