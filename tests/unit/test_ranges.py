"""Plans for ranges of sizes: weighed over samples, with variants where they pay, and a certificate of the regret."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R

from unity_collage.annotations import CANDIDATES, COSTS, PLAN
from unity_collage.cli.check_plan import findings
from unity_collage.compiler import explain
from unity_collage.cost import asking
from unity_collage.cost.model import CostModel, Workload
from unity_collage.errors import CollageError, ModelError
from unity_collage.feedback.builder import finished
from unity_collage.feedback.claims import with_claim
from unity_collage.feedback.records import choice_of, described
from unity_collage.graph.variants import UpTo, called_by_switch, range_of, up_to_of
from unity_collage.inspection.given_plan import compare_plan
from unity_collage.inspection.stated_model import of_model
from unity_collage.inspection.statement import of_text
from unity_collage.lowering.build import build
from unity_collage.passes import (
    AnnotateCandidates,
    ChooseVariants,
    EstimateCosts,
    FuseRemaining,
    MakeVariants,
    OffloadBYOC,
    SearchPartition,
    SplitSizes,
    WeighSizes,
)
from unity_collage.passes.weigh_sizes import MOST, spread
from unity_collage.pipeline import Pipeline
from unity_collage.plan.costs import OUT_OF_TIME, UNKNOWN, Cost
from unity_collage.plan.encoding import encode
from unity_collage.plan.plan import Plan
from unity_collage.plan.ranges import RangeClaim, SizeClaim
from unity_collage.plan.weighed import least_seconds
from unity_collage.report import plan_summary
from unity_collage.sizes.samples import combined
from unity_collage.sizes.weights import weighted
from unity_collage.target import host_target

W = relax.const(np.ones((4, 4), np.float32))


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor(("n", "m", 4), "float32")) -> R.Tensor(("n", "m", 4), "float32"):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.exp(a)
            R.output(b)
        return b


Seconds = Callable[[str, int, bool], float]
"""The cost of a kernel by its label, the first extent of its operand, and whether its sizes are free."""


@dataclass(frozen=True)
class BySize(CostModel):
    """Costs that depend on the size of the first operand."""

    seconds: Seconds
    late: frozenset[int] = frozenset()
    """Sizes at which nothing with free sizes is measured: there is no time for it."""
    asked: list[tuple[str, int, bool]] = field(default_factory=list[tuple[str, int, bool]])

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        return {workload.key: self._cost(workload) for workload in workloads}

    def _cost(self, workload: Workload) -> Cost:
        size = int(workload.func.params[0].ty.shape.values[0])
        is_free = "collage.compiled_as" in workload.func.attrs
        self.asked.append((workload.label, size, is_free))
        if is_free and size in self.late:
            return Cost(None, reason=f"{OUT_OF_TIME}1 s was spent", origin=UNKNOWN)
        seconds = self.seconds(workload.label, size, is_free)
        return Cost(seconds, 0.9 * seconds, 1.1 * seconds, 3, "formula")


def fused_pays_below_16(label: str, size: int, is_free: bool) -> float:
    """One kernel of both operators is cheaper for few rows, two kernels for many."""
    base = 1e-6 * size
    fused = label == "relu+exp"
    seconds = base * ((1.0 if size < 16 else 4.0) if fused else 0.75)
    return seconds * (1.1 if is_free else 1.0)


def passes(
    samples: Mapping[str, Any], model: CostModel, *more: tvm.transform.Pass
) -> list[tvm.transform.Pass]:
    return [
        MakeVariants(samples),
        AnnotateCandidates(("tvm",)),
        EstimateCosts(model),
        WeighSizes(model),
        *more,
    ]


def costed(samples: Mapping[str, Any], model: CostModel, mod: IRModule = Model) -> IRModule:
    with host_target():
        return tvm.transform.Sequential(passes(samples, model))(mod)


def searched(
    samples: Mapping[str, Any], model: CostModel, mod: IRModule = Model, least_saving: float = 0.02
) -> tuple[IRModule, IRModule]:
    """The module before the search, and the module after the variants were chosen."""
    before = costed(samples, model, mod)
    with host_target():
        after = ChooseVariants(least_saving, math.inf)(SearchPartition()(before))
    return before, after


def labels(plan: Plan) -> list[str]:
    return [kernel.label for kernel in plan.kernels]


def claim_of(mod: IRModule) -> RangeClaim:
    found = PLAN.read(mod["main"]).range
    assert found is not None
    return found


def at(mod: IRModule, **sizes: int) -> SizeClaim:
    return next(each for each in claim_of(mod).sizes if dict(each.sizes) == sizes)


SAMPLES = {"n": [2, 8, 64], "m": [2]}


@cache
def standard() -> tuple[IRModule, IRModule]:
    """The module before the search, and after the variants were chosen, in which two rows share the common plan."""
    return searched(SAMPLES, BySize(fused_pays_below_16))


@pytest.mark.parametrize(
    ("samples", "weights"),
    [
        ({"n": [1, 4]}, [0.5, 0.5]),
        ({"n": {1: 3, 4: 1}}, [0.75, 0.25]),
        ({"n": {1: 0.5, 4: 0.5}, "m": {2: 1, 3: 3}}, [0.125, 0.375, 0.125, 0.375]),
        ({"n": {1: 0.9, 4: 0.1}, "m": [2]}, [0.9, 0.1]),
    ],
)
def test_weights_of_samples_are_parts_of_all_calls(samples: Any, weights: list[float]) -> None:
    assert [weight for _, weight in weighted(combined(samples), samples)] == pytest.approx(weights)


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), "often", None])
def test_a_weight_is_a_positive_number(weight: Any) -> None:
    with pytest.raises(ModelError, match="of n 4 is not a positive number"):
        MakeVariants({"n": {1: 1.0, 4: weight}})(Model)


def test_both_the_switch_and_the_function_for_all_sizes_know_the_range() -> None:
    mod = MakeVariants({"n": {4: 0.7, 8: 0.3}, "m": [2]})(Model)
    found = [({"n": 4, "m": 2}, 0.7), ({"n": 8, "m": 2}, 0.3)]
    assert range_of(mod["main"]) == found
    sizes, weights = zip(*range_of(mod["main_any_size"]), strict=True)
    assert sizes == ({"n": 4, "m": 2}, {"n": 5, "m": 2}, {"n": 8, "m": 2}), "and one between them"
    assert weights == pytest.approx((0.35, 0.5, 0.15)), "half of the weight is for sizes without a variant"
    assert not range_of(mod["main_n_4_m_2"])


def test_costs_of_all_sizes_are_weighted_sums_of_those_at_the_samples() -> None:
    costs = COSTS.read(
        costed({"n": {4: 0.75, 64: 0.25}, "m": [2]}, BySize(fused_pays_below_16))["main_any_size"]
    )
    assert [(sample.sizes, sample.weight) for sample in costs.samples] == [
        ({"n": 4, "m": 2}, 0.375),
        ({"n": 15, "m": 2}, 0.5),
        ({"n": 64, "m": 2}, 0.125),
    ]
    for key, cost in costs.by_key.items():
        four, fifteen, many = (sample.by_key[key] for sample in costs.samples)
        if cost.seconds is None:  # it cannot be in the plan
            least = 0.375 * least_seconds(four) + 0.5 * least_seconds(fifteen) + 0.125 * least_seconds(many)
            assert cost.bound == pytest.approx(least)
            continue
        assert cost.seconds == pytest.approx(
            0.375 * four.seconds + 0.5 * fifteen.seconds + 0.125 * many.seconds
        )
        assert cost.low == pytest.approx(0.9 * cost.seconds) and cost.high == pytest.approx(
            1.1 * cost.seconds
        )


class Finishing(BySize):
    """A model whose time for new costs is over, but for what is left for the last pass."""

    is_last = False

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        if any("collage.compiled_as" in each.func.attrs for each in workloads) and not self.is_last:
            return dict.fromkeys((each.key for each in workloads), Cost(None, reason="late", origin=UNKNOWN))
        return super().costs(workloads)

    @contextmanager
    def finishing(self) -> Iterator[None]:
        object.__setattr__(self, "is_last", True)
        yield
        object.__setattr__(self, "is_last", False)


def test_weighing_has_the_time_that_other_passes_leave() -> None:
    model = BySize(fused_pays_below_16)
    with host_target():
        before = tvm.transform.Sequential(passes(SAMPLES, model)[:-1])(Model)
        weighed = WeighSizes(Finishing(fused_pays_below_16))(before)
    assert len(COSTS.read(weighed["main_any_size"]).samples) == 5


def test_sizes_without_a_variant_are_weighed_first() -> None:
    model = BySize(fused_pays_below_16)
    costed(SAMPLES, model)
    sizes = [size for label, size, is_free in model.asked if is_free and label == "relu+exp"]
    assert sizes == [8, 3, 23, 2, 64], "at 8 all kernels are measured, and this one is its plan"


def test_the_plan_for_all_sizes_is_not_that_of_the_middle_one() -> None:
    model = BySize(fused_pays_below_16)
    before, _ = standard()
    with host_target():
        uniform = PLAN.read(SearchPartition()(before)["main_any_size"])
        small = {"n": {2: 0.6, 8: 0.39, 16: 0.01}, "m": [2]}
        mostly_small = PLAN.read(SearchPartition()(costed(small, model))["main_any_size"])
    assert labels(uniform) == ["relu", "exp"], "64 rows cost the most, and two kernels are better there"
    assert labels(mostly_small) == ["relu+exp"]
    assert [each.sizes["n"] for each in uniform.at_samples] == [2, 3, 8, 23, 64]
    assert [1e6 * each.seconds for each in uniform.at_samples] == pytest.approx(
        [3.3, 4.95, 13.2, 37.95, 105.6]
    )
    assert uniform.seconds == pytest.approx((3.3e-6 + 13.2e-6 + 105.6e-6) / 6 + (4.95e-6 + 37.95e-6) / 4)


def test_a_variant_stays_where_it_saves_enough_and_others_share_a_plan() -> None:
    _, after = standard()
    plan = PLAN.read(after["main"])
    assert {name: dict(sizes) for name, sizes in plan.variants.items()} == {
        "main_n_8_m_2": {"n": 8, "m": 2},
        "main_n_64_m_2": {"n": 64, "m": 2},
    }
    names = {gvar.name_hint for gvar in after.get_global_vars()}
    assert "main_n_2_m_2" not in names and {"main_any_size", "main_n_64_m_2"} < names
    assert at(after, n=2, m=2).runs == "main_any_size" and at(after, n=64, m=2).runs == "main_n_64_m_2"
    assert "plans of their own for n 8, m 2; n 64, m 2; other sizes run main_any_size" in plan.remarks
    assert any(
        each.startswith("n 2, m 2 shares main_any_size: a plan of its own would save")
        for each in plan.remarks
    )


def test_the_regret_is_the_difference_to_the_best_static_plan() -> None:
    _, after = standard()
    found = at(after, n=2, m=2)
    assert found.seconds == pytest.approx(3.3e-6) and found.best_seconds == pytest.approx(2e-6)
    assert found.regret == pytest.approx(1.3e-6) and found.proved
    assert at(after, n=64, m=2).regret == pytest.approx(0.0)
    claim = claim_of(after)
    assert claim.greatest_regret == found.regret
    assert claim.expected_seconds == pytest.approx((3.3e-6 + 8e-6 + 96e-6) / 3)
    text = "the greatest regret is 0.0013 ms (65.0% of the best static plan, at n 2, m 2)"
    assert any(remark.startswith(text) for remark in PLAN.read(after["main"]).remarks)


def test_variants_with_equal_costs_are_one_plan() -> None:
    _, after = searched(SAMPLES, BySize(lambda _label, size, _free: 1e-6 * size))
    assert not PLAN.read(after["main"]).variants
    assert {each.runs for each in claim_of(after).sizes} == {"main_any_size"}
    assert not any(gvar.name_hint.startswith("main_n_") for gvar in after.get_global_vars())
    assert tvm.script.from_source(after.script(show_meta=True))["main"].attrs


@cache
def split() -> tuple[IRModule, IRModule]:
    """The module before the search, and after variants were chosen, with two plans for sizes without a variant."""
    samples = {"n": [2, 8, 64, 128], "m": [2]}
    with host_target():
        before = SplitSizes()(costed(samples, BySize(fused_pays_below_16)))
        return before, ChooseVariants(0.5, math.inf)(SearchPartition()(before))


def test_few_rows_have_a_plan_of_their_own_where_one_plan_costs_more() -> None:
    before, after = split()
    limit = up_to_of(before["main_smaller_sizes"])
    assert limit == UpTo(("n", "m"), 45), "between 8 * 2 and 64 * 2"
    assert [sizes["n"] for sizes, _ in range_of(before["main_smaller_sizes"])] == [2, 3, 8]
    assert [sizes["n"] for sizes, _ in range_of(before["main_any_size"])] == [64, 91, 128]
    assert [weight for _, weight in range_of(before["main_any_size"])] == pytest.approx([0.25, 0.5, 0.25])
    plans = PLAN.by_function(after)
    assert labels(plans["main_smaller_sizes"]) == ["relu+exp"]
    assert labels(plans["main_any_size"]) == ["relu", "exp"]
    assert [each.runs for each in claim_of(after).sizes] == ["main_smaller_sizes"] * 2 + ["main_any_size"] * 2
    assert claim_of(after).between == ({"n": 3, "m": 2}, {"n": 91, "m": 2})
    assert plans["main"].remarks[0] == "sizes with n * m <= 45 main_smaller_sizes, otherwise main_any_size"
    again = tvm.script.from_source(after.script(show_meta=True))
    assert called_by_switch(again["main"]) == ("main_smaller_sizes", "main_any_size")


def test_two_plans_for_other_sizes_are_right_on_both_sides_of_the_limit() -> None:
    _, after = split()
    with host_target():
        vm = relax.VirtualMachine(build(FuseRemaining()(OffloadBYOC()(after)), host_target()), tvm.cpu())
    for rows in (0, 1, 22, 23, 64, 200):
        x = np.random.default_rng(rows).standard_normal((rows, 2, 4), dtype=np.float32)
        np.testing.assert_allclose(
            vm["main"](tvm.runtime.tensor(x)).numpy(), np.exp(np.maximum(x, 0)), rtol=1e-5
        )


def fused_pays_outside(label: str, size: int, is_free: bool) -> float:
    """Two kernels are cheaper for a medium number of rows only."""
    seconds = 1e-6 * size
    if (label == "relu+exp") == (16 <= size < 256):
        seconds *= 4
    return seconds * (1.1 if is_free else 1.0)


def test_medium_sizes_have_a_plan_of_their_own_where_two_cost_much_more(tmp_path: Path) -> None:
    samples = {"n": [2, 8, 64, 128, 512, 1024], "m": [2]}
    with host_target():
        before = SplitSizes()(costed(samples, BySize(fused_pays_outside)))
        after = ChooseVariants(0.5, math.inf)(SearchPartition()(before))
        vm = relax.VirtualMachine(build(FuseRemaining()(OffloadBYOC()(after)), host_target()), tvm.cpu())
    plans = PLAN.by_function(after)
    parts = ["main_smaller_sizes", "main_medium_sizes", "main_any_size"]
    assert [labels(plans[name]) for name in parts] == [["relu+exp"], ["relu", "exp"], ["relu+exp"]]
    assert [each.sizes["n"] for name in parts for each in plans[name].at_samples] == [
        *(2, 3, 8),
        *(64, 128),
        *(512, 725, 1024),
    ]
    assert plans["main"].remarks[0] == (
        "sizes with n * m <= 45 main_smaller_sizes, otherwise with n * m <= 512 main_medium_sizes, "
        "otherwise main_any_size"
    )
    assert [each.runs for each in claim_of(after).sizes] == [name for name in parts for _ in range(2)]
    assert verdicts(reported(after, tmp_path))["main"].startswith("6 sizes, ")
    for rows in (0, 22, 23, 256, 257, 2000):
        x = np.random.default_rng(rows).standard_normal((rows, 2, 4), dtype=np.float32)
        out = vm["main"](tvm.runtime.tensor(x)).numpy()
        np.testing.assert_allclose(out, np.exp(np.maximum(x, 0)), rtol=1e-5)


def test_the_certificate_of_two_plans_for_other_sizes_is_checked(tmp_path: Path) -> None:
    before, after = split()
    (tmp_path / "before.py").write_text(before.script(show_meta=True))
    for annotated in (None, str(tmp_path / "before.py")):
        found = verdicts(reported(after, tmp_path), annotated)
        assert found["main"].startswith("4 sizes, ")
        assert "weighed over 3 sizes" in found["main_smaller_sizes"]

    def without_small(plans: dict[str, Plan]) -> None:
        plans["main_smaller_sizes"] = replace(plans["main_smaller_sizes"], at_samples=())

    assert (
        "no plan says what main_smaller_sizes costs there"
        in verdicts(reported(after, tmp_path, without_small))["main"]
    )


def test_a_second_plan_is_checked_and_compared_with_the_model(tmp_path: Path) -> None:
    samples = {"n": [2, 8, 64, 128], "m": [2]}
    _, after = split()
    plans = PLAN.by_function(after)
    pipeline = Pipeline(backends=("tvm",), model=BySize(fused_pays_below_16))
    stated = of_model(Model, "m.onnx", pipeline, plans, shapes=samples)
    text = stated.checked("main_smaller_sizes", plans["main_smaller_sizes"]).text
    assert text.endswith("; its candidates are those of the model")
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"main_smaller_sizes": encode(plans["main_smaller_sizes"])}))
    found = compare_plan(Model, path, pipeline, shapes=samples)["main_smaller_sizes"]
    assert found.ours == pytest.approx(found.given)
    equal = replace(pipeline, model=BySize(lambda _label, size, _free: 1e-6 * size))
    with pytest.raises(CollageError, match="about as good here, so there is no main_smaller_sizes"):
        compare_plan(Model, path, equal, shapes=samples)


def test_a_kept_choice_is_of_the_same_functions() -> None:
    before, _ = split()
    samples = {"n": [2, 8, 64, 128], "m": [2]}
    one = costed(samples, BySize(fused_pays_below_16))
    choices = dict.fromkeys(CANDIDATES.by_function(before), (0,))
    kept = described(before, choices)
    assert choice_of(before, kept) == choices
    assert choice_of(one, kept) is None
    assert (
        choice_of(before, {name: each for name, each in kept.items() if name != "main_smaller_sizes"}) is None
    )


def test_one_plan_is_enough_where_a_second_saves_little() -> None:
    samples = {"n": [2, 8, 64, 128], "m": [2]}
    before = costed(samples, BySize(lambda _label, size, _free: 1e-6 * size))
    assert SplitSizes()(before).same_as(before)
    few = costed({"n": [2, 64], "m": [2]}, BySize(fused_pays_below_16))
    assert SplitSizes()(few).same_as(few), "two samples, which may have variants"


def test_kernels_that_cost_nothing_are_compared_too() -> None:
    def free_below_16(label: str, size: int, is_free: bool) -> float:
        return 0.0 if label == "relu+exp" and size < 16 else fused_pays_below_16(label, size, is_free)

    mod = SplitSizes()(costed({"n": [2, 8, 64, 128], "m": [2]}, BySize(free_below_16)))
    assert up_to_of(mod["main_smaller_sizes"]) == UpTo(("n", "m"), 45)


def test_the_switch_says_which_functions_run_before_variants_are_chosen() -> None:
    """Another program than that of the search has all variants: then none are chosen."""
    before, _ = split()
    (remark,) = PLAN.read(before["main"]).remarks
    assert remark == (
        "plans of their own for n 2, m 2; n 8, m 2; n 64, m 2; n 128, m 2; other sizes run with n * m <= 45 "
        "main_smaller_sizes, otherwise main_any_size"
    )


def test_a_size_that_may_lose_no_more_keeps_its_variant() -> None:
    before, _ = standard()
    with host_target():
        after = ChooseVariants()(SearchPartition()(before))
    assert len(PLAN.read(after["main"]).variants) == 3


def test_a_sample_without_time_is_not_weighed_and_named() -> None:
    before, after = searched(SAMPLES, BySize(fused_pays_below_16, late=frozenset({64})))
    assert [sample.sizes["n"] for sample in COSTS.read(before["main_any_size"]).samples] == [2, 3, 8, 23]
    told = PLAN.read(after["main_any_size"]).remarks
    assert "not weighed, since there was no time to measure there: n 64, m 2" in told
    plan = PLAN.read(after["main"])
    assert "main_n_64_m_2" in plan.variants, "its costs are not known, so it stays"
    assert "n 64, m 2 keeps its plan: it was not weighed" in plan.remarks


@pytest.mark.parametrize("late", [{64}, {2, 64}, {2, 8, 64}])
def test_a_sample_without_time_has_a_claim_about_the_plan_that_it_keeps(
    late: set[int], tmp_path: Path
) -> None:
    _, after = searched(SAMPLES, BySize(fused_pays_below_16, late=frozenset(late)))
    found = at(after, n=64, m=2)
    assert found.runs == found.variant == "main_n_64_m_2" and found.regret == pytest.approx(0.0)
    assert found.seconds == pytest.approx(96e-6) and found.proved
    assert [each.weight for each in claim_of(after).sizes] == pytest.approx([1 / 3] * 3)
    assert verdicts(reported(after, tmp_path))["main"].startswith("3 sizes, ")


def test_without_costs_at_the_samples_every_size_keeps_its_plan() -> None:
    before, after = searched(SAMPLES, BySize(fused_pays_below_16, late=frozenset({2, 8, 64})))
    assert not COSTS.read(before["main_any_size"]).samples
    plan = PLAN.read(after["main"])
    assert len(plan.variants) == 3
    assert {each.runs for each in claim_of(after).sizes} == set(plan.variants)
    assert (
        "each size keeps its plan: the costs of main_any_size at the sample sizes are not known"
        in plan.remarks
    )


@dataclass(frozen=True)
class Late(BySize):
    """A model whose time is over before kernels with these static sizes."""

    static: frozenset[int] = frozenset()

    def _cost(self, workload: Workload) -> Cost:
        found = super()._cost(workload)
        _, size, is_free = self.asked[-1]
        if not is_free and size in self.static:
            return Cost(None, reason=f"{OUT_OF_TIME}1 s was spent", origin=UNKNOWN)
        return found


def test_a_variant_without_measured_kernels_gives_way_to_the_plan_for_all_sizes(tmp_path: Path) -> None:
    _, after = searched(SAMPLES, Late(fused_pays_below_16, static=frozenset({64})))
    plan, claim = PLAN.read(after["main"]), claim_of(after)
    assert "main_n_64_m_2" not in plan.variants and "main_n_8_m_2" in plan.variants
    assert {each.sizes["n"] for each in claim.sizes} == {2, 8} and {"n": 64, "m": 2} in claim.between
    assert "n 64, m 2 has no plan of its own: there was no time to measure any of its kernels" in plan.remarks
    assert verdicts(reported(after, tmp_path))["main"].startswith("2 sizes, ")


def test_variants_by_rule_stay_where_nothing_is_measured() -> None:
    model = Late(fused_pays_below_16, late=frozenset({2, 8, 64}), static=frozenset({2, 8, 64}))
    _, after = searched(SAMPLES, model)
    assert len(PLAN.read(after["main"]).variants) == 3


def test_a_plan_without_a_cost_keeps_its_size_and_is_said_to_have_none() -> None:
    before, _ = standard()
    with host_target():
        found = SearchPartition()(before)
        gvar, func = found.get_global_var("main_n_8_m_2"), found["main_n_8_m_2"]
        assert isinstance(func, relax.Function)
        given = PLAN.write(func, replace(PLAN.read(func), certificate=None, proved=False))
        after = ChooseVariants()(IRModule({**dict(found.functions_items()), gvar: given}))
    remarks = PLAN.read(after["main"]).remarks
    assert "n 8, m 2 keeps its plan: its cost is not known" in remarks
    assert not any(remark.endswith("it was not weighed") for remark in remarks)


def test_costs_by_device_stay_as_they_are_given() -> None:
    """No cost model knows what copies between devices cost."""
    model, copies = BySize(fused_pays_below_16), {"llvm:0>llvm:1": ((1, 1e-6),)}
    with host_target():
        found = tvm.transform.Sequential(passes(SAMPLES, model)[:-1])(Model)
        gvar, func = found.get_global_var("main_any_size"), found["main_any_size"]
        assert isinstance(func, relax.Function)
        given = COSTS.write(func, replace(COSTS.read(func), copies=copies))
        weighed = WeighSizes(model)(IRModule({**dict(found.functions_items()), gvar: given}))
    costs = COSTS.read(weighed["main_any_size"])
    assert costs.copies == copies and not costs.samples
    assert any("its costs by device are given" in reason for reason in costs.skipped)


def test_workloads_of_many_variants_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = BySize(fused_pays_below_16)
    with host_target():
        mod = AnnotateCandidates(("tvm",))(MakeVariants({"n": list(range(1, 17)), "m": [2]})(Model))
        functions = [func for func in mod.functions.values() if CANDIDATES.on(func)]
        first = [asking.workloads(func, model, mod) for func in functions]
        assert len(functions) == 17 and all(first)
        monkeypatch.setattr(asking, "kernel_digest", None)
        assert [asking.workloads(func, model, mod) for func in functions] == first
        AnnotateCandidates(("tvm",))(Model)
        with pytest.raises(TypeError, match="'NoneType' object is not callable"):
            asking.workloads(functions[0], model, mod)


def test_no_kernel_is_asked_for_twice() -> None:
    model = BySize(fused_pays_below_16)
    costed({"n": [4, 64], "m": [2]}, model)
    assert len(model.asked) == len(set(model.asked))


@cache
def with_a_given_winner() -> IRModule:
    """A final module of one kernel for each operator, with the claim of :func:`standard`'s search."""
    before, after = standard()
    choice = {
        name: tuple(c.id for c in candidates if len(c.indexes) == 1)
        for name, candidates in CANDIDATES.by_function(before).items()
    }
    return with_claim(finished(before, choice, host_target(), "greedy"), after)


def test_a_given_plan_that_won_is_compared_with_the_static_plans(tmp_path: Path) -> None:
    given = with_a_given_winner()
    claim = claim_of(given)
    assert [each.sizes["n"] for each in claim.sizes] == [2, 8, 64]
    assert all(each.runs == each.variant for each in claim.sizes)
    assert [each.seconds for each in claim.sizes] == pytest.approx([3e-6, 12e-6, 96e-6])
    assert [each.regret for each in claim.sizes] == pytest.approx([1e-6, 4e-6, 0.0])
    assert any(
        remark.startswith("the greatest regret is 0.004 ms") for remark in PLAN.read(given["main"]).remarks
    )
    found = verdicts(reported(given, tmp_path))
    assert found["main"].startswith("3 sizes, 0.037 ms expected")
    assert found["main_n_8_m_2"] == "given, not searched: it claims no bound"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"regret": 0.0}, "the regret is 1.*e-06 s, not 0.0 s"),
        ({"best_seconds": 3e-6, "regret": 0.0}, "the static plan costs 2.*e-06 s, not 3e-06 s"),
        ({"certificate": None}, "there is no certificate of the static plan"),
    ],
)
def test_forged_claims_of_given_plans_are_refused(changes: Any, reason: str, tmp_path: Path) -> None:
    found = verdicts(reported(with_a_given_winner(), tmp_path, of_first(**changes)))["main"]
    with pytest.raises(AssertionError, match=f"does not hold: at n 2, m 2: {reason}"):
        raise AssertionError(found)


def test_a_given_plan_costs_what_its_kernels_cost(tmp_path: Path) -> None:
    def cheaper(plans: dict[str, Plan]) -> None:
        plans["main_n_2_m_2"] = replace(plans["main_n_2_m_2"], seconds=2e-6)
        of_first(seconds=2e-6, regret=0.0)(plans)

    found = verdicts(reported(with_a_given_winner(), tmp_path, cheaper))["main"]
    assert found.startswith("does not hold: at n 2, m 2: main_n_2_m_2: its kernels cost 3"), found


def reported(mod: IRModule, path: Path, change: Callable[[dict[str, Plan]], None] = lambda _: None) -> str:
    plans = PLAN.by_function(mod)
    change(plans)
    file = path / "plans.json"
    file.write_text(json.dumps({name: encode(plan) for name, plan in plans.items()}))
    return str(file)


def verdicts(path: str, annotated: str | None = None) -> dict[str, str]:
    stated = None if annotated is None else of_text(annotated)
    return {name: finding.text for name, finding in findings(path, stated)}


def test_the_certificate_of_a_range_is_checked_with_and_without_annotations(tmp_path: Path) -> None:
    before, after = standard()
    (tmp_path / "before.py").write_text(before.script(show_meta=True))
    for annotated in (None, str(tmp_path / "before.py")):
        found = verdicts(reported(after, tmp_path), annotated)
        regret = "the greatest regret is 0.0013 ms (65.0% of the best static plan, at n 2, m 2)"
        proved = "proved: each static plan is the cheapest of its candidates"
        assert found["main"] == f"3 sizes, 0.03577 ms expected; {regret}; {proved}"
        assert "weighed over 5 sizes" in found["main_any_size"]


def of_first(**changes: Any) -> Callable[[dict[str, Plan]], None]:
    """Changes the claim about the first sample, which shares the plan for all sizes."""

    def change(plans: dict[str, Plan]) -> None:
        claim = plans["main"].range
        assert claim is not None
        first, *others = claim.sizes
        plans["main"] = replace(
            plans["main"], range=replace(claim, sizes=(replace(first, **changes), *others))
        )

    return change


def of_claim(**changes: Any) -> Callable[[dict[str, Plan]], None]:
    def change(plans: dict[str, Plan]) -> None:
        assert plans["main"].range is not None
        plans["main"] = replace(plans["main"], range=replace(plans["main"].range, **changes))

    return change


def also_between(size: int) -> Callable[[dict[str, Plan]], None]:
    def change(plans: dict[str, Plan]) -> None:
        claim = plans["main"].range
        assert claim is not None
        between = (*claim.between, {"n": size, "m": 2})
        plans["main"] = replace(plans["main"], range=replace(claim, between=between))

    return change


def of_main(change: Callable[[dict[str, Plan]], Plan]) -> Callable[[dict[str, Plan]], None]:
    return lambda plans: plans.update(main=change(plans))


def without_first(plans: dict[str, Plan]) -> None:
    """Hides the sample with the greatest regret."""
    claim = plans["main"].range
    assert claim is not None
    others = [replace(each, weight=0.5) for each in claim.sizes[1:]]
    expected = sum(0.5 * each.seconds for each in others)
    hidden = replace(claim, sizes=tuple(others), expected_seconds=expected, greatest_regret=0.0)
    plans["main"] = replace(plans["main"], range=hidden)


def more_likely(plans: dict[str, Plan]) -> None:
    """Weighs the samples differently from the plan for all sizes."""
    claim = plans["main"].range
    assert claim is not None
    sizes = [replace(each, weight=w) for each, w in zip(claim.sizes, (0.01, 0.98, 0.01), strict=True)]
    expected = sum(each.weight * each.seconds for each in sizes)
    plans["main"] = replace(
        plans["main"], range=replace(claim, sizes=tuple(sizes), expected_seconds=expected)
    )


def without_last(plans: dict[str, Plan]) -> None:
    """Hides a sample at which the plan for all sizes was not weighed."""
    claim = plans["main"].range
    assert claim is not None
    others = [replace(each, weight=0.5) for each in claim.sizes[:-1]]
    expected = sum(0.5 * each.seconds for each in others)
    hidden = replace(claim, sizes=tuple(others), expected_seconds=expected)
    plans["main"] = replace(plans["main"], range=hidden)


def with_last_twice(plans: dict[str, Plan]) -> None:
    """Claims a sample that there is not, for a variant that has another."""
    claim = plans["main"].range
    assert claim is not None
    sizes = [replace(each, weight=each.weight * 0.75) for each in claim.sizes]
    sizes.append(replace(sizes[-1], sizes={**sizes[-1].sizes, "k": 1}))
    expected = sum(each.weight * each.seconds for each in sizes)
    claimed = replace(claim, sizes=tuple(sizes), expected_seconds=expected)
    plans["main"] = replace(plans["main"], range=claimed)


def test_a_sample_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    _, after = searched(SAMPLES, BySize(fused_pays_below_16, late=frozenset({64})))
    found = verdicts(reported(after, tmp_path, with_last_twice))["main"]
    assert found == "does not hold: it names main_n_64_m_2 twice"


def test_a_sample_that_was_not_weighed_is_not_left_out(tmp_path: Path) -> None:
    _, after = searched(SAMPLES, BySize(fused_pays_below_16, late=frozenset({64})))
    found = verdicts(reported(after, tmp_path, without_last))["main"]
    assert found == "does not hold: it does not say what runs at n 64, m 2"


def of_shared(seconds: float) -> Callable[[dict[str, Plan]], None]:
    def change(plans: dict[str, Plan]) -> None:
        shared = plans["main_any_size"]
        first, *others = shared.at_samples
        plans["main_any_size"] = replace(shared, at_samples=(replace(first, seconds=seconds), *others))

    return change


@pytest.mark.parametrize(
    ("change", "function", "reason"),
    [
        (of_first(regret=0.0), "main", "at n 2, m 2: the regret is 1.3.*e-06 s, not 0.0 s"),
        (of_first(seconds=2e-6, regret=0.0), "main", "main_any_size costs 3.3.*e-06 s there, not 2e-06 s"),
        (of_first(best_seconds=3.3e-6, regret=0.0), "main", "the static plan costs 2.*e-06 s, not 3.3e-06 s"),
        (of_first(proved=False), "main", "said to be not proved, and its certificate says otherwise"),
        (of_first(certificate=None), "main", "there is no certificate of the static plan"),
        (of_first(weight=0.5), "main", "the weights of the samples add up to 1.16"),
        (of_first(runs="main_n_8_m_2"), "main", "no plan says what main_n_8_m_2 costs there"),
        (of_claim(greatest_regret=0.0), "main", "the greatest regret is 1.3.*e-06 s, not 0.0 s"),
        (of_claim(expected_seconds=1e-6), "main", "the expected cost is .* s, not 1e-06 s"),
        (of_claim(sizes=()), "main", "it claims nothing about any size"),
        (of_first(sizes={}), "main", "it names a sample twice, or one without sizes"),
        (of_claim(between=()), "main", "it does not say what runs at n 3, m 2"),
        (also_between(4), "main", "no plan is weighed at n 4, m 2"),
        (also_between(8), "main", "n 8, m 2 is not between the samples"),
        (without_first, "main", "it does not say what runs at n 2, m 2"),
        (more_likely, "main", "the weight of n 2, m 2 is not that of the plan for all sizes"),
        (of_first(variant="main_n_8_m_2"), "main", "main_n_8_m_2 is for other sizes"),
        (of_shared(2e-6), "main_any_size", "at n 2, m 2: it costs 3.3.*e-06 s, not 2e-06 s"),
        (of_shared(2e-6), "main", "the plan of main_any_size does not hold"),
        (of_main(lambda p: replace(p["main"], proved=True)), "main", "it does not carry the problem"),
        (
            of_main(lambda p: replace(p["main"], kernels=p["main_any_size"].kernels)),
            "main",
            "it chooses between plans, and has kernels or a proof of its own",
        ),
        (
            of_main(lambda p: replace(p["main"], variants={name: {"n": 4} for name in p["main"].variants})),
            "main",
            "main_n_.* is not for n 4",
        ),
    ],
)
def test_forged_claims_are_refused(
    change: Callable[[dict[str, Plan]], None], function: str, reason: str, tmp_path: Path
) -> None:
    _, after = standard()
    found = verdicts(reported(after, tmp_path, change))
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(found[function])
    assert found[function].startswith("does not hold: ")


def test_costs_of_one_sample_that_are_not_those_of_the_annotations_are_refused(tmp_path: Path) -> None:
    before, _ = standard()
    _, cheaper = searched(SAMPLES, BySize(lambda *of: 0.5 * fused_pays_below_16(*of)))
    (tmp_path / "before.py").write_text(before.script(show_meta=True))
    found = verdicts(reported(cheaper, tmp_path), str(tmp_path / "before.py"))
    assert "the annotations state another problem" in found["main_any_size"]
    assert "at n 2, m 2: the static plan: the annotations state another problem" in found["main"]


def test_the_summary_shows_what_runs_at_each_size() -> None:
    from rich.console import Console

    _, after = standard()
    console = Console(width=120)
    with console.capture() as captured:
        for name, plan in PLAN.by_function(after).items():
            console.print(plan_summary(name, plan))
    text = " ".join(captured.get().split())
    assert "main: by the sizes of its inputs it runs one of 2 plans" in text
    assert "n 2, m 2 main_any_size 33% 3.30 us 2.00 us 1.30 us" in text
    assert (
        "weighed over 5 sizes: n 2, m 2 3.30 us; n 3, m 2 4.95 us; n 8, m 2 13.2 us; n 23, m 2 38.0 us"
        in text
    )


def test_explain_has_the_range_too() -> None:
    ranges: list[Plan] = []
    pipeline = Pipeline(backends=("tvm",), model=BySize(fused_pays_below_16))
    found = explain(Model, pipeline, shapes=SAMPLES, ranges=ranges.append)
    assert len(ranges) == 1 and ranges[0].range is not None
    assert {"main_any_size", "main_n_2_m_2"} < set(found), "also of variants that are left out"


def test_only_some_of_many_samples_are_measured_the_ends_and_the_middle_among_them() -> None:
    samples = [({"n": size}, 1 / 16) for size in range(1, 17)]
    taken, others = spread(samples, {"n": 9})
    assert len(taken) == MOST and len(others) == 16 - MOST
    assert {1, 9, 16} <= {sizes["n"] for sizes, _ in taken}
    assert spread(samples[:3], {"n": 2}) == (samples[:3], [])


def test_samples_that_are_not_measured_keep_their_plans_and_are_named() -> None:
    _, after = searched({"n": list(range(1, 13)), "m": [2]}, BySize(lambda _label, size, _free: 1e-6 * size))
    plan = PLAN.read(after["main"])
    assert len(claim_of(after).sizes) == 12 and len(plan.variants) == 2
    own = {each.variant for each in claim_of(after).sizes if each.runs == each.variant}
    assert own == set(plan.variants)
    told = PLAN.read(after["main_any_size"]).remarks
    assert any(
        each.startswith("not weighed, since kernels are measured at 10 sizes at most: n ") for each in told
    )
