"""Rules as values: equal, hashed, printed; rules of single nodes, labels and kernels; recomputing cones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_checks import found, proposals, random_graph, reasons
from tvm import relax
from tvm.relax.dpl import is_op, wildcard
from tvm.script import relax as R

from unity_collage.graph import DataflowGraph, Limits, Nested, OpKind, members
from unity_collage.index_set import to_text
from unity_collage.rules import (
    ByKind,
    Combine,
    Composite,
    Constant,
    DFPattern,
    FusionCone,
    Horizontal,
    Host,
    JoinAnything,
    MaxCoalesce,
    OnlyValid,
    OpCallByKind,
    OpPredicate,
    Primitive,
    Rule,
    TupleArgument,
    TupleProjection,
    Union,
    Vertical,
    rule_tree,
)
from unity_collage.testing import graphs


def _never(_calls: object) -> str | None:
    return "never"


def _pattern() -> object:
    return is_op("relax.exp")(wildcard())


EXP = frozenset({"relax.exp", "relax.abs"})
MAKERS: tuple[Callable[[], Rule], ...] = (
    FusionCone,
    lambda: FusionCone(recompute=True),
    OpCallByKind,
    lambda: OpPredicate("exp", EXP, _never),
    lambda: DFPattern("exp", _pattern, _never, "relax.exp"),
    lambda: Composite("own", FusionCone()),
    lambda: Primitive(FusionCone()),
    lambda: Union((FusionCone(), Host())),
    lambda: OnlyValid(FusionCone(), Limits(max_depth=2)),
    lambda: Combine(OpCallByKind(), (ByKind(OpKind.BROADCAST, OpKind.REDUCTION), JoinAnything())),
    lambda: Combine(OpCallByKind(), (TupleArgument(), TupleProjection(), Constant())),
    lambda: MaxCoalesce(FusionCone()),
    lambda: Vertical((FusionCone(), Host())),
    lambda: Horizontal(FusionCone()),
)


@pytest.mark.parametrize("number", range(len(MAKERS)))
def test_rules_compare_and_hash_as_values(number: int) -> None:
    rule = MAKERS[number]()
    assert [rule == make() for make in MAKERS] == [i == number for i in range(len(MAKERS))]
    assert hash(rule) == hash(MAKERS[number]())
    assert str(rule) == rule_tree(rule)


def test_a_rule_prints_as_a_tree() -> None:
    parts = Composite("own.exp", OpPredicate("exp", EXP, _never))
    rule = OnlyValid(
        Combine(
            Union((OpCallByKind(most=OpKind.BROADCAST), parts)),
            (ByKind(OpKind.BROADCAST, OpKind.REDUCTION), JoinAnything()),
        ),
        Limits(max_depth=4),
    )
    assert str(rule).splitlines() == [
        "OnlyValid(limits=Limits(max_depth=4))",
        "  Combine",
        "    Union",
        "      OpCallByKind(most=BROADCAST)",
        "      Composite(label='own.exp')",
        "        OpPredicate(name='exp', ops={relax.abs, relax.exp}, why_not=_never)",
        "    ByKind(upstream_kind=BROADCAST, downstream_kind=REDUCTION)",
        "    JoinAnything()",
    ]


def test_a_foreign_rule_prints_too() -> None:
    class Theirs:
        def apply(self, graph: DataflowGraph):
            yield from ()

    assert str(Union((Theirs(),))).splitlines() == ["Union", "  Theirs"]


def test_op_call_by_kind_is_by_the_kernel_that_tvm_would_make() -> None:
    assert found(OpCallByKind(), graphs.attention()) == ["{0}", "{1}", "{2}", "{3}"]
    assert found(OpCallByKind(most=OpKind.REDUCTION), graphs.attention()) == ["{1}", "{2}"]
    assert "relax.matmul is OUT_EWISE_FUSABLE, at most REDUCTION is asked for" in reasons(
        OpCallByKind(most=OpKind.REDUCTION), graphs.attention()
    )


def test_op_call_by_kind_declines_what_is_opaque() -> None:
    assert found(OpCallByKind(), graphs.opaque_in_the_middle()) == ["{0}", "{2}"]
    assert any(
        "OPAQUE" in reason or "not a tensor" in reason
        for reason in reasons(OpCallByKind(), graphs.opaque_in_the_middle())
    )


def test_kinds_of_nodes_without_a_kernel_come_from_a_table() -> None:
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            fused = builder.emit(R.ewise_fma(x, x, x))
            constant = builder.emit(relax.const([1.0] * 4, "float32"))
            pair = builder.emit(relax.Tuple([fused, constant]))
            result = builder.emit_output(relax.TupleGetItem(pair, 0))
        builder.emit_func_output(result)
    assert DataflowGraph(builder.get()["main"]).kinds == (
        OpKind.ELEMENTWISE,
        OpKind.ELEMENTWISE,
        OpKind.TUPLE,
        OpKind.INJECTIVE,
    )


def test_host_is_what_may_be_left_behind() -> None:
    assert [p.label for p in proposals(Host(), graphs.split_projections_concat())] == ["getitem", "getitem"]
    assert [p.label for p in proposals(Host(), graphs.bound_tuple())] == ["tuple"]
    assert [p.label for p in proposals(Host(), graphs.bound_constant())] == ["constant"]
    assert [p.label for p in proposals(Host(), graphs.gelu_extract())] == ["reshape"]
    assert found(Host(), graphs.chain()) == []


def test_composite_labels_the_whole_and_the_outermost_label_counts() -> None:
    rule = Composite("outer", Composite("inner", OpPredicate("exp", EXP, lambda call: None)))
    (only,) = proposals(rule, graphs.chain())
    assert (only.label, only.nested) == ("outer", (Nested(0b010, "outer"),))


def test_composite_passes_refusals_on() -> None:
    assert reasons(Composite("own", OpPredicate("exp", EXP, _never)), graphs.chain()) == ["never"]


def test_primitive_proposals_are_kernels_and_come_once() -> None:
    rule = Primitive(Union((OpCallByKind(), OpCallByKind(), Host())))
    assert found(rule, graphs.gelu_extract()).count("{0}") == 1
    assert "{2}" not in found(rule, graphs.gelu_extract())
    assert "reshape: no kernel, the VM evaluates it for free" in reasons(rule, graphs.gelu_extract())


def recomputing(func: relax.Function, **options: int) -> list[tuple[str, str]]:
    """What a cone offers beyond the cone that computes everything once."""
    plain = proposals(FusionCone(**options), func)
    wider = proposals(FusionCone(recompute=True, **options), func)
    assert all(p in wider for p in plain) and not any(p.hidden for p in plain)
    return [(to_text(p.inside), to_text(p.hidden)) for p in wider if p.hidden]


def test_a_cheap_producer_may_be_computed_twice() -> None:
    """0 relu is read by 1 exp and 2 add."""
    assert recomputing(graphs.diamond_with_tap()) == [("{0,1}", "{0}"), ("{0,2}", "{0}")]


def test_recomputing_regions_are_valid_and_few() -> None:
    rule = FusionCone(recompute=True)
    for name, make in graphs.GRAPHS.items():
        graph = DataflowGraph(make())
        for proposal in proposals(rule, graph):
            assert proposal.sub_graph(graph).why_not_valid(Limits(max_depth=8)) is None, name
    assert all(hidden.count(",") <= 1 for _, hidden in recomputing(graphs.residual_ladder()))
    assert recomputing(graphs.residual_ladder(), max_recomputed=0) == []
    at_most_one_each = recomputing(graphs.residual_ladder(), max_regions=1)
    assert len(at_most_one_each) <= len(DataflowGraph(graphs.residual_ladder()))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=8))
@settings(max_examples=40, deadline=None)
def test_recomputing_adds_valid_regions_of_one_exit_and_nothing_else(
    steps: list[tuple[int, int, int]],
) -> None:
    graph = DataflowGraph(random_graph(steps))
    wider = proposals(FusionCone(recompute=True), graph)
    assert [p for p in wider if not p.hidden] == proposals(FusionCone(), graph)
    for sub in (p.sub_graph(graph) for p in wider):
        assert sub.why_not_valid(Limits()) is None and sub.exit.bit_count() == 1
        assert all(graph.kinds[i] <= OpKind.INJECTIVE for i in members(sub.hidden))


def test_anchors_are_computed_once() -> None:
    """A convolution behind which two operators read, and one whose cheap relu two operators read."""
    x = relax.Var("x", relax.TensorType((1, 4, 8, 8), "float32"))
    w = relax.Var("w", relax.TensorType((4, 4, 1, 1), "float32"))

    def func(relu: bool) -> relax.Function:
        builder = relax.BlockBuilder()
        with builder.function("main", [x, w]):
            with builder.dataflow():
                top = builder.emit(R.nn.conv2d(x, w))
                top = builder.emit(R.nn.relu(top)) if relu else top
                result = builder.emit_output(R.add(builder.emit(R.exp(top)), builder.emit(R.tanh(top))))
            builder.emit_func_output(result)
        return builder.get()["main"]

    assert recomputing(func(relu=False)) == []
    assert all("0" not in inside.replace("{", "").split(",")[0] for inside, _ in recomputing(func(relu=True)))
    assert ("{1,2}", "{1}") in recomputing(func(relu=True))
