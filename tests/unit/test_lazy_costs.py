"""Lazy costs: the same plan from fewer questions, and the reason of every question that was not asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from unity_collage.annotations import CANDIDATES, COSTS, PLAN
from unity_collage.cost.asking import workloads
from unity_collage.cost.lazy import Search, lazy_costs
from unity_collage.cost.model import Workload
from unity_collage.index_set import index_set
from unity_collage.passes import AnnotateCandidates, EstimateCosts, EstimateNeededCosts, SearchPartition
from unity_collage.passes.estimate_needed_costs import _latest, _with_bounds_that_hold, _with_costs_of_others
from unity_collage.passes.search_partition import checked_for
from unity_collage.plan.costs import EXPECTED, UNKNOWN, Cost, Costs
from unity_collage.search import Option, Problem, cheapest_cover
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import fake_backend, only_backends
from unity_collage.testing.fixed_cost import FixedCost

SLOW = fake_backend("slow", "relax.nn.relu", "relax.exp", "relax.tanh")


@dataclass(frozen=True)
class Bounded(FixedCost):
    """Given costs, and bounds by backend; remembers what it was asked."""

    least: Mapping[str, float] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        self.asked.extend(workload.key for workload in workloads)
        return super().costs(workloads)

    def lower_bounds(self, workloads: Sequence[Workload]) -> dict[str, float]:
        return {workload.key: self.least.get(workload.backend, 0.0) for workload in workloads}


def annotated() -> relax.Function:
    with only_backends(SLOW), Target("llvm"):
        return AnnotateCandidates()(IRModule({"main": graphs.chain()}))["main"]


def problem(func: relax.Function, costs: Costs) -> Problem:
    options = []
    for candidate in CANDIDATES.read(func):
        seconds = costs.by_key[costs.keys[candidate.id]].seconds
        if seconds is not None:
            inside = index_set(candidate.indexes)
            options.append(Option(candidate.id, inside, seconds, backend=candidate.backend))
    return Problem(((), (0,), (1,)), 0, tuple(options), costs.launch_seconds)


def costs_of(func: relax.Function, model: FixedCost) -> Costs:
    return lazy_costs(func, model, Search(lambda costs: problem(func, costs)))


def test_the_plan_of_lazy_costs_is_that_of_all_costs() -> None:
    func, model = (
        annotated(),
        Bounded({"slow": 9e-6, "tvm": 2e-6}, launch=1e-6, least={"slow": 5e-6, "tvm": 1e-6}),
    )
    eager = COSTS.read(EstimateCosts(model)(IRModule({"main": func}))["main"])
    model.asked.clear()
    lazy = costs_of(func, model)
    assert cheapest_cover(problem(func, lazy)).seconds == cheapest_cover(problem(func, eager)).seconds == 3e-6
    assert (lazy.keys, lazy.launch_seconds, lazy.by_key.keys()) == (eager.keys, 1e-6, eager.by_key.keys())
    assert not any(key.startswith("slow") for key in model.asked)


def test_what_was_not_measured_says_why_and_survives_as_an_attribute() -> None:
    func, model = annotated(), Bounded({"tvm": 2e-6}, launch=1e-6, least={"slow": 5e-6, "tvm": 1e-6})
    lazy = costs_of(func, model)
    cost = next(cost for key, cost in lazy.by_key.items() if key.startswith("slow"))
    assert (cost.seconds, cost.bound, cost.origin) == (None, 5e-6, "formula")
    assert cost.reason == (
        "not measured: it costs at least 5 us, and a plan with it at least 8 us; "
        "the plan that was found costs 3 us"
    )
    assert COSTS.read(COSTS.write(func, lazy)) == lazy


def test_a_refusal_is_kept_as_it_was_given() -> None:
    model = Bounded({"slow": "broken", "tvm": 2e-6}, least={"tvm": 1e-6})
    lazy = costs_of(annotated(), model)
    asked = [lazy.by_key[key] for key in model.asked if key.startswith("slow")]
    assert asked and all(cost == Cost(None, reason="broken") for cost in asked)


def test_a_model_without_bounds_is_asked_for_what_plans_contain() -> None:
    func = annotated()
    lazy = costs_of(func, FixedCost({"slow": 9e-6, "tvm": 2e-6}, launch=1e-6))
    assert cheapest_cover(problem(func, lazy)).seconds == 3e-6


def test_what_an_assumption_leaves_open_keeps_its_lower_bound() -> None:
    """TVM's chain is expensive and its parts are cheap, but lie in it: a cheaper plan of them is possible."""
    func = annotated()
    model = Bounded({"slow": "broken", "tvm": 1e-6, "tvm:relu+exp+tanh": 9e-6}, least={"slow": 1e-6})
    lazy = lazy_costs(func, model, Search(lambda costs: problem(func, costs), assume_fusion_pays=True))
    found = cheapest_cover(problem(func, lazy))
    left_out = [
        cost.bound for cost in lazy.by_key.values() if cost.seconds is None and cost.bound is not None
    ]
    assert left_out and 3 * min(left_out) < found.seconds


@dataclass(frozen=True)
class Hasty(Bounded):
    """Has time for a number of requests, then none."""

    patience: int = 1

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        late = len(self.asked) >= self.patience
        found = super().costs(workloads)
        return {key: Cost(None, reason="too late", origin=UNKNOWN) for key in found} if late else found


def test_when_the_time_is_over_nothing_is_searched_for_any_more() -> None:
    """All open costs are asked for at once, since they may be known from before; the others keep their bounds."""
    model = Hasty({"slow": 9e-6, "tvm": 2e-6}, least={"slow": 5e-6, "tvm": 0.5e-6})
    func = annotated()
    lazy = costs_of(func, model)
    late = {key: cost for key, cost in lazy.by_key.items() if cost.origin == UNKNOWN}
    assert late and all(cost.bound == model.least[key.split(":")[0]] for key, cost in late.items())
    assert sorted(model.asked) == sorted(set(model.asked)), "nothing is asked twice"


def test_what_no_time_is_left_for_costs_what_is_expected_of_it() -> None:
    model = Hasty({"slow": 9e-6, "tvm": 2e-6}, least={"slow": 5e-6, "tvm": 0.5e-6}, patience=0)
    func = annotated()
    all_keys = {workload.key for workload in workloads(func, model).values()}
    expected = {key: 3e-6 for key in all_keys if key.startswith("tvm")}
    search = Search(lambda costs: problem(func, costs), expected=expected)
    for key, cost in lazy_costs(func, model, search).by_key.items():
        guess = Cost(3e-6, origin=EXPECTED, bound=0.5e-6)
        assert cost == guess if key in expected else cost.origin == UNKNOWN


@dataclass(frozen=True)
class Remembering(Bounded):
    """Knows the costs of some backends beforehand."""

    remembered: tuple[str, ...] = ()

    def known(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        return FixedCost.costs(self, [each for each in workloads if each.backend in self.remembered])


def test_costs_that_are_known_are_not_asked_for() -> None:
    func = annotated()
    costs = {"slow": 2.0, "tvm": 1.0}
    model = Remembering(costs, remembered=("slow", "tvm"))
    assert lazy_costs(func, model, Search(lambda given: problem(func, given))).by_key
    assert model.asked == []


def test_a_known_cost_below_its_bound_lowers_the_other_bounds() -> None:
    func = annotated()
    model = Remembering(
        {"slow": 2.0, "tvm": 1.0, "tvm:relu+exp+tanh": 1.0},
        least={"tvm": 5.0, "slow": 1.2},
        remembered=("tvm",),
    )
    lazy_costs(func, model, Search(lambda given: problem(func, given)))
    assert any(key.startswith("slow") for key in model.asked)


def test_bounds_prove_nothing_after_one_has_failed() -> None:
    """A kernel of TVM costs a fifth of its bound, so what the bounds of the library say may be as wrong."""
    func = annotated()
    model = Bounded({"slow": 90.0, "tvm": 1.0}, least={"tvm": 5.0, "slow": 50.0})
    with only_backends(SLOW), Target("llvm"):
        costed = EstimateNeededCosts(model)(IRModule({"main": func}))
        plan = PLAN.read(SearchPartition()(costed)["main"])
    assert not any(key.startswith("slow") for key in model.asked)
    costs = COSTS.read(costed["main"])
    late = [cost for key, cost in costs.by_key.items() if key.startswith("slow")]
    assert costs.failed and all(cost.is_open and cost.bound == 0.0 for cost in late)
    assert late[0].reason.startswith("not measured: it costs probably at least ")
    assert not plan.proved and checked_for(costed["main"], plan).holds
    assert any("distinct kernels cost less than their lower bounds" in remark for remark in plan.remarks)


def test_bounds_of_all_functions_are_of_one_machine() -> None:
    """A bound that fails in one function is no proof in another, which was searched before."""
    sure = Cost(None, reason="not measured", origin="formula", bound=2.0)
    func = annotated()
    keys = {candidate.id: "k" for candidate in CANDIDATES.read(func)}
    one = COSTS.write(func, Costs({"k": sure}, keys))
    other = COSTS.write(func, Costs({"k": sure}, keys, failed=("a",)))
    mod = _with_bounds_that_hold(IRModule({"one": one, "other": other}))
    assert [COSTS.read(mod[name]).by_key["k"].bound for name in ("one", "other")] == [0.0, 0.0]
    assert _with_bounds_that_hold(before := IRModule({"one": one})).same_as(before)


def test_a_cost_that_another_function_has_asked_for_is_no_open_one() -> None:
    """The next compile knows it from the start, and has to find the same plan."""
    func = annotated()
    keys = {candidate.id: "k" for candidate in CANDIDATES.read(func)}
    late = Cost(None, reason="not measured", origin="formula", bound=1.0)
    one = COSTS.write(func, Costs({"k": late}, keys))
    other = COSTS.write(func, Costs({"k": Cost(2.0, 2.0, 2.0)}, keys))
    mod = _with_costs_of_others(IRModule({"one": one, "other": other}))
    assert [COSTS.read(mod[name]).by_key["k"].seconds for name in ("one", "other")] == [2.0, 2.0]
    assert _with_costs_of_others(before := IRModule({"one": one})).same_as(before)


def test_what_was_measured_again_replaces_a_cost_of_before() -> None:
    doubtful, again = Cost(3.0, is_doubtful=True), Cost(2.0)
    refusal, late = Cost(None, reason="broken"), Cost(None, reason="not measured", bound=1.0)
    assert _latest(doubtful, again) is again and _latest(doubtful, refusal) is refusal
    assert _latest(doubtful, late) is doubtful and _latest(late, again) is again
