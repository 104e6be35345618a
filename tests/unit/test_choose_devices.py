"""ChooseDevices: kernels run where they and the copies that this takes cost least."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm
from choosing_devices import DEVICES, TOY, CostOfSeveral, chosen, placed_ops
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.target import Target

from unity_collage import reference
from unity_collage.annotations import DEVICE_PLANS, FREELY_PLACED
from unity_collage.cost.model import CostModel
from unity_collage.errors import CollageError
from unity_collage.passes import ChooseDevices, PlanDevices
from unity_collage.plan.device_plan import DevicePlan, why_no_device_plan
from unity_collage.plan.instance import packed, unpacked
from unity_collage.search import Problem
from unity_collage.testing.fake_backend import only_backends
from unity_collage.testing.fixed_cost import FixedCost

NEAR, FAR = "llvm:0", "haswell:1"
THERE = (("relu", NEAR), ("to_vdevice", FAR), ("exp", FAR), ("to_vdevice", NEAR), ("tanh", NEAR))
COSTS = {"relu": {NEAR: 4.0, FAR: 6.0}, "exp": {NEAR: 10.0, FAR: 1.0}, "tanh": {NEAR: 4.0, FAR: 6.0}}


@I.ir_module
class Chain:
    """relu, exp and tanh, none of which says where it is."""

    I.module_global_infos(
        {"vdevice": [I.vdevice("llvm", 0), I.vdevice({"kind": "llvm", "mcpu": "haswell"}, 1)]}
    )

    @R.function
    def main(x: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.exp(a)
            c = R.tanh(b)
            R.output(c)
        return c


@I.ir_module
class Hinted:
    """exp is on the second device by a hint on what it reads, and relu before it is free."""

    I.module_global_infos(
        {"vdevice": [I.vdevice("llvm", 0), I.vdevice({"kind": "llvm", "mcpu": "haswell"}, 1)]}
    )

    @R.function
    def main(x: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            a = R.nn.relu(x)
            h = R.hint_on_device(a, tvm.cpu(1))
            b = R.exp(h)
            R.output(b)
        return b


@I.ir_module
class Views:
    """A reshape between two operators, one value that is split, and a branch on a result."""

    I.module_global_infos(
        {"vdevice": [I.vdevice("llvm", 0), I.vdevice({"kind": "llvm", "mcpu": "haswell"}, 1)]}
    )

    @R.function
    def main(x: R.Tensor((4, 4), "float32"), c: R.Tensor((), "bool")):
        with R.dataflow():
            a = R.exp(x)
            r = R.reshape(a, R.shape([2, 8]))
            t = R.exp(r)
            p = (t, a)
            e = R.tanh(p[0])
            R.output(e, a)
        if c:
            y = R.exp(e)
        else:
            y = R.tanh(e)
        with R.dataflow():
            z = R.exp(y)
            R.output(z)
        return (z, a)


@I.ir_module
class Tuples:
    """A parameter that is a tuple, an operator with two results, and a call of a function."""

    I.module_global_infos(
        {"vdevice": [I.vdevice("llvm", 0), I.vdevice({"kind": "llvm", "mcpu": "haswell"}, 1)]}
    )

    @R.function(private=True)
    def twice(y: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):
        with R.dataflow():
            z = R.add(y, y)
            R.output(z)
        return z

    @R.function
    def main(
        x: R.Tensor((4, 4), "float32"), q: R.Tuple(R.Tensor((4, 4), "float32"), R.Tensor((4, 4), "float32"))
    ):
        cls = Tuples
        with R.dataflow():
            a = R.nn.relu(x)
            s = R.split(a, 2, axis=0)
            e = R.exp(s[0])
            b = cls.twice(a)
            d = R.multiply(b, q[1])
            R.output(d, e)
        return (d, e, q[0])


@pytest.mark.parametrize(
    ("copy", "seconds", "expected"),
    [
        (1.0, 4 + 1 + 1 + 1 + 4, THERE),
        (4.6, 18.0, (("relu", NEAR), ("exp", NEAR), ("tanh", NEAR))),
        ({"cpu:0>cpu:1": 1.0, "cpu:1>cpu:0": 7.9}, 4 + 1 + 1 + 7.9 + 4, THERE),
    ],
)
def test_the_cut_moves_with_the_cost_of_a_copy(
    copy: float, seconds: float, expected: tuple[tuple[str, str], ...]
) -> None:
    found, (plan,) = chosen(Chain, CostOfSeveral(table=COSTS, copy=copy))
    assert placed_ops(found) == expected
    assert plan.seconds == pytest.approx(seconds) and plan.proved
    assert not FREELY_PLACED.on(found["main"])
    assert [str(found["main"].params[0].ty.vdevice.target), found["main"].ret_ty.vdevice.vdevice_id] == [
        str(found.global_infos["vdevice"][0].target),
        0,
    ]


def test_a_choice_is_written_and_parsed_back() -> None:
    found, _ = chosen(Chain, CostOfSeveral(table=COSTS, copy=1.0))
    again = tvm.script.from_source(found.script())
    assert placed_ops(again) == THERE


def test_only_named_devices_are_chosen() -> None:
    model = CostOfSeveral(table=COSTS, copy=1.0)
    found, _ = chosen(Chain, model, devices=["llvm:0"])
    assert placed_ops(found) == (("relu", NEAR), ("exp", NEAR), ("tanh", NEAR))
    with pytest.raises(CollageError, match="no device 'llvm:7'"):
        chosen(Chain, model, devices=["llvm:7"])


def test_what_is_placed_stays_and_the_rest_goes_to_it() -> None:
    """The hint asks for a copy of a. It is cheaper to copy x and to compute a there."""
    near = CostOfSeveral(table={"relu": {NEAR: 1.0, FAR: 3.0}}, copy=1.0)
    found, (plan,) = chosen(Hinted, near)
    assert placed_ops(found) == (("relu", NEAR), ("to_vdevice", FAR), ("exp", FAR))
    far = CostOfSeveral(table={"relu": {NEAR: 3.0, FAR: 1.0}}, copy=1.0)
    found, (plan,) = chosen(Hinted, far)
    assert placed_ops(found) == (("to_vdevice", FAR), ("relu", FAR), ("exp", FAR))
    assert plan.seconds == pytest.approx(1.0 + 1.0 + 4.0)


def test_views_follow_and_what_is_read_outside_a_block_comes_back() -> None:
    table = {"exp": {NEAR: 10.0, FAR: 1.0}, "tanh": {NEAR: 1.0, FAR: 10.0}}
    found, plans = chosen(Views, CostOfSeveral(table=table, copy=0.5))
    relax.analysis.well_formed(found)
    assert placed_ops(found) == (
        *(("to_vdevice", FAR), ("exp", FAR), ("reshape", FAR), ("exp", FAR)),
        *(("to_vdevice", NEAR), ("to_vdevice", NEAR), ("tanh", NEAR)),
        *(("to_vdevice", FAR), ("exp", FAR), ("to_vdevice", NEAR)),
    )
    assert [len(plan.copies) for plan in plans] == [3, 2]


def test_functions_stay_and_fields_of_tuples_are_copied_alone() -> None:
    """split has no kernel here, so it stays; each operator of ``toy`` is far cheaper on the other device."""
    table = {name: {NEAR: 9.0, FAR: 1.0} for name in ("relu", "exp", "add", "multiply")}
    found, (plan,) = chosen(Tuples, CostOfSeveral(table=table, copy=0.1))
    assert placed_ops(found).count(("to_vdevice", FAR)) == 4
    assert {kernel.device for kernel in plan.kernels} == {"llvm:1"}
    assert [copy.value for copy in plan.copies].count("q_1") == 1 and len(plan.copies) == 7
    inputs = [np.random.default_rng(i).standard_normal((4, 4)).astype("float32") for i in range(3)]
    given = [inputs[0], (inputs[1], inputs[2])]
    runs = [reference.run(mod["main"], given, mod) for mod in (Tuples, found)]
    for before, after in zip(*runs, strict=True):
        np.testing.assert_array_equal(before, after)


def _twice(plan: DevicePlan) -> Problem:
    """The problem of ``plan`` with its first option twice."""
    problem = unpacked(plan.problem)
    return replace(problem, options=(*problem.options, problem.options[0]))


def test_a_plan_with_another_choice_is_found_out() -> None:
    _, (plan,) = chosen(Chain, CostOfSeveral(table=COSTS, copy=1.0))
    lies = [
        (replace(plan, seconds=3.0), "the plan says 3.0 s"),
        (replace(plan, kernels=plan.kernels[1:]), "not those of the certificate"),
        (
            replace(plan, kernels=(replace(plan.kernels[0], backend="tvm"), *plan.kernels[1:])),
            "not those of the certificate",
        ),
        (replace(plan, copy_seconds=0.0), "s, not 0.0 s"),
        (replace(plan, copies=()), "and none is named"),
        (
            replace(plan, copies=(replace(plan.copies[0], destination="llvm:9"),)),
            "to llvm:9, which has no cost",
        ),
        (replace(plan, problem=packed(_twice(plan))), "two options have one id"),
        (
            replace(plan, certificate=replace(plan.certificate, proved=False)),
            "said to be not",
        ),
    ]
    for lie, reason in lies:
        assert reason in (why_no_device_plan(lie) or "")


def test_a_function_that_changes_memory_keeps_its_places_and_says_why() -> None:
    @I.ir_module
    class Impure:
        I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})

        @R.function(pure=False)
        def main(x: R.Tensor((4, 4), "float32")):
            with R.dataflow():
                a = R.nn.relu(x)
                R.output(a)
            R.print(a, format="{}")
            return a

    found, (plan,) = chosen(Impure, CostOfSeveral())
    assert plan.reason == "it may change memory"
    assert "devices were not chosen by cost: it may change memory" in plan.said()
    assert FREELY_PLACED.on(found["main"])


def test_a_cost_model_without_copies_is_refused() -> None:
    class NoCopies(FixedCost):
        copies = CostModel.copies

    with (
        only_backends(TOY),
        Target("llvm"),
        pytest.raises(CollageError, match="NoCopies does not know what copies"),
    ):
        ChooseDevices(NoCopies())(PlanDevices()(Chain))


def test_a_module_with_places_alone_stays_as_it_is() -> None:
    with only_backends(TOY), Target("llvm"):
        planned = PlanDevices()(Chain)
        bare = IRModule(
            {g: f.without_attr(FREELY_PLACED.name) for g, f in planned.functions_items()},
            attrs=planned.attrs,
            global_infos=planned.global_infos,
        )
        found = ChooseDevices(CostOfSeveral(table=COSTS))(bare)
    assert not DEVICE_PLANS.on(found["main"]) and len(DEVICES) == 3
    tvm.ir.assert_structural_equal(found["main"], bare["main"])
