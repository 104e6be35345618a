"""Candidates on several devices, and the costs of copies, from annotations to the plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.target import Target

from unity_collage.annotations import CANDIDATES, COSTS, PLAN
from unity_collage.backends.merging import merged_candidates
from unity_collage.errors import InvalidAnnotation
from unity_collage.graph import DataflowGraph
from unity_collage.passes import AnnotateCandidates, EstimateCosts, SearchPartition, why_not_plan
from unity_collage.plan.check import checked
from unity_collage.plan.costs import Cost, SampleCosts
from unity_collage.plan.instance import packed, unpacked
from unity_collage.plan.weighed import weighed_costs
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import fake_backend, only_backends
from unity_collage.testing.fixed_cost import FixedCost

TOY = fake_backend("toy", "relax.nn.relu", "relax.exp", "relax.tanh")
HOST, FAST = "llvm:0", "llvm:1"


def annotated(copy: float | None, tanh_on_fast: float = 9.0) -> relax.Function:
    """relu, exp and tanh, each for 4 s on the host and for 1 s on the fast device, but tanh for more there."""
    with only_backends(TOY), Target("llvm"):
        passes = [AnnotateCandidates(), EstimateCosts(FixedCost({"toy": 4.0, "tvm": "left out"}))]
        func = tvm.transform.Sequential(passes)(IRModule({"main": graphs.chain()}))["main"]
    assert isinstance(func, relax.Function)
    candidates, costs = CANDIDATES.read(func), COSTS.read(func)
    last = len(candidates)
    moved = [replace(each, id=last + each.id, device=FAST) for each in candidates]
    by_key = {**costs.by_key}
    for each in candidates:
        seconds = tanh_on_fast if each.label == "tanh" else 1.0
        cost = costs.of(each.id)
        there = cost if cost.seconds is None else Cost(seconds, seconds, seconds)
        by_key[f"{FAST} {costs.keys[each.id]}"] = there
    keys = {**costs.keys, **{last + id_: f"{FAST} {key}" for id_, key in costs.keys.items()}}
    copies = {} if copy is None else {f"{HOST}>{FAST}": ((1, copy),), f"{FAST}>{HOST}": ((1, copy),)}
    every = [*(replace(each, device=HOST) for each in candidates), *moved]
    costed = COSTS.write(func, replace(costs, by_key=by_key, keys=keys, copies=copies))
    return CANDIDATES.write(costed, every)


@pytest.mark.parametrize(
    ("copy", "devices", "seconds"), [(1.0, [FAST, FAST, HOST], 7.0), (7.0, [FAST, FAST, FAST], 11.0)]
)
def test_the_plan_says_where_each_kernel_runs(copy: float, devices: list[str], seconds: float) -> None:
    func = annotated(copy)
    with only_backends(TOY), Target("llvm"):
        found = SearchPartition()(IRModule({"main": func}))["main"]
    assert isinstance(found, relax.Function)
    plan = PLAN.read(found)
    assert [kernel.device for kernel in plan.kernels] == devices
    assert plan.seconds == pytest.approx(seconds) and plan.proved
    assert why_not_plan(func, found) is None
    assert COSTS.read(func).copies == {f"{HOST}>{FAST}": ((1, copy),), f"{FAST}>{HOST}": ((1, copy),)}


def test_only_kernels_of_one_device_are_merged() -> None:
    func = annotated(1.0)
    candidates = [each for each in CANDIDATES.read(func) if each.backend == "toy"]
    with only_backends(replace(TOY, merges=True)), Target("llvm"):
        merged = merged_candidates(DataflowGraph(func), candidates, 100)
    assert sorted((each.device, each.label) for each in merged) == [
        (device, label) for device in (HOST, FAST) for label in ("exp+tanh", "relu+exp")
    ]


def test_a_copy_without_a_cost_and_a_candidate_without_a_device_are_refused() -> None:
    with only_backends(TOY), Target("llvm"):
        with pytest.raises(InvalidAnnotation, match="no copies llvm:0>llvm:1"):
            SearchPartition()(IRModule({"main": annotated(None)}))
        func = annotated(1.0)
        bare = [replace(each, device="" if each.id == 0 else each.device) for each in CANDIDATES.read(func)]
        with pytest.raises(InvalidAnnotation, match=r"candidate 0 \(.*\) has no device, and others have"):
            SearchPartition()(IRModule({"main": CANDIDATES.write(func, bare)}))


def test_devices_are_chosen_over_several_sizes() -> None:
    """At the larger size kernels take twice as long, and copies as long as before."""
    func = annotated(1.0)
    costs = COSTS.read(func)
    slower = {
        key: cost if cost.seconds is None else Cost(2 * cost.seconds, 2 * cost.low, 2 * cost.high)
        for key, cost in costs.by_key.items()
    }
    samples = [SampleCosts({"n": 1}, 0.5, costs.by_key), SampleCosts({"n": 2}, 0.5, slower)]
    weighed = replace(weighed_costs(costs, samples), exclusions=("toy|other",))
    func = COSTS.write(func, weighed)
    with only_backends(TOY), Target("llvm"):
        found = SearchPartition()(IRModule({"main": func}))["main"]
    assert isinstance(found, relax.Function)
    plan = PLAN.read(found)
    assert [kernel.device for kernel in plan.kernels] == [FAST, FAST, HOST]
    assert [at.seconds for at in plan.at_samples] == pytest.approx([7.0, 13.0])
    assert plan.seconds == pytest.approx(10.0) and plan.proved
    assert why_not_plan(func, found) is None
    last, reason = plan.at_samples[1], "at n 2: another problem: "
    there = unpacked(last.problem)
    moved = replace(there, options=tuple(replace(option, device=HOST) for option in there.options))
    for forged, what in ((moved, "candidates"), (replace(there, exclusions=()), "exclusions")):
        lie = replace(plan, at_samples=(plan.at_samples[0], replace(last, problem=packed(forged))))
        assert f"{reason}{what} differ" in checked(lie).text
