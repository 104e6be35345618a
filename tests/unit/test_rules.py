"""What the rules propose, and the reasons they give."""

from __future__ import annotations

import pytest
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from unity_collage.graph import DataflowGraph, Limits
from unity_collage.index_set import to_text
from unity_collage.rules import (
    CancellingTransposes,
    DFPattern,
    Found,
    FusionCone,
    OnlyValid,
    OpPredicate,
    PrimitiveChain,
    Union,
)
from unity_collage.rules.base import Declined, Rule
from unity_collage.testing import graphs


def found(rule: Rule, func: relax.Function) -> list[str]:
    return sorted(to_text(p.inside) for p in rule.apply(DataflowGraph(func)) if isinstance(p, Found))


def reasons(rule: Rule, func: relax.Function) -> list[str]:
    return [p.reason for p in rule.apply(DataflowGraph(func)) if isinstance(p, Declined)]


def test_cone_offers_every_run_of_a_chain() -> None:
    assert found(FusionCone(), graphs.chain()) == ["{0,1}", "{0..2}", "{0}", "{1,2}", "{1}", "{2}"]


def test_cone_makes_one_candidate_of_two_branches_joining() -> None:
    """add(relu(x), relu(y)), which Relay Collage's combiner never paired."""
    assert "{0..2}" in found(FusionCone(), graphs.two_branches_joining())


def test_cone_never_taps() -> None:
    offered = found(FusionCone(), graphs.diamond_with_tap())
    assert "{1,2}" in offered and "{0..2}" in offered and "{0,1}" not in offered and "{0,2}" not in offered


def test_cone_keeps_opaque_calls_apart() -> None:
    assert found(FusionCone(), graphs.opaque_in_the_middle()) == ["{0}", "{2}"]
    assert any("has no legalization" in r for r in reasons(FusionCone(), graphs.opaque_in_the_middle()))


def test_cone_respects_depth_and_still_offers_the_largest() -> None:
    assert found(FusionCone(max_depth=2), graphs.chain()) == ["{0,1}", "{0}", "{1,2}", "{1}", "{2}"]
    assert "{0..2}" in found(FusionCone(max_regions=1), graphs.chain())


def _conv_relu(padding: int = 1) -> relax.Function:
    x = relax.Var("x", relax.TensorType((1, 4, 8, 8), "float32"))
    w = relax.Var("w", relax.TensorType((4, 4, 3, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w]):
        with builder.dataflow():
            before = builder.emit(R.exp(x))
            conv = builder.emit(R.nn.conv2d(before, w, padding=padding))
            after = builder.emit(R.nn.relu(conv))
            total = builder.emit_output(R.sum(after))
        builder.emit_func_output(total)
    return builder.get()["main"]


def test_cone_fuses_behind_an_anchor_and_into_a_reduction_only() -> None:
    """0 exp, 1 conv2d, 2 relu, 3 sum: nothing into the convolution, no convolution into the sum."""
    assert found(FusionCone(), _conv_relu()) == ["{0}", "{1,2}", "{1}", "{2,3}", "{2}", "{3}"]


def test_a_product_reads_through_another_order_of_its_operand_and_through_nothing_else() -> None:
    @R.function
    def func(x: R.Tensor((8, 4), "float32"), w: R.Tensor((8, 6), "float32")) -> R.Tensor((4, 6), "float32"):
        with R.dataflow():
            turned = R.permute_dims(x)
            after = R.nn.relu(R.matmul(turned, w))
            R.output(after)
        return after

    assert found(FusionCone(), func) == ["{0,1}", "{0..2}", "{0}", "{1,2}", "{1}", "{2}"]


def _gated(
    factors: tuple[int, ...], weights: tuple[int, ...], dtype: str = "float32", **attrs: object
) -> relax.Function:
    """0 multiply, 1 conv2d of 6x6 images of 8 channels."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 6, 6, 8), dtype))
    s = relax.Var("s", relax.TensorType(factors, dtype))
    w = relax.Var("w", relax.TensorType(weights, dtype))
    with builder.function("main", [x, s, w]):
        with builder.dataflow():
            gated = builder.emit(relax.op.multiply(x, s))
            layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
            out = builder.emit_output(relax.op.nn.conv2d(gated, w, **layouts, **attrs))
        builder.emit_func_output(out)
    return builder.get()["main"]


def test_a_pointwise_convolution_takes_the_factors_of_its_channels() -> None:
    assert "{0,1}" in found(FusionCone(), _gated((1, 1, 1, 8), (1, 1, 8, 4)))
    assert "{0,1}" in found(FusionCone(), _gated((8,), (1, 1, 8, 4), strides=(2, 2)))


@pytest.mark.parametrize(
    "func",
    [
        _gated((1, 6, 6, 8), (1, 1, 8, 4), strides=(2, 2)),
        _gated((1, 1, 1, 8), (3, 3, 8, 4)),
        _gated((1, 1, 1, 8), (1, 1, 8, 4), padding=(1, 1)),
        _gated((1, 1, 1, 8), (1, 1, 4, 4), groups=2),
        _gated((1, 1, 1, 8), (1, 1, 8, 4), dtype="bfloat16"),
    ],
    ids=["a stride", "a window", "padding", "groups", "bfloat16"],
)
def test_other_convolutions_do_not_take_a_product_in_front_of_them(func: relax.Function) -> None:
    assert found(FusionCone(), func) == ["{0}", "{1}"]


def test_a_product_takes_all_that_is_computed_for_it_alone() -> None:
    """0 concat, 1 multiply, 2 relu, 3 conv2d, 4 relu: by bands of rows, so the whole of it or nothing."""
    builder = relax.BlockBuilder()
    shapes = ((1, 6, 6, 8), (1, 6, 6, 8), (1, 1, 1, 16), (1, 1, 16, 4))
    x, y, s, w = (relax.Var(f"x{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes))
    with builder.function("main", [x, y, s, w]):
        with builder.dataflow():
            whole = builder.emit(relax.op.multiply(builder.emit(relax.op.concat([x, y], -1)), s))
            before = builder.emit(relax.op.nn.relu(whole))
            conv = builder.emit(relax.op.nn.conv2d(before, w, data_layout="NHWC", kernel_layout="HWIO"))
            out = builder.emit_output(relax.op.nn.relu(conv))
        builder.emit_func_output(out)
    offered = found(FusionCone(), builder.get()["main"])
    assert [region for region in offered if region.endswith(("3}", "4}"))] == [
        "{0..4}",
        "{3,4}",
        "{3}",
        "{4}",
    ]


def test_what_the_kernel_before_could_compute_stays_there() -> None:
    """0 conv2d, 1 relu, 2 conv2d: the ReLU is behind the first."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 6, 6, 8), "float32"))
    w = relax.Var("w", relax.TensorType((1, 1, 8, 8), "float32"))
    options = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    with builder.function("main", [x, w]):
        with builder.dataflow():
            before = builder.emit(relax.op.nn.relu(builder.emit(relax.op.nn.conv2d(x, w, **options))))
            out = builder.emit_output(relax.op.nn.conv2d(before, w, **options))
        builder.emit_func_output(out)
    assert found(FusionCone(), builder.get()["main"]) == ["{0,1}", "{0}", "{1}", "{2}"]


def test_what_has_no_static_shape_is_not_computed_before_a_product() -> None:
    """0 relu of any number of rows, 1 matmul: each is a kernel of its own."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((tirx.Var("n", "int64"), 8), "float32"))
    w = relax.Var("w", relax.TensorType((8, 8), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.matmul(builder.emit(relax.op.nn.relu(x)), w))
        builder.emit_func_output(out)
    assert found(FusionCone(), builder.get()["main"]) == ["{0}", "{1}"]


@pytest.mark.parametrize("axes", [(1, 0, 2), (0, 2, 1)], ids=["rows stay whole", "rows are taken apart"])
def test_a_product_writes_through_a_permutation(axes: tuple[int, ...]) -> None:
    """0 matmul, 1 relu, 2 permute_dims."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 4, 8), "float32"))
    w = relax.Var("w", relax.TensorType((8, 6), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            after = builder.emit(relax.op.nn.relu(builder.emit(relax.op.matmul(x, w))))
            out = builder.emit_output(relax.op.permute_dims(after, axes))
        builder.emit_func_output(out)
    assert found(FusionCone(), builder.get()["main"]) == ["{0,1}", "{0..2}", "{0}", "{1,2}", "{1}", "{2}"]


def test_unknown_shapes_are_declined_by_name() -> None:
    @R.function
    def func(x: R.Tensor(dtype="float32", ndim=2)) -> R.Tensor(dtype="float32", ndim=2):
        with R.dataflow():
            a = R.nn.relu(x)
            R.output(a)
        return a

    assert found(FusionCone(), func) == []
    assert reasons(FusionCone(), func) == ["the shape of a is not known"]


def test_op_predicate_gives_the_reason_of_the_check() -> None:
    rule = OpPredicate("exp", frozenset({"relax.exp"}), lambda call: "no exponentials today")
    assert found(rule, graphs.chain()) == []
    assert reasons(rule, graphs.chain()) == ["no exponentials today"]


def test_union_and_only_valid_compose() -> None:
    everything = Union((FusionCone(), FusionCone()))
    assert len(found(everything, graphs.chain())) == 12
    shallow = OnlyValid(FusionCone(), Limits(max_depth=1))
    assert found(shallow, graphs.chain()) == ["{0}", "{1}", "{2}"]
    assert "relu+exp: depth 2, at most 1 allowed" in reasons(shallow, graphs.chain())


def test_dataflow_patterns_match_at_every_root_they_can() -> None:
    from tvm.relax.dpl import is_op, wildcard

    rule = DFPattern(
        "exp_of_relu",
        lambda: is_op("relax.exp")(is_op("relax.nn.relu")(wildcard())),
        lambda calls: None if len(calls) == 2 else f"{len(calls)} calls",
        root="relax.exp",
    )
    assert found(rule, graphs.chain()) == ["{0,1}"]
    assert found(rule, graphs.diamond()) == ["{0,1}"]


def _chain_rule(limit: int) -> PrimitiveChain:
    """A library whose step is the list of operators it has absorbed: relu first, up to ``limit`` of them."""
    return PrimitiveChain(
        "listed",
        frozenset({"relax.nn.relu"}),
        step=lambda call: [call.op.name],
        fused=lambda step, call, _operand: (
            [*step, call.op.name] if len(step) < limit else f"{limit} operators are the limit"
        ),
        absorbed_input=lambda step, value, call: "no layout changes",
        absorbed_output=lambda step, call: "no layout changes",
    )


def test_primitive_chain_offers_every_prefix_and_says_where_it_ends() -> None:
    assert found(_chain_rule(3), graphs.chain()) == ["{0,1}", "{0..2}", "{0}"]
    assert found(_chain_rule(2), graphs.chain()) == ["{0,1}", "{0}"]
    assert reasons(_chain_rule(2), graphs.chain()) == ["not behind relax.exp: 2 operators are the limit"]


def test_primitive_chain_stops_where_a_value_has_two_readers() -> None:
    assert found(_chain_rule(9), graphs.diamond_with_tap()) == ["{0}"]


def test_primitive_chain_offers_some_of_the_layout_changes_before_many_operands_and_all_of_them() -> None:
    rule = PrimitiveChain(
        "joined",
        frozenset({"relax.concat"}),
        step=lambda call: [],
        fused=lambda step, call, _operand: "nothing behind",
        absorbed_input=lambda step, value, call: (
            [*step, call.op.name] if call.op.name == "relax.permute_dims" else "no layout change"
        ),
        absorbed_output=lambda step, call: "nothing behind",
    )
    assert found(rule, graphs.concat_of_permuted(2)) == ["{0,2}", "{0..2}", "{1,2}", "{2}"]
    many = found(rule, graphs.concat_of_permuted(40))
    assert len(many) == rule.max_absorbed + 1
    assert "{40}" in many and "{0..40}" in many
    said = "16 sets of layout changes before it and the largest are offered"
    assert reasons(rule, graphs.concat_of_permuted(40)).count(said) == 1
    assert said not in reasons(rule, graphs.concat_of_permuted(2))


def test_rules_are_values() -> None:
    assert FusionCone() == FusionCone() and hash(FusionCone()) == hash(FusionCone())
    assert Union((FusionCone(),)) != Union((FusionCone(max_depth=2),))
    assert repr(OnlyValid(FusionCone())) == repr(OnlyValid(FusionCone()))


@I.ir_module
class _TurnedTwice:
    @T.prim_func(private=True, s_tir=True)
    def grown(x: T.Buffer((T.int64(2), T.int64(4)), "float32")):
        for i, j in T.grid(T.int64(2), T.int64(4)):
            with T.sblock("grown"):
                vi, vj = T.axis.remap("SS", [i, j])
                x[vi, vj] = x[vi, vj] * T.float32(3)

    @R.function
    def unchanged(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        cls = _TurnedTwice
        with R.dataflow():
            a = R.permute_dims(R.permute_dims(x))
            b = R.exp(a)
            c = R.call_tir_inplace(cls.grown, (b,), inplace_indices=[0], out_ty=R.Tensor((2, 4), "float32"))
            R.output(c)
        return c

    @R.function
    def changed_behind(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        cls = _TurnedTwice
        with R.dataflow():
            a = R.permute_dims(R.permute_dims(x))
            c = R.call_tir_inplace(cls.grown, (a,), inplace_indices=[0], out_ty=R.Tensor((2, 4), "float32"))
            R.output(c)
        return c

    @R.function
    def changed_before(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        cls = _TurnedTwice
        with R.dataflow():
            b = R.exp(x)
            a = R.permute_dims(R.permute_dims(b))
            c = R.call_tir_inplace(cls.grown, (b,), inplace_indices=[0], out_ty=R.Tensor((2, 4), "float32"))
            d = R.add(a, c)
            R.output(d)
        return d


@pytest.mark.parametrize(
    ("name", "offered"), [("unchanged", ["{0,1}"]), ("changed_behind", []), ("changed_before", [])]
)
def test_transposes_are_no_view_of_memory_that_is_changed(name: str, offered: list[str]) -> None:
    assert found(CancellingTransposes(), _TurnedTwice[name]) == offered
