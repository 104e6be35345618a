"""When the time is over, operators without a measured kernel get expected costs; guesses say what comes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from unity_collage.annotations import CANDIDATES, COSTS, PLAN
from unity_collage.cost.asking import workloads
from unity_collage.cost.expected import guessed
from unity_collage.cost.model import Workload
from unity_collage.passes import AnnotateCandidates, EstimateCosts, EstimateNeededCosts, SearchPartition
from unity_collage.passes.estimate_needed_costs import _better
from unity_collage.passes.search_partition import stated_problem
from unity_collage.plan.check import checked
from unity_collage.plan.costs import EXPECTED, UNKNOWN, Cost, Costs
from unity_collage.plan.plan import Plan
from unity_collage.testing.fake_backend import fake_backend, only_backends
from unity_collage.testing.fixed_cost import FixedCost

Estimate = EstimateCosts | EstimateNeededCosts
OPERATORS = ("relax.nn.relu", "relax.exp", "relax.tanh", "relax.sigmoid")
GOOD = fake_backend("good", *OPERATORS)
BOUND = 1e-6


@dataclass(frozen=True)
class Late(FixedCost):
    """Each kernel has a bound of 1 us and costs a multiple of it by backend; no time for some operators."""

    multiples: Mapping[str, float] = field(default_factory=dict)
    late: str = "tanh"
    """No kernel with this operator is measured."""
    refused: tuple[str, ...] = ()
    """Backends that refuse that operator."""
    bound: float = BOUND
    asked: list[str] = field(default_factory=list)

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        self.asked.extend(f"{each.backend}:{each.label}" for each in workloads)
        return {each.key: self._found(each) for each in workloads}

    def _found(self, workload: Workload) -> Cost:
        if self.late not in workload.label:
            return Cost(BOUND * self.multiples[workload.backend])
        if workload.backend in self.refused:
            return Cost(None, reason="refused")
        return Cost(None, origin=UNKNOWN, reason="late", bound=self.bound)

    def lower_bounds(self, workloads: Sequence[Workload]) -> dict[str, float]:
        return {workload.key: self.bound for workload in workloads}


def chain() -> relax.Function:
    x = relax.Var("x", relax.TensorType((4, 16), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y: relax.Expr = x
            for apply in (relax.op.nn.relu, relax.op.exp, relax.op.sigmoid):
                y = builder.emit(apply(y))
            y = builder.emit_output(relax.op.tanh(y))
        builder.emit_func_output(y)
    func = builder.get()["main"]
    assert isinstance(func, relax.Function)
    return func


def searched(model: Late, estimate: type[Estimate] = EstimateNeededCosts) -> tuple[Plan, relax.Function]:
    """The plan of the chain, and the function with costs."""
    with only_backends(GOOD), Target("llvm"):
        costed = estimate(model)(AnnotateCandidates()(IRModule({"main": chain()})))
        func = costed["main"]
        assert isinstance(func, relax.Function)
        return PLAN.read(SearchPartition()(costed)["main"]), func


@pytest.mark.parametrize("estimate", [EstimateNeededCosts, EstimateCosts])
def test_what_no_measured_kernel_computes_gets_a_kernel_with_an_expected_cost(
    estimate: type[Estimate],
) -> None:
    plan, _ = searched(Late(multiples={"good": 3.0, "tvm": 5.0}), estimate)
    last = plan.kernels[-1]
    assert (last.backend, last.label, last.interval) == ("good", "tanh", None)
    assert plan.left_behind == () and plan.expected == 1
    assert (
        "the costs of 1 of its kernels are expected from those of others, and were not measured"
        in plan.remarks
    )


def test_a_plan_with_an_expected_cost_is_not_proved() -> None:
    """The kernel may cost 1 us, its lower bound, and is expected to cost 3 us."""
    plan, func = searched(Late(multiples={"good": 3.0, "tvm": 5.0}))
    assert not plan.proved and plan.certificate is not None
    assert plan.certificate.proved_seconds < plan.seconds
    assert any("have expected costs and were not measured" in remark for remark in plan.remarks)
    stated = stated_problem(func)
    assert checked(plan, stated).holds
    claim = replace(plan.certificate, proved=True, proved_seconds=plan.seconds)
    assert "what is proved is" in checked(replace(plan, proved=True, certificate=claim), stated).text


def test_the_multiple_is_that_of_the_measured_kernels_of_the_backend() -> None:
    _, func = searched(Late(multiples={"good": 5.0, "tvm": 3.0}))
    expected = {
        candidate.backend: cost.seconds
        for candidate in CANDIDATES.read(func)
        if (cost := COSTS.read(func).of(candidate.id)).origin == EXPECTED
    }
    assert expected["tvm"] == 3.0 * BOUND


def test_an_expected_cost_never_stands_against_a_measured_one() -> None:
    _, func = searched(Late(multiples={"good": 3.0, "tvm": 5.0}))
    costs: Costs = COSTS.read(func)
    for candidate in CANDIDATES.read(func):
        if costs.of(candidate.id).origin == EXPECTED:
            assert len(candidate.indexes) == 1, "a kernel of the last operator and of measured ones"


def test_nothing_is_expected_where_nothing_was_measured() -> None:
    _, func = searched(Late(multiples={}, late=""))
    assert {cost.origin for cost in COSTS.read(func).by_key.values()} == {UNKNOWN}


def test_nothing_is_expected_without_a_bound_or_of_what_is_refused() -> None:
    without, _ = searched(Late(multiples={"good": 3.0, "tvm": 5.0}, bound=0.0))
    assert without.expected == 0
    refused, _ = searched(Late(multiples={"good": 3.0, "tvm": 5.0}, refused=("good",)))
    assert refused.kernels[-1].backend == "tvm" and refused.expected == 1


def test_the_cheapest_plan_by_guesses_is_measured_first() -> None:
    model = Late(multiples={"good": 3.0, "tvm": 5.0}, late="nothing")
    searched(model)
    assert model.asked[0].endswith(":relu+exp+sigmoid+tanh"), "one kernel is expected to cost the least"


def test_guesses_are_multiples_of_bounds_and_learn_from_what_was_measured() -> None:
    with only_backends(GOOD), Target("llvm"):
        mod = AnnotateCandidates()(IRModule({"main": chain()}))
        func = mod["main"]
        assert isinstance(func, relax.Function)
        asked = {each.key: each for each in workloads(func, FixedCost({}), mod).values()}
    bounds = dict.fromkeys(asked, BOUND)
    at_first = guessed(asked.values(), bounds, {})
    assert set(at_first.values()) == {2 * BOUND} and at_first.keys() == asked.keys()
    measured = dict.fromkeys([key for key in asked if key.startswith("tvm")][:3], 7 * BOUND)
    later = guessed(asked.values(), bounds, measured)
    assert not measured.keys() & later.keys()
    assert {seconds for key, seconds in later.items() if key.startswith("tvm")} == {7 * BOUND}
    assert {seconds for key, seconds in later.items() if key.startswith("good")} == {2 * BOUND}


def test_of_two_costs_the_more_certain_one_is_kept() -> None:
    ranked = [
        Cost(2.0),
        Cost(None, reason="refused"),
        Cost(1.0, origin=EXPECTED),
        Cost(None, reason="not needed", bound=0.5),
        Cost(None, origin=UNKNOWN, reason="late", bound=0.5),
    ]
    for place, sure in enumerate(ranked):
        for other in ranked[place:]:
            assert _better(sure, other) == _better(other, sure) == sure
