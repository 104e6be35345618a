"""Combine: golden sets on named graphs, and all of it by brute force on random ones."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_checks import found, proposals, random_graph, reasons

from unity_collage.graph import DataflowGraph, Limits, OpKind, SubGraph, members
from unity_collage.index_set import index_set, size, to_text
from unity_collage.rules import (
    ByKind,
    Combine,
    Combiner,
    Composite,
    Constant,
    Host,
    JoinAnything,
    OnlyValid,
    OpCallByKind,
    OpPredicate,
    TupleArgument,
    TupleProjection,
    Union,
)
from unity_collage.testing import graphs

BY_KIND = (
    ByKind(OpKind.OUT_EWISE_FUSABLE, OpKind.BROADCAST),
    ByKind(OpKind.BROADCAST, OpKind.REDUCTION),
    ByKind(OpKind.INJECTIVE, OpKind.INJECTIVE),
)
ANY_EXITS = Limits(max_exits=0, allow_taps=True)


def combined(*combiners: Combiner, limits: Limits | None = None) -> Combine:
    return Combine(OpCallByKind(), combiners, limits or Limits(max_depth=8))


def unions(rule: Combine, func: object) -> list[str]:
    return [text for text in found(rule, func) if "," in text or ".." in text]


def test_ancestor_defect_1_an_old_producer_meets_a_new_consumer() -> None:
    """relu(x) + relu(y): {relu, add} is made in the first round, and still meets the other relu."""
    assert unions(combined(*BY_KIND), graphs.two_branches_joining()) == ["{0,2}", "{0..2}", "{1,2}"]


def test_by_kind_a_diamond_is_grown_from_its_exit() -> None:
    assert unions(combined(*BY_KIND), graphs.diamond()) == ["{0..3}", "{1,3}", "{1..3}", "{2,3}"]


def test_by_kind_with_any_exits_there_is_every_convex_region() -> None:
    """0 relu, 1 exp, 2 tanh, 3 add: without {0,3} and {1,2}, which touch nowhere, and what 1 or 2 would cut."""
    rule = combined(ByKind(OpKind.BROADCAST, OpKind.BROADCAST), limits=ANY_EXITS)
    assert unions(rule, graphs.diamond()) == [
        "{0,1}",
        "{0,2}",
        "{0..2}",
        "{0..3}",
        "{1,3}",
        "{1..3}",
        "{2,3}",
    ]


def test_by_kind_anchors_end_where_injective_operators_begin() -> None:
    """0 matmul, 1 add, 2 reshape: a product takes the sum behind it, the sum goes into the view, all three do not."""
    rule = combined(*BY_KIND)
    assert [u for u in unions(rule, graphs.gelu_extract()) if max(_indexes(u)) <= 2] == ["{0,1}", "{1,2}"]


def _indexes(text: str) -> list[int]:
    return [int(n) for n in text.strip("{}").replace("..", ",").split(",")]


def test_tuple_argument_takes_one_field_or_several() -> None:
    """0 relu, 1 exp, 2 (0, 1), 3 concat: the tuple comes with its reader, the fields one by one."""
    rule = combined(TupleArgument())
    assert unions(rule, graphs.bound_tuple()) == ["{0,2,3}", "{0..3}", "{1..3}", "{2,3}"]


def test_tuple_argument_reads_tuples_written_in_place() -> None:
    assert unions(combined(TupleArgument()), graphs.intermediate_tuple()) == ["{0..2}", "{1,2}"]


def test_ancestor_concat_of_one_value_twice_has_one_producer() -> None:
    """concatenate((a, a)) ended Relay Collage with an overlap of a with itself."""
    assert unions(combined(TupleArgument()), graphs.concat_of_one_value_twice()) == ["{0,1}"]


def test_tuple_argument_asks_for_the_kinds_of_both_sides() -> None:
    rule = combined(TupleArgument(upstream_kind=OpKind.ELEMENTWISE, downstream_kind=OpKind.BROADCAST))
    assert unions(rule, graphs.bound_tuple()) == []


def test_projections_join_what_makes_the_tuple_and_what_reads_the_element() -> None:
    """0 split, 1 and 3 its elements, 2 exp(1), 4 concat((3, 2)): with one exit it is all or nothing of the split."""
    rule = combined(TupleProjection(), TupleArgument(), ByKind(OpKind.INJECTIVE, OpKind.INJECTIVE))
    assert unions(rule, graphs.split_projections_concat()) == ["{0..4}", "{2,4}"]


def test_projections_one_the_other_and_both() -> None:
    wide = combined(TupleProjection(), limits=ANY_EXITS)
    offered = unions(wide, graphs.split_projections_concat())
    assert {"{0,1}", "{0,3}", "{0,1,3}"} <= set(offered)
    two_results = combined(TupleProjection(), limits=Limits(max_exits=2))
    assert unions(two_results, graphs.split_projections_concat()) == ["{0,1,3}"]


def test_bound_constants_come_all_at_once_and_hidden_while_others_read_them() -> None:
    rule = combined(ByKind(OpKind.BROADCAST, OpKind.BROADCAST), Constant())
    with_constant = {
        to_text(p.inside): to_text(p.hidden) for p in proposals(rule, graphs.bound_constant()) if p.inside & 1
    }
    assert with_constant == {
        "{0,1}": "{0}",
        "{0,2}": "{0}",
        "{0,1,3}": "{0}",
        "{0,2,3}": "{0}",
        "{0..3}": "{}",
    }


def test_mixed_everything_there_is_of_a_tuple_of_two_branches() -> None:
    rule = combined(*BY_KIND, TupleArgument(), TupleProjection(), Constant())
    assert found(rule, graphs.bound_tuple()) == ["{0,2,3}", "{0..3}", "{0}", "{1..3}", "{1}", "{2,3}", "{3}"]


def test_join_anything_asks_for_no_kind() -> None:
    """Product, scale, softmax, product: by kind the products stay apart."""
    assert "{0..3}" in unions(combined(JoinAnything()), graphs.attention())
    assert unions(combined(*BY_KIND), graphs.attention()) == ["{0,1}", "{1,2}"]


def test_a_tuple_of_results_is_not_part_of_a_kernel() -> None:
    rule = combined(JoinAnything(), TupleArgument(), limits=ANY_EXITS)
    assert unions(rule, graphs.qkv()) == []


def test_labelled_parts_stay_apart_inside_larger_kernels() -> None:
    def part(label: str, *ops: str) -> Composite:
        return Composite(label, OpPredicate(label, frozenset(ops), lambda call: None))

    rule = Combine(Union((part("p.one", "relax.nn.relu"), part("p.two", "relax.exp"))), (JoinAnything(),))
    whole = proposals(rule, graphs.chain())[-1]
    assert (to_text(whole.inside), whole.label) == ("{0,1}", "p.one+p.two")
    assert [(part.inside, part.label) for part in whole.nested] == [(1, "p.one"), (2, "p.two")]


def test_parts_that_would_wait_for_each_other_are_not_joined() -> None:
    """K2,2 with the parts {a,d} and {c,b}: touching, disjoint, and impossible."""
    crossed = Union((_Exactly(0b01001, "ad"), _Exactly(0b00110, "cb")))
    assert unions(Combine(crossed, (JoinAnything(),), ANY_EXITS), graphs.k22()) == ["{0,3}", "{1,2}"]


class _Exactly:
    """Proposes these nodes as one part."""

    def __init__(self, inside: int, label: str):
        self._inside, self._label = inside, label

    def apply(self, graph: DataflowGraph):
        from unity_collage.rules import Found, Nested

        yield Found(self._inside, "exactly", self._label, nested=(Nested(self._inside, self._label),))


def test_two_proposals_of_the_same_nodes_both_stay() -> None:
    rule = Combine(Union((OpCallByKind(name="one"), OpCallByKind(name="two"))), BY_KIND)
    offered = proposals(rule, graphs.chain())
    assert [p.rule for p in offered if p.inside == 1] == ["one", "two"]
    assert len([p for p in offered if p.inside == 0b11]) == 1


def test_limits_of_depth_and_size_hold() -> None:
    assert unions(combined(*BY_KIND, limits=Limits(max_depth=2)), graphs.chain()) == ["{0,1}", "{1,2}"]
    small = Combine(OpCallByKind(), BY_KIND, max_size=3)
    assert unions(small, graphs.diamond()) == ["{1,3}", "{1..3}", "{2,3}"]
    assert "{0..3}" in unions(combined(*BY_KIND, limits=Limits(max_depth=3)), graphs.diamond())


def test_a_node_that_too_many_unions_end_at_says_so_and_keeps_the_largest() -> None:
    rule = Combine(OpCallByKind(), BY_KIND, max_unions=2)
    at_the_end = [
        p for p in proposals(rule, graphs.residual_ladder()) if p.inside >> 8 & 1 and size(p.inside) > 1
    ]
    assert [to_text(p.inside) for p in at_the_end] == ["{7,8}", "{6..8}", "{1..8}"]
    assert "too many unions end here: the smallest and the largest are offered" in reasons(
        rule, graphs.residual_ladder()
    )


def test_seeds_that_a_rule_proposes_itself_are_offered() -> None:
    rule = Combine(Union((OpCallByKind(), Host())), (TupleArgument(),))
    assert "{2}" in found(rule, graphs.bound_tuple())


STEPS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6)
LIMITS = st.sampled_from([Limits(), Limits(max_depth=2), Limits(max_exits=2), ANY_EXITS])


@given(STEPS, LIMITS)
@settings(max_examples=60, deadline=None)
def test_by_kind_is_what_the_definition_says(steps: list[tuple[int, int, int]], limits: Limits) -> None:
    graph = DataflowGraph(random_graph(steps))
    rule = Combine(OpCallByKind(), BY_KIND, limits, max_size=0, max_unions=0, max_work=0)
    assert found(rule, graph) == sorted(map(to_text, _closure(graph, limits, BY_KIND)))


def _closure(graph: DataflowGraph, limits: Limits, kinds: tuple[ByKind, ...]) -> set[int]:
    """Every set that is a call, or valid and can be split in two such sets of which one may feed the other."""
    calls = index_set(node.index for node in graph.nodes if node.call is not None)

    def fires(up: SubGraph, down: SubGraph) -> bool:
        return bool(up.exit & down.input) and any(
            up.kind <= rule.upstream_kind and down.kind <= rule.downstream_kind for rule in kinds
        )

    @cache
    def is_derived(inside: int) -> bool:
        if size(inside) == 1:
            return True
        if SubGraph(graph, inside).why_not_valid(limits) is not None:
            return False
        return any(
            fires(SubGraph(graph, part), SubGraph(graph, inside & ~part))
            and is_derived(part)
            and is_derived(inside & ~part)
            for part in _subsets(inside)
        )

    return {inside for inside in (*_subsets(calls), calls) if is_derived(inside)}


def _subsets(inside: int) -> list[int]:
    """All that are neither empty nor the whole."""
    found, part = [], (inside - 1) & inside
    while part:
        found.append(part)
        part = (part - 1) & inside
    return found


@given(STEPS, st.sampled_from([Limits(), ANY_EXITS]))
@settings(max_examples=60, deadline=None)
def test_joining_anything_gives_every_valid_connected_region(
    steps: list[tuple[int, int, int]], limits: Limits
) -> None:
    graph = DataflowGraph(random_graph(steps))
    rule = Combine(OpCallByKind(), (JoinAnything(),), limits, max_size=0, max_unions=0, max_work=0)
    calls = index_set(node.index for node in graph.nodes if node.call is not None)
    expected = [
        inside
        for inside in (*_subsets(calls), calls)
        if _is_connected(graph, inside) and SubGraph(graph, inside).why_not_valid(limits) is None
    ]
    assert found(rule, graph) == sorted(map(to_text, expected))


def _is_connected(graph: DataflowGraph, inside: int) -> bool:
    reached = inside & -inside
    while True:
        wider = reached
        for i in members(reached):
            wider |= graph.consumers[i] | index_set(graph.nodes[i].inputs)
        wider &= inside
        if wider == reached:
            return reached == inside
        reached = wider


@pytest.mark.parametrize("name", sorted(graphs.GRAPHS))
def test_what_is_combined_is_valid_and_comes_once(name: str) -> None:
    rule = combined(*BY_KIND, TupleArgument(), TupleProjection(), Constant())
    graph = DataflowGraph(graphs.GRAPHS[name]())
    everything = proposals(rule, graph)
    assert everything == proposals(OnlyValid(rule), graph)
    assert len({(p.inside, p.hidden, p.nested) for p in everything}) == len(everything)
