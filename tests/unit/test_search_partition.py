"""SearchPartition: the cheapest cover, outlined."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.target import Target

from unity_collage.annotations import CANDIDATES, COSTS, PLAN
from unity_collage.errors import NoPlan
from unity_collage.graph import DataflowGraph
from unity_collage.passes import AnnotateCandidates, EstimateCosts, SearchPartition
from unity_collage.plan.candidate import Candidate
from unity_collage.plan.costs import Cost, Costs
from unity_collage.plan.plan import Rival, WithoutCost
from unity_collage.plan.problem import why_no_cover
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import fake_backend, only_backends
from unity_collage.testing.fixed_cost import FixedCost

TOY = fake_backend("toy", "relax.nn.relu", "relax.add")


def partitioned(mod: IRModule, model: FixedCost) -> IRModule:
    with only_backends(TOY), Target("llvm"):
        line = tvm.transform.Sequential([AnnotateCandidates(), EstimateCosts(model), SearchPartition()])
        return line(mod)


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.exp(a)
            c = R.tanh(b)
            R.output(c)
        return c


@I.ir_module
class Expected:
    @R.function(private=True)
    def fused_exp_tanh_tvm(a: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        R.func_attr({"Primitive": 1})
        with R.dataflow():
            b = R.exp(a)
            c = R.tanh(b)
            R.output(c)
        return c

    @R.function
    def fused_relu_toy(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        R.func_attr({"Codegen": "toy"})

        @R.function
        def composite(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
            R.func_attr({"Composite": "toy.relu"})
            with R.dataflow():
                a = R.nn.relu(x)
                R.output(a)
            return a

        result: R.Tensor((2, 4), "float32") = composite(x)
        return result

    @R.function
    def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        cls = Expected
        with R.dataflow():
            a: R.Tensor((2, 4), "float32") = cls.fused_relu_toy(x)
            c: R.Tensor((2, 4), "float32") = cls.fused_exp_tanh_tvm(a)
            R.output(c)
        return c


def without_plan(mod: IRModule) -> IRModule:
    functions = {
        gvar: func.without_attr(PLAN.name) if PLAN.on(func) else func for gvar, func in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs)


def test_the_chosen_are_outlined_as_tvm_leaves_them() -> None:
    got = partitioned(
        Before, FixedCost({"toy": 0.5, "tvm": 1.0, "tvm:exp+tanh": 1.1, "tvm:relu+exp+tanh": 9.0})
    )
    tvm.ir.assert_structural_equal(without_plan(got), Expected)


def test_the_plan_states_cost_bound_and_rival_bids() -> None:
    plan = PLAN.read(
        partitioned(
            Before,
            FixedCost({"toy": 0.5, "tvm": 1.0, "tvm:exp+tanh": 1.1, "tvm:relu+exp+tanh": 9.0}, launch=0.25),
        )["main"]
    )
    assert plan.seconds == plan.lower_bound == pytest.approx(0.5 + 1.1 + 2 * 0.25)
    assert [(k.backend, k.bindings) for k in plan.kernels] == [("toy", ("a",)), ("tvm", ("b", "c"))]
    assert plan.kernels[0].others == (Rival("tvm", 1.0),)


def test_a_candidate_without_a_cost_is_never_chosen_and_its_reason_kept() -> None:
    plan = PLAN.read(partitioned(Before, FixedCost({"toy": "it crashed", "tvm": 1.0}))["main"])
    assert {kernel.backend for kernel in plan.kernels} == {"tvm"}
    assert plan.without_cost == (WithoutCost("toy", "relu", "it crashed"),)


def test_operators_without_a_cost_are_left_to_tvm() -> None:
    plan = PLAN.read(partitioned(Before, FixedCost({"toy": 1.0, "tvm": "no compiler"}))["main"])
    assert plan.left_behind == ("b", "c")


@I.ir_module
class TwoReaders:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")) -> R.Tuple(
        R.Tensor((2, 4), "float32"), R.Tensor((2, 4), "float32")
    ):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.exp(a)
            c = R.nn.gelu(a)
            R.output(b, c)
        return (b, c)


def test_a_value_that_measured_kernels_only_hold_inside_is_left_to_tvm() -> None:
    """As a spent budget may leave it: relu+exp has a cost, gelu has one, and relu alone, which it reads, has none."""
    candidates = (
        Candidate(0, "tvm", "cone", "relu+exp", (0, 1), hidden=(0,)),
        Candidate(1, "tvm", "cone", "gelu", (2,)),
        Candidate(2, "tvm", "cone", "relu", (0,)),
    )
    late = Cost(None, reason="the budget was spent", origin="unknown")
    costs = Costs(keys={0: "a", 1: "b", 2: "c"}, by_key={"a": Cost(1.0), "b": Cost(1.0), "c": late})
    func = COSTS.write(CANDIDATES.write(TwoReaders["main"], candidates), costs)
    plan = PLAN.read(SearchPartition()(IRModule({"main": func}))["main"])
    assert [kernel.label for kernel in plan.kernels] == ["relu+exp", "gelu"]
    assert plan.left_behind == ("a",)


def test_an_operator_that_no_backend_can_make_is_named() -> None:
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit_output(R.hint_on_device(x, tvm.cpu()))
        builder.emit_func_output(value)
    func = COSTS.write(CANDIDATES.write(builder.get()["main"], ()), Costs())
    with pytest.raises(NoPlan, match=r"no kernel for relax\.hint_on_device"):
        SearchPartition()(IRModule({"main": func}))


def test_backends_that_exclude_each_other_are_why_there_is_no_plan() -> None:
    """Each operator has a kernel, but only one of the two backends may be in a plan."""
    candidates = tuple(Candidate(i, name, "typed", "single", (i,)) for i, name in enumerate("aba"))
    by_key = {str(candidate.id): Cost(1.0) for candidate in candidates}
    costs = Costs(by_key, {candidate.id: str(candidate.id) for candidate in candidates}, exclusions=("a|b",))
    func = COSTS.write(CANDIDATES.write(graphs.chain(), candidates), costs)
    reason = "a and b exclude each other, and neither makes a plan without the other"
    with pytest.raises(NoPlan, match=reason):
        SearchPartition()(IRModule({"main": func}))
    graph = DataflowGraph(graphs.chain())
    assert why_no_cover(graph, 0, candidates, exclusions=("a|b",)).endswith(f"a single: {reason}")
    assert why_no_cover(graph, 0, candidates).endswith("a single: it is refused, or no plan contains it")


@pytest.mark.parametrize(
    "make", [lambda x: R.cumsum(x, axis=0), lambda x: R.topk(x, k=1, ret_type="values"), R.sort]
)
def test_sorts_and_scans_are_left_to_tvm(make) -> None:
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit_output(make(x))
        builder.emit_func_output(value)
    func = COSTS.write(CANDIDATES.write(builder.get()["main"], ()), Costs())
    assert PLAN.read(SearchPartition()(IRModule({"main": func}))["main"]).left_behind == ("gv",)


def test_equal_kernels_of_tvm_share_one_function() -> None:
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit(R.exp(x))
            opaque = builder.emit(
                relax.call_pure_packed("f", first, ty_args=relax.TensorType((4,), "float32"))
            )
            second = builder.emit_output(R.exp(opaque))
        builder.emit_func_output(second)
    got = partitioned(IRModule({"main": builder.get()["main"]}), FixedCost())
    assert [gvar.name_hint for gvar in got.get_global_vars()] == ["fused_exp_tvm", "main"]


def test_two_kernels_that_would_wait_for_each_other_are_not_chosen() -> None:
    """K2,2 with costs that tempt to take both {a, d} and {c, b}: one of them is taken, and the rest alone."""
    func = graphs.k22()
    index = {node.op: node.index for node in DataflowGraph(func).nodes}
    a, c, b, d = (index[f"relax.{op}"] for op in ("nn.relu", "exp", "add", "multiply"))
    crossing = [Candidate(i, "tvm", "typed", "crossing", pair) for i, pair in enumerate([(a, d), (c, b)])]
    alone = [Candidate(10 + i, "tvm", "typed", "alone", (i,)) for i in range(len(index))]
    costs = {"crossing": Cost(1.0), "alone": Cost(10.0)}
    typed = CANDIDATES.write(func, (*crossing, *alone))
    typed = COSTS.write(typed, Costs(costs, {k.id: k.label for k in (*crossing, *alone)}))
    with only_backends(TOY):
        got = SearchPartition()(IRModule({"main": typed}))
    plan = PLAN.read(got["main"])
    assert sorted(kernel.label for kernel in plan.kernels) == ["alone", "alone", "alone", "crossing"]
    assert plan.seconds == 31.0


def test_hand_made_primitives_and_calls_of_them_stay() -> None:
    @I.ir_module
    class Grouped:
        @R.function(private=True)
        def mine(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
            R.func_attr({"Primitive": 1})
            with R.dataflow():
                a = R.nn.relu(x)
                b = R.exp(a)
                R.output(b)
            return b

        @R.function
        def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
            cls = Grouped
            with R.dataflow():
                a: R.Tensor((2, 4), "float32") = cls.mine(x)
                b = R.nn.relu(a)
                R.output(b)
            return b

    got = partitioned(Grouped, FixedCost())
    tvm.ir.assert_structural_equal(got["mine"], Grouped["mine"])
    assert PLAN.read(got["main"]).left_behind == ("a",)
