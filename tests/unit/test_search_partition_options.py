"""SearchPartition beyond the cheapest cover: merged kernels, costs on demand, computing twice, a plan to check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import StringIO

import numpy as np
import pytest
import tvm
from rich.console import Console
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from unity_collage.annotations import CANDIDATES, COSTS, EXPLANATION, PLAN
from unity_collage.backends.merging import merged_candidates
from unity_collage.cost.model import CostModel, Overheads, Workload
from unity_collage.errors import NoPlan
from unity_collage.graph import DataflowGraph
from unity_collage.passes import (
    AnnotateCandidates,
    ApplyPlan,
    EstimateCosts,
    OfferMerged,
    SearchPartition,
    why_not_plan,
)
from unity_collage.plan.candidate import Candidate
from unity_collage.plan.costs import UNKNOWN, Cost, Costs
from unity_collage.report import plan_summary
from unity_collage.report.words import proof_text, why_it_won
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import fake_backend, only_backends
from unity_collage.testing.fixed_cost import FixedCost

MERGING = replace(fake_backend("toy", "relax.nn.relu", "relax.exp", "relax.tanh"), merges=True)
SINGLES = {"toy": 1.0, "tvm": 9.0, "tvm:exp+tanh": 9.0, "tvm:relu+exp": 9.0, "tvm:relu+exp+tanh": 9.0}
SETTINGS = FixedCost({"toy:relu+exp": 1.5, "toy:exp+tanh": 1.8, "toy:relu+exp+tanh": 3.5, **SINGLES})


def planned(
    model: FixedCost, search: SearchPartition, func: relax.Function | None = None, merge: bool = False
) -> dict:
    module = IRModule({"main": func or graphs.chain()})
    with only_backends(MERGING), Target("llvm"):
        passes = [
            AnnotateCandidates(),
            EstimateCosts(model),
            *([OfferMerged(model)] if merge else []),
            search,
        ]
        return PLAN.read(tvm.transform.Sequential(passes)(module)["main"])


def test_touching_kernels_are_merged_where_that_is_cheaper() -> None:
    plan = planned(SETTINGS, SearchPartition(), merge=True)
    assert [kernel.label for kernel in plan.kernels] == ["relu+exp", "tanh"]
    assert plan.seconds == 2.5 and plan.proved


def test_merged_kernels_that_are_more_expensive_stay_apart() -> None:
    dear = FixedCost({**SINGLES, "toy:relu+exp": 2.5, "toy:exp+tanh": 2.5})
    plan = planned(dear, SearchPartition(), merge=True)
    assert [kernel.label for kernel in plan.kernels] == ["relu", "exp", "tanh"]


LONE = {"toy": 1.0, "tvm": 9.0, "tvm:relu+exp": 9.0, "tvm:exp+tanh": 9.0, "tvm:relu+exp+tanh": 9.0}


@pytest.mark.parametrize(
    ("pair", "labels"),
    [(1.5, ["relu+exp+tanh"]), (2.0, ["relu+exp+tanh"]), (2.5, ["relu", "exp", "tanh"])],
    ids=["a pair pays", "a pair costs as much as its parts", "a pair costs more than its parts"],
)
def test_three_kernels_become_one_where_that_is_cheaper(pair: float, labels: list[str]) -> None:
    """One round of pairs, as before, ends with two kernels or three."""
    model = FixedCost({**LONE, "toy:relu+exp": pair, "toy:exp+tanh": pair, "toy:relu+exp+tanh": 1.2})
    assert [kernel.label for kernel in planned(model, SearchPartition(), merge=True).kernels] == labels


def test_merging_goes_on_until_nothing_gains() -> None:
    """Eight kernels in a row; a call costs 1, however many kernels it runs, and at most eight are merged."""
    x = relax.Var("x", relax.TensorType((4, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for op in [relax.op.exp, relax.op.tanh] * 5:
                value = builder.emit(op(value))
            value = builder.emit_output(value)
        builder.emit_func_output(value)
    model = FixedCost({"toy": 1.0, "tvm": 90.0})
    plan = planned(model, SearchPartition(), builder.get()["main"], merge=True)
    assert sorted(len(kernel.bindings) for kernel in plan.kernels) == [2, 8]


def test_merged_kernels_keep_their_number_of_threads() -> None:
    graph = DataflowGraph(graphs.chain())
    relu, exp, tanh = (
        Candidate(number, "toy", "fake", label, (number,), threads=threads)
        for number, (label, threads) in enumerate((("relu", 1), ("exp", 1), ("tanh", None)))
    )
    with only_backends(MERGING):
        merged = merged_candidates(graph, [relu, exp, tanh], first_id=9)
    assert [(c.label, c.threads) for c in merged] == [("relu+exp", 1), ("exp+tanh", None)]


def test_nothing_is_merged_unasked() -> None:
    assert len(planned(SETTINGS, SearchPartition()).kernels) == 3


def test_a_merged_kernel_has_one_composite_for_each_part() -> None:
    module = IRModule({"main": graphs.chain()})
    with only_backends(MERGING), Target("llvm"):
        passes = [AnnotateCandidates(), EstimateCosts(SETTINGS), OfferMerged(SETTINGS), SearchPartition()]
        result = tvm.transform.Sequential(passes)(module)
    func = result["fused_relu_exp_toy"]
    inner = [b.value for block in func.body.blocks for b in block.bindings]
    labels = [value.attrs["Composite"] for value in inner if isinstance(value, relax.Function)]
    assert labels == ["toy.relu", "toy.exp"]


@dataclass(frozen=True)
class Counting(CostModel):
    """A cost model with bounds that knows which kernels were asked for."""

    model: FixedCost
    asked: list[str]
    bound_of_tvm: float = 8.0

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        self.asked.extend(f"{workload.backend}:{workload.label}" for workload in workloads)
        return self.model.costs(workloads)

    def lower_bounds(self, workloads: Sequence[Workload]) -> dict[str, float]:
        return {w.key: self.bound_of_tvm if w.backend == "tvm" else 0.5 for w in workloads}


def test_only_what_can_still_change_the_plan_is_measured() -> None:
    counting = Counting(SETTINGS, [])
    with only_backends(MERGING), Target("llvm"):
        module = AnnotateCandidates()(IRModule({"main": graphs.chain()}))
        plan = PLAN.read(SearchPartition(estimator=counting)(module)["main"])
    assert plan.seconds == 3.0 and plan.proved
    assert sorted(counting.asked) == ["toy:exp", "toy:relu", "toy:tanh"]


def test_a_plan_on_the_assumption_that_fusion_pays_is_not_called_proved() -> None:
    """TVM's kernel of all three costs less than its parts here: it is all that is measured."""
    counting = Counting(FixedCost({"tvm:relu+exp+tanh": 8.5, "tvm": 9.0, "toy": 3.0}), [], 1.0)
    with only_backends(MERGING), Target("llvm"):
        module = AnnotateCandidates()(IRModule({"main": graphs.chain()}))
        search = SearchPartition(estimator=counting, assume_fusion_pays=True)
        plan = PLAN.read(search(module)["main"])
    assert plan.seconds == 8.5 and plan.lower_bound < plan.seconds and not plan.proved
    assert "tvm:relu+exp" not in counting.asked


@pytest.mark.parametrize(("bound", "lower_bound"), [(None, 2.75), (0.5, 3.25), (5.0, 5.0)])
def test_costs_that_are_unknown_for_want_of_time_are_a_gap_by_their_bounds(
    bound: float | None, lower_bound: float
) -> None:
    """relu+exp has not been measured: without it the plan is four kernels for 5, with it three for 2.75 and that."""
    func = _recomputing()
    costs = COSTS.read(func)
    late = Cost(None, reason="the budget was spent", origin=UNKNOWN, bound=bound)
    func = COSTS.write(func, replace(costs, by_key={**costs.by_key, "0": late}))
    plan = PLAN.read(SearchPartition()(IRModule({"main": func}))["main"])
    assert (plan.seconds, plan.lower_bound) == (5.0, pytest.approx(lower_bound))
    assert plan.gap == pytest.approx((5 - lower_bound) / 5)
    assert plan.proved == (lower_bound == 5.0)


def test_ties_are_in_the_plan_and_can_be_checked() -> None:
    costed = _tying()
    with only_backends(MERGING):
        result = SearchPartition()(IRModule({"main": costed}))["main"]
        noisy = SearchPartition(settle_ties=False)(IRModule({"main": costed}))["main"]
    plan, cheapest = PLAN.read(result), PLAN.read(noisy)
    assert [kernel.candidate for kernel in cheapest.kernels] == [4, 5, 3]
    assert [kernel.candidate for kernel in plan.kernels] == [4, 5, 0]
    assert plan.proved and plan.seconds == 10.125 and cheapest.seconds == 10.0
    assert plan.tie_policy is not None and plan.tie_policy.swaps == ((0, (3,)),)
    (tie,) = plan.kernels[2].ties
    assert (tie[0].backend, tie[0].seconds, tie[0].interval) == ("tvm", 4.0, (3.5, 4.5))
    assert why_not_plan(costed, result) is None
    assert "cost within 1.23% of the cheapest plan by tie policy: 1 kernels are ties" in plan.remarks


def test_ties_are_shown_as_ties() -> None:
    costed = _tying()
    with only_backends(MERGING):
        result = SearchPartition(explain=True)(IRModule({"main": costed}))["main"]
    console = Console(width=150, record=True, file=StringIO())
    console.print(plan_summary("main", PLAN.read(result)))
    text = console.export_text()
    assert "toy tanh: tie with tvm tanh, 4.13 s +- 250 ms against 4.00 s +- 500 ms" in text
    assert "by the policy for ties the plan costs 1.23% more than the cheapest one" in text
    found = EXPLANATION.read(result)
    (kernel,) = (kernel for kernel in found.kernels if kernel.ties)
    assert "tie with tvm tanh (" in why_it_won(found, kernel)
    assert "4.13 s +- 250 ms against 4.00 s +- 500 ms: fewer transitions" in why_it_won(found, kernel)
    assert (
        "by ties that the policy has settled, and no valid plan is cheaper by more than ties"
        in proof_text(found)
    )
    assert all(bid.regret is None or bid.regret >= 0 for bid in found.candidates)


def _tying() -> relax.Function:
    """tanh by itself is a tie between the library, which is preferred, and TVM, which looks cheaper."""
    func = graphs.chain()
    backends = ("toy", "tvm", "tvm", "tvm", "toy", "toy")
    candidates = tuple(
        Candidate(n, backend, "typed", ("relu", "exp", "tanh")[i], (i,), composites=parts(backend, i))
        for n, (backend, i) in enumerate(zip(backends, (2, 0, 1, 2, 0, 1), strict=True))
    )
    typed = {str(c.id): Cost(4.0, 3.5, 4.5, 9) for c in candidates} | {
        "0": Cost(4.125, 3.875, 4.375, 9),
        "4": Cost(3.0, 3.0, 3.0),
        "5": Cost(3.0, 3.0, 3.0),
    }
    costs = Costs(typed, {c.id: str(c.id) for c in candidates})
    return COSTS.write(CANDIDATES.write(func, candidates), costs)


def parts(backend: str, index: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return ((f"toy.{index}", (index,)),) if backend == "toy" else ()


def _recomputing() -> relax.Function:
    """The diamond with two given kernels that both compute its relu: 0 relu, 1 exp, 2 tanh, 3 add."""
    func = graphs.diamond()
    candidates = (
        Candidate(0, "tvm", "typed", "relu+exp", (0, 1), hidden=(0,)),
        Candidate(1, "tvm", "typed", "relu+tanh", (0, 2), hidden=(0,)),
        Candidate(2, "tvm", "typed", "add", (3,)),
        *(Candidate(3 + i, "tvm", "typed", "single", (i,)) for i in range(3)),
    )
    typed = {str(c.id): Cost(1.0) for c in candidates}
    costs = Costs(typed, {c.id: str(c.id) for c in candidates}, launch_seconds=0.25)
    return COSTS.write(CANDIDATES.write(func, candidates), costs)


def test_an_operator_is_computed_twice_where_that_is_cheaper() -> None:
    result = SearchPartition()(IRModule({"main": _recomputing()}))["main"]
    plan = PLAN.read(result)
    assert [kernel.label for kernel in plan.kernels] == ["relu+exp", "relu+tanh", "add"]
    assert plan.seconds == 3.75


def test_computing_twice_can_be_switched_off() -> None:
    plan = PLAN.read(SearchPartition(redundant=False)(IRModule({"main": _recomputing()}))["main"])
    assert [kernel.label for kernel in plan.kernels] == ["single", "single", "single", "add"]


@pytest.mark.parametrize("algorithm", ["auto", "exact", "milp"])
def test_the_certificate_of_a_plan_convinces_the_checker(algorithm: str) -> None:
    costed = _recomputing()
    result = SearchPartition(algorithm=algorithm)(IRModule({"main": costed}))["main"]
    assert why_not_plan(costed, result) is None


def test_a_forged_certificate_does_not() -> None:
    costed = _recomputing()
    result = SearchPartition()(IRModule({"main": costed}))["main"]
    plan = PLAN.read(result)
    assert plan.certificate is not None
    forged = replace(plan.certificate, chosen=plan.certificate.chosen[1:])
    assert "is wanted and written 0 times" in (
        why_not_plan(costed, PLAN.write(result, replace(plan, certificate=forged))) or ""
    )


def test_a_given_plan_is_applied_and_measured() -> None:
    result = ApplyPlan({"main": (2, 3, 4, 5)}, origin="mine")(IRModule({"main": _recomputing()}))
    plan = PLAN.read(result["main"])
    assert (plan.seconds, plan.algorithm) == (5.0, "mine")


def test_a_given_plan_of_unknown_candidates_is_refused() -> None:
    with pytest.raises(NoPlan, match="main has no candidates 77: 0 to 5 exist"):
        ApplyPlan({"main": (77,)})(IRModule({"main": _recomputing()}))


@dataclass(frozen=True)
class Charged(CostModel):
    """Equal costs, but a value that goes from one backend to the other costs more than it gains."""

    transition: float

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        cheap = {"toy:relu", "tvm:exp", "toy:tanh"}
        return {w.key: Cost(1.0 if f"{w.backend}:{w.label}" in cheap else 1.4) for w in workloads}

    def overheads(self, backends: Sequence[str]) -> Overheads:
        pairs = {f"{a}>{b}": ((0, self.transition),) for a in backends for b in backends if a != b}
        return Overheads(0.0, {"toy": 0.0, "tvm": 5.0 * self.transition}, pairs)


@pytest.mark.parametrize(("transition", "owners"), [(0.0, ["toy", "tvm", "toy"]), (0.3, ["toy"] * 3)])
def test_launches_and_transitions_are_charged(transition: float, owners: list[str]) -> None:
    model = Charged(transition)
    module = IRModule({"main": graphs.chain()})
    with only_backends(replace(MERGING, merges=False)), Target("llvm"):
        shallow = [AnnotateCandidates(), _only_singles, EstimateCosts(model), SearchPartition()]
        plan = PLAN.read(tvm.transform.Sequential(shallow)(module)["main"])
    assert [kernel.backend for kernel in plan.kernels] == owners


@tvm.transform.module_pass(opt_level=0, name="testing.only_singles")
def _only_singles(mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
    func = mod["main"]
    kept = tuple(c for c in CANDIDATES.read(func) if len(c.indexes) == 1)
    return IRModule({"main": CANDIDATES.write(func, kept)})


def test_a_rule_that_is_switched_off_says_so() -> None:
    from unity_collage.annotations import DECLINED

    with only_backends(MERGING), Target("llvm"):
        func = AnnotateCandidates(without=("fake",))(IRModule({"main": graphs.chain()}))["main"]
    assert {c.backend for c in CANDIDATES.read(func)} == {"tvm"}
    assert {refusal.reason for refusal in DECLINED.read(func)} == {"fake is switched off"}
    assert len(DataflowGraph(func)) == 3


@pytest.mark.parametrize(("weights", "functions"), [((0, 0, 0), 1), ((0, 1, 0), 2), ((0, 1, 2), 3)])
def test_equal_kernels_of_a_library_share_a_function_where_their_weights_are_the_same(
    weights: tuple[int, ...], functions: int
) -> None:
    """Each function packs its weights: copies of them would push each other out of the caches."""
    constants = [relax.const(np.full((16, 16), number, "float32")) for number in range(3)]
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = x
            for number in weights:
                y = builder.emit(relax.op.matmul(y, constants[number]))
            y = builder.emit_output(y)
        builder.emit_func_output(y)
    model = FixedCost({"toy:matmul": 1.0, "tvm:matmul": 2.0})
    with only_backends(fake_backend("toy", "relax.matmul")), Target("llvm"):
        passes = [AnnotateCandidates(), EstimateCosts(model), SearchPartition(estimator=model)]
        result = tvm.transform.Sequential(passes)(builder.get())
    assert len(PLAN.read(result["main"]).kernels) == 3
    assert sum("toy" in gvar.name_hint for gvar in result.get_global_vars()) == functions
