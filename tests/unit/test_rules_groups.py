"""Rules around anchors and branches, and what becomes of kernels that touch."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_checks import found, proposals, random_graph, reasons
from tvm import relax

from unity_collage.graph import DataflowGraph, Limits, Nested, index_set
from unity_collage.index_set import to_text
from unity_collage.rules import (
    Composite,
    FusionCone,
    Horizontal,
    MaxCoalesce,
    OpCallByKind,
    OpPredicate,
    TaggedKernel,
    Union,
    Vertical,
    coalesce,
)
from unity_collage.rules.coalesce import why_not_plan
from unity_collage.testing import graphs

ANY_EXITS = Limits(max_exits=0, allow_taps=True)


def calls(*ops: str) -> OpPredicate:
    return OpPredicate("calls", frozenset(f"relax.{op}" for op in ops), lambda call: None)


MATMUL, CONV = calls("matmul"), calls("nn.conv2d")


def test_horizontal_three_products_of_one_input() -> None:
    assert found(Horizontal(MATMUL), graphs.qkv()) == ["{0,1}", "{0,2}", "{0..2}", "{1,2}"]
    whole = proposals(Horizontal(MATMUL), graphs.qkv())[-1]
    assert whole.label == "matmul+matmul+matmul"
    graph = DataflowGraph(graphs.qkv())
    assert whole.sub_graph(graph).why_not_valid(Limits(max_exits=3)) is None
    assert "3 exits" in str(whole.sub_graph(graph).why_not_valid(Limits()))


def test_horizontal_the_convolutions_that_an_inception_block_begins_with() -> None:
    """0 and 7 read x, 2 the result of 0, 5 the pooled x."""
    assert found(Horizontal(CONV), graphs.inception_block()) == ["{0,7}"]


def test_horizontal_branches_may_be_longer() -> None:
    assert found(Horizontal(FusionCone()), graphs.inception_block()) == ["{0,1,7,8}", "{0,7}"]


def test_horizontal_branches_do_not_wait_for_each_other() -> None:
    """All three sums read y, and each but the first the one before."""
    assert found(Horizontal(calls("add")), graphs.three_adds()) == []


def test_horizontal_equal_labels_only() -> None:
    assert found(Horizontal(calls("exp", "tanh")), graphs.diamond()) == []
    assert found(Horizontal(Composite("unary", calls("exp", "tanh"))), graphs.diamond()) == ["{1,2}"]


def test_horizontal_branches_keep_their_parts() -> None:
    whole = proposals(Horizontal(Composite("product", MATMUL)), graphs.qkv())[-1]
    assert whole.nested == tuple(Nested(1 << i, "product") for i in range(3))


def test_horizontal_says_when_there_are_more_groups() -> None:
    rule = Horizontal(MATMUL, max_groups=2)
    assert found(rule, graphs.qkv()) == ["{0,1}", "{0,2}", "{0..2}"]
    assert reasons(rule, graphs.qkv()) == ["3 branches read x: 2 groups and the largest are offered"]


def test_vertical_convolution_and_convolution() -> None:
    assert found(Vertical((CONV, CONV)), graphs.conv_conv()) == ["{0..2}"]
    assert found(Vertical((CONV, CONV), max_between=0), graphs.conv_conv()) == []


def test_vertical_attention_with_the_scale_between() -> None:
    rule = Vertical((MATMUL, calls("nn.softmax"), MATMUL))
    assert [(to_text(p.inside), p.label) for p in proposals(rule, graphs.attention())] == [
        ("{0..3}", "matmul+multiply+softmax+matmul")
    ]


def test_vertical_stages_of_any_rule() -> None:
    """The first stage as cones: the convolution with its relu, and without, which the relu then follows."""
    assert found(Vertical((FusionCone(), CONV)), graphs.conv_conv()) == ["{0..2}", "{1,2}"]


def test_vertical_says_when_something_else_reads_what_is_between() -> None:
    rule = Vertical((calls("nn.relu"), calls("add")))
    assert found(rule, graphs.diamond_with_tap()) == []
    assert reasons(rule, graphs.diamond_with_tap()) == ["relu+add: 2 exits {0,2}, at most 1 allowed"]


def test_vertical_says_when_there_are_more_kernels() -> None:
    rule = Vertical((FusionCone(), calls("tanh")), max_kernels=1)
    assert found(rule, graphs.chain()) == ["{0..2}"]
    assert reasons(rule, graphs.chain()) == ["more than 1 kernels end here"]


def kernels(*groups: tuple[int, ...], tag: str = "t") -> list[TaggedKernel]:
    return [TaggedKernel(index_set(group), tag) for group in groups]


def merged(func: relax.Function, *groups: tuple[int, ...], limits: Limits = ANY_EXITS) -> list[str]:
    return [to_text(kernel.inside) for kernel in coalesce(DataflowGraph(func), kernels(*groups), limits)]


def test_touching_kernels_become_one() -> None:
    assert merged(graphs.chain(), (0,), (1,), (2,)) == ["{0..2}"]
    assert merged(graphs.shared_input(), (0,), (1,)) == ["{0}", "{1}"]


def coalesced(func: relax.Function, **tags: str) -> list[str]:
    """The kernels that single nodes become, as ``tag=nodes`` in a string of digits."""
    alone = [TaggedKernel(1 << int(i), tag) for tag, nodes in tags.items() for i in nodes]
    return [to_text(kernel.inside) for kernel in coalesce(DataflowGraph(func), alone, ANY_EXITS)]


def test_ancestor_defect_5_no_two_kernels_wait_for_each_other() -> None:
    """K2,2: 0 and 1 are read by 2 and by 3. Once 0 and 3 are one kernel, 1 and 2 cannot be."""
    graph = DataflowGraph(graphs.k22())
    assert "groups wait for each other" in str(why_not_plan(graph, kernels((0, 3), (1, 2))))
    assert coalesced(graphs.k22(), a="03", b="12") == ["{1}", "{2}", "{0,3}"]
    assert coalesced(graphs.k22(), a="0123") == ["{0..3}"]


def test_ancestor_defect_5_also_through_others() -> None:
    """crossed_pairs: 0 feeds 5, 2 feeds 3, and each pair waits for the other through 1 and 4."""
    assert "wait for each other" in str(
        why_not_plan(DataflowGraph(graphs.crossed_pairs()), kernels((0, 5), (2, 3)))
    )
    assert coalesced(graphs.crossed_pairs(), a="05", b="23") == ["{2}", "{3}", "{0,5}"]


def test_kernels_of_other_tags_stay() -> None:
    graph = DataflowGraph(graphs.chain())
    plan = [TaggedKernel(1, "a"), TaggedKernel(2, "b"), TaggedKernel(4, "b")]
    assert [(k.inside, k.tag) for k in coalesce(graph, plan, ANY_EXITS)] == [(1, "a"), (6, "b")]


def test_limits_of_the_merged_kernel_hold() -> None:
    assert merged(graphs.chain(), (0,), (1,), (2,), limits=Limits(max_depth=2)) == ["{0,1}", "{2}"]
    assert merged(graphs.diamond(), (0,), (1,), limits=Limits()) == ["{0}", "{1}"]


def test_merged_kernels_keep_their_parts() -> None:
    graph = DataflowGraph(graphs.chain())
    plan = [
        TaggedKernel(1, "a", nested=(Nested(1, "one"),)),
        TaggedKernel(6, "a", nested=(Nested(6, "two"),)),
    ]
    assert coalesce(graph, plan, ANY_EXITS) == (
        TaggedKernel(7, "a", nested=(Nested(1, "one"), Nested(6, "two"))),
    )


def test_kernels_without_an_order_are_returned_unchanged() -> None:
    graph = DataflowGraph(graphs.k22())
    plan = kernels((1, 2), (0, 3), (4,))
    assert {k.inside for k in coalesce(graph, plan, ANY_EXITS)} == {k.inside for k in plan}


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=9),
    st.lists(st.sampled_from(["a", "b", ""]), min_size=9, max_size=9),
    st.sampled_from([ANY_EXITS, Limits(), Limits(max_exits=2)]),
)
@settings(max_examples=60, deadline=None)
def test_coalescing_a_plan_gives_a_valid_plan_of_the_same_nodes(
    steps: list[tuple[int, int, int]], tags: list[str], limits: Limits
) -> None:
    """Kernels of one call each, of two tags; some calls are left alone."""
    graph = DataflowGraph(random_graph(steps))
    alone = [
        TaggedKernel(1 << node.index, tag)
        for node, tag in zip(graph.nodes, tags, strict=False)
        if tag and node.call is not None
    ]
    plan = coalesce(graph, alone, limits)
    assert why_not_plan(graph, plan) is None
    assert sorted(i for k in plan for i in _members(k.inside)) == sorted(
        i for k in alone for i in _members(k.inside)
    )
    assert all(k.sub_graph(graph).why_not_valid(limits) is None for k in plan)


def _members(inside: int) -> list[int]:
    return [i for i in range(inside.bit_length()) if inside >> i & 1]


def test_max_coalesce_offers_the_largest_only() -> None:
    assert found(MaxCoalesce(OpCallByKind()), graphs.chain()) == ["{0..2}"]
    assert found(MaxCoalesce(OpCallByKind()), graphs.opaque_in_the_middle()) == ["{0}", "{2}"]
    assert found(MaxCoalesce(Union((calls("exp"), FusionCone()))), graphs.diamond_with_tap()) == ["{0..2}"]


@pytest.mark.parametrize("name", sorted(graphs.GRAPHS))
def test_max_coalesce_is_a_plan(name: str) -> None:
    graph = DataflowGraph(graphs.GRAPHS[name]())
    plan = [TaggedKernel(p.inside, "t", p.hidden) for p in proposals(MaxCoalesce(OpCallByKind()), graph)]
    assert why_not_plan(graph, plan) is None
