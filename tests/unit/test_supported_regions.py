"""Regions that a compiler of whole graphs could take: which are offered, which are not, and why."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_checks import found, proposals, random_graph, reasons
from tvm import relax
from tvm.script import relax as R

from unity_collage.graph import DataflowGraph, Limits
from unity_collage.graph.calls import op_name
from unity_collage.index_set import EMPTY, members
from unity_collage.rules import SupportedRegions
from unity_collage.rules.supported_regions import between_boundaries, connected, periods
from unity_collage.testing.conformance.cases import bound, function

SQUARE = (4, 4)
PRODUCTS = frozenset({"relax.matmul"})


def refuses_softmax(call: relax.Call) -> str | None:
    """Why ``call`` is not taken in these tests, or None."""
    return "softmax is not taken" if op_name(call) == "relax.nn.softmax" else None


def at_tanh(call: relax.Call) -> bool:
    """Where regions are cut in these tests."""
    return op_name(call) == "relax.tanh"


RULE = SupportedRegions(refuses_softmax, PRODUCTS, at_tanh)


def made(body: Callable[..., relax.Expr], inputs: int = 1) -> relax.Function:
    return function(body, [SQUARE] * inputs)


def weight(seed: int) -> relax.Expr:
    return relax.const(np.full(SQUARE, seed, np.float32))


def test_a_refused_operator_is_between_two_regions() -> None:
    func = made(lambda x: R.abs(R.nn.softmax(R.exp(R.nn.relu(x)))))
    assert found(RULE, func) == ["{0,1}", "{3}"]
    assert reasons(RULE, func) == ["softmax is not taken"]


def test_a_region_does_not_grow_around_a_refused_operator() -> None:
    """``exp`` reads the softmax of ``relu`` and ``relu`` itself: with both inside it would not be convex."""

    def body(x: relax.Expr) -> relax.Expr:
        relu = bound(R.nn.relu(x))
        return R.add(R.nn.softmax(relu), R.abs(relu))

    assert found(RULE, made(body)) == ["{0,2}", "{3}"]


def test_regions_are_also_cut_where_others_are_better() -> None:
    func = made(lambda x: R.abs(R.tanh(R.exp(R.nn.relu(x)))))
    assert found(RULE, func) == ["{0,1}", "{0..3}", "{3}"]


def test_a_product_is_offered_alone_and_with_what_is_behind_it() -> None:
    func = made(lambda x, y: R.nn.softmax(R.nn.relu(R.add(R.matmul(x, y), y))), 2)
    assert found(RULE, func) == ["{0..2}", "{0}"]


def test_what_repeats_is_offered_block_by_block() -> None:
    def block(x: relax.Expr) -> relax.Expr:
        one = bound(R.matmul(x, weight(1)))
        return bound(R.add(bound(R.matmul(R.nn.relu(one), weight(2))), x))

    def body(x: relax.Expr) -> relax.Expr:
        for _ in range(3):
            x = block(x)
        return x

    offered = [list(members(p.inside)) for p in proposals(RULE, made(body))]
    assert sorted(each for each in offered if len(each) == 4) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_equal_regions_count_once_and_a_limit_says_what_it_hides() -> None:
    func = made(lambda x: R.nn.relu(R.matmul(R.tanh(R.nn.relu(R.matmul(x, weight(1)))), weight(2))))
    assert "{3,4}" in found(SupportedRegions(refuses_softmax, PRODUCTS, at_tanh, max_each=2), func)
    few = SupportedRegions(refuses_softmax, PRODUCTS, at_tanh, max_each=1)
    assert "2 more regions (largest), 1 different ones are offered" in reasons(few, func)
    small = SupportedRegions(refuses_softmax, PRODUCTS, at_tanh, max_size=4)
    assert "a region of 5 operators, at most 4 are offered" in reasons(small, func)


def test_no_tuple_crosses_the_border() -> None:
    def body(x: relax.Expr) -> relax.Expr:
        parts = bound(R.split(x, 2, axis=1))
        return R.concat((R.nn.softmax(parts[1]), parts[0]), axis=1)

    graph = DataflowGraph(made(body))
    for proposal in proposals(RULE, graph):
        exits = proposal.sub_graph(graph).exit
        assert all(isinstance(graph.nodes[i].var.ty, relax.TensorType) for i in members(exits))


def test_views_alone_are_no_region() -> None:
    func = made(lambda x: R.reshape(x, (16,)))
    assert found(RULE, func) == []


def test_long_regions_have_short_labels() -> None:
    func = made(lambda x: R.abs(R.exp(R.nn.relu(R.negative(R.abs(x))))))
    assert [p.label for p in proposals(RULE, func)] == ["5 operators abs...abs"]


def test_rules_are_values() -> None:
    again = SupportedRegions(refuses_softmax, PRODUCTS, at_tanh)
    assert (again, hash(again)) == (RULE, hash(RULE))
    assert "SupportedRegions(" in str(RULE)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("abcbcd", [(1, 3), (3, 5)]),
        ("aaaa", [(0, 1), (1, 2), (2, 3), (3, 4)]),
        ("abab", [(0, 2), (2, 4)]),
        ("abc", []),
    ],
)
def test_periods(names: str, expected: list[tuple[int, int]]) -> None:
    assert periods(names) == expected


STEPS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=14)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_all_regions_are_valid_and_within_what_is_taken(steps: list[tuple[int, int, int]]) -> None:
    graph = DataflowGraph(random_graph(steps))
    taken = sum(1 << node.index for node in graph.nodes if node.op != "relax.nn.softmax")
    offered = proposals(RULE, graph)
    for proposal in offered:
        assert proposal.sub_graph(graph).why_not_valid(Limits(max_exits=0, allow_taps=True)) is None
        assert not proposal.inside & ~taken
    assert len({proposal.inside for proposal in offered}) == len(offered)
    parts = connected(graph, taken)
    assert sum(parts) == taken  # each node is in one
    for part in parts:
        steps_of = between_boundaries(graph, part)
        assert sum(steps_of) == part
        assert EMPTY not in steps_of
