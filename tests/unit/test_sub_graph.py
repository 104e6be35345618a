"""Sub-graphs: parts inside them, unions, wrapping, the same one in another graph."""

from __future__ import annotations

import pytest
from tvm import relax

from unity_collage.graph import (
    DataflowGraph,
    Limits,
    Nested,
    SubGraph,
    disjoint_union,
    extract,
    index_mapping,
    index_set,
    outside_vars,
    substituted,
    wrapped,
)
from unity_collage.lowering.outline import Group, global_var, outline
from unity_collage.testing import graphs

ANYTHING = Limits(max_exits=0, allow_taps=True)


def sub_graph(
    func: relax.Function, *inside: int, hidden: tuple[int, ...] = (), nested: tuple[Nested, ...] = ()
) -> SubGraph:
    return SubGraph(DataflowGraph(func), index_set(inside), index_set(hidden), nested)


@pytest.mark.parametrize(
    ("func", "inside", "limits", "reason"),
    [
        (graphs.shared_input(), (0, 1), Limits(), "2 exits"),
        (graphs.shared_input(), (0, 1), Limits(max_exits=2), None),
        (graphs.diamond_multi_output(), (0, 1, 2), Limits(), "2 exits {1,2}"),
        (graphs.diamond_multi_output(), (0, 1, 2), Limits(max_exits=2), None),
        (graphs.three_adds(), (0, 2), ANYTHING, "not convex"),
        (graphs.three_adds(), (0, 1, 2), Limits(), None),
        (graphs.escaping_part_value(), (0, 1), Limits(max_exits=2), "tap: "),
        (graphs.escaping_part_value(), (0, 1), ANYTHING, None),
        (graphs.control_flow_beside(), (1, 2), ANYTHING, "different dataflow blocks"),
        (graphs.control_flow_beside(), (2,), ANYTHING, "not in a dataflow block"),
        (graphs.chain(), (), Limits(), "no nodes"),
    ],
)
def test_the_conditions_of_validity(
    func: relax.Function, inside: tuple[int, ...], limits: Limits, reason: str | None
) -> None:
    why = sub_graph(func, *inside).why_not_valid(limits)
    assert (why is None) if reason is None else (why is not None and reason in why)


def test_hidden_nodes_are_inside_and_something_else_is_written() -> None:
    assert "hidden nodes {2} are not inside" in str(
        sub_graph(graphs.diamond(), 0, 1, hidden=(2,)).why_not_valid(Limits())
    )
    assert "nothing would be written" in str(
        sub_graph(graphs.diamond(), 0, hidden=(0,)).why_not_valid(Limits())
    )
    assert sub_graph(graphs.diamond(), 0, 1, hidden=(0,)).why_not_valid(Limits()) is None


def test_ancestor_defect_4_parts_that_overlap_are_refused() -> None:
    parts = (Nested(0b011, "first"), Nested(0b110, "second"))
    why = sub_graph(graphs.chain(), 0, 1, 2, nested=parts).why_not_valid(Limits())
    assert why == "part second shares {1} with another part"


def test_parts_lie_inside() -> None:
    why = sub_graph(graphs.chain(), 0, 1, nested=(Nested(0b110, "late"),)).why_not_valid(Limits())
    assert why == "part late {1,2} is not inside {0,1}"


def test_parts_that_wait_for_each_other_are_refused() -> None:
    """K2,2: 0 and 1 are both read by 2 and 3, so {0,3} and {1,2} have no order; {0,2} and {1} have one."""
    crossed = (Nested(0b1001, "a"), Nested(0b0110, "b"))
    why = sub_graph(graphs.k22(), 0, 1, 2, 3, 4, nested=crossed).why_not_valid(Limits())
    assert why is not None and "wait for each other" in why
    ordered = (Nested(0b0101, "a"), Nested(0b0010, "b"))
    assert sub_graph(graphs.k22(), 0, 1, 2, 3, 4, nested=ordered).why_not_valid(Limits()) is None


def test_parts_and_loose_nodes_make_one_kernel() -> None:
    parts = (Nested(0b00011, "first"), Nested(0b01100, "second"))
    sub = sub_graph(graphs.labelled_parts(), 0, 1, 2, 3, 4, nested=parts)
    assert sub.why_not_valid(Limits()) is None


def test_a_union_holds_the_parts_of_both_by_first_node() -> None:
    graph = DataflowGraph(graphs.labelled_parts())
    late, early = wrapped(SubGraph(graph, 0b01100), "second"), wrapped(SubGraph(graph, 0b00011), "first")
    union = disjoint_union(late, early)
    assert isinstance(union, SubGraph)
    assert union.inside == 0b01111
    assert [part.label for part in union.nested] == ["first", "second"]


def test_a_hidden_node_of_a_union_is_hidden_only_from_the_outside() -> None:
    """relu is computed for exp only; with tanh and add no outside node reads it."""
    graph = DataflowGraph(graphs.diamond())
    first = SubGraph(graph, 0b0011, hidden=0b0001)
    grown = disjoint_union(first, SubGraph(graph, 0b1000))
    assert isinstance(grown, SubGraph) and grown.hidden == 0b0001
    whole = disjoint_union(grown, SubGraph(graph, 0b0100))
    assert isinstance(whole, SubGraph) and whole.hidden == 0


def test_no_union_of_what_overlaps_or_is_of_two_graphs() -> None:
    graph = DataflowGraph(graphs.chain())
    assert disjoint_union(SubGraph(graph, 0b011), SubGraph(graph, 0b110)) == "both hold {1}"
    other = DataflowGraph(graphs.chain())
    assert disjoint_union(SubGraph(graph, 1), SubGraph(other, 2)) == "sub-graphs of two graphs"


def test_wrapping_dissolves_inner_parts() -> None:
    sub = sub_graph(graphs.chain(), 0, 1, nested=(Nested(1, "inner"),))
    assert wrapped(sub, "outer").nested == (Nested(0b011, "outer"),)


def test_a_sub_graph_is_found_again_in_the_graph_after_outlining() -> None:
    """relu and exp of labelled_parts become a call; {tanh, abs} is the same sub-graph at other indexes."""
    func = graphs.labelled_parts()
    graph = DataflowGraph(func)
    first = SubGraph(graph, 0b00011)
    callee = extract(first)
    outlined = outline(graph, [Group(first, global_var("first", callee), tuple(outside_vars(first)))])
    there = DataflowGraph(outlined)
    mapping = index_mapping(graph, there)
    second = wrapped(SubGraph(graph, 0b01100), "second")
    moved = substituted(second, there, mapping)
    assert isinstance(moved, SubGraph)
    assert moved.label == "tanh+abs" and moved.nested[0].inside == moved.inside == 0b0110
    assert moved.why_not_valid(Limits()) is None
    lost = substituted(first, there, mapping)
    assert isinstance(lost, str) and "(relax.nn.relu) has no counterpart in the other graph" in lost


def test_what_a_part_keeps_to_itself_stays_for_others_that_read_it() -> None:
    """relu is inside the first part, which writes exp alone; the second reads relu, and no other kernel computes it."""
    graph = DataflowGraph(graphs.diamond())
    parts = SubGraph(graph, 0b0011, hidden=0b0001), SubGraph(graph, 0b0100)
    groups = [
        Group(sub, global_var(name, extract(sub)), tuple(outside_vars(sub)))
        for name, sub in zip(("first", "second"), parts, strict=True)
    ]
    block = outline(graph, groups).body.blocks[0]
    relu = graph.nodes[0].binding.value
    assert sum(binding.value.same_as(relu) for binding in block.bindings) == 1
    assert len(block.bindings) == 4


def test_several_nodes_may_become_one() -> None:
    graph, there = DataflowGraph(graphs.chain()), DataflowGraph(graphs.chain())
    moved = substituted(SubGraph(graph, 0b011), there, {0: 1, 1: 1})
    assert isinstance(moved, SubGraph) and moved.inside == 0b010
