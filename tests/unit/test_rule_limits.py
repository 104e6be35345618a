"""Groups that exceed a limit of a rule are declined, and the plan names them."""

from __future__ import annotations

import pytest
from tvm import relax
from tvm.ir import IRModule
from tvm.relax.dpl import DFPattern as Pattern
from tvm.relax.dpl import is_op, wildcard
from tvm.target import Target

from unity_collage.annotations import COSTS, DECLINED, PLAN
from unity_collage.graph import DataflowGraph, Limits, OpKind
from unity_collage.passes import AnnotateCandidates, EstimateCosts, SearchPartition
from unity_collage.plan.candidate import DeclinedBinding
from unity_collage.plan.check import checked
from unity_collage.rules import ByKind, Combine, Combiner, DFPattern, FusionCone, OpCallByKind
from unity_collage.rules.base import Declined, Rule
from unity_collage.rules.region import Region
from unity_collage.testing import graphs
from unity_collage.testing.fake_backend import fake_backend, only_backends
from unity_collage.testing.fixed_cost import FixedCost


def limits(rule: Rule, func: relax.Function) -> list[tuple[int, str]]:
    """The last node and the reason of what a limit hides."""
    answers = rule.apply(DataflowGraph(func))
    return [(a.index, a.reason) for a in answers if isinstance(a, Declined) and a.condition == "limit"]


NUMBER = "only the 1 smallest groups and the largest one are offered"
SIZE = "groups of more than 2 operators, or 8 in a row, are not offered"
TRIED = "the pattern has more than 256 alternatives: the others are not tried"
DEPTH = "groups of more than 12 operators, or 2 in a row, are not offered"


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (FusionCone(), []),
        (FusionCone(max_size=3, max_depth=3), []),
        (FusionCone(max_size=2), [(2, SIZE)]),
        (FusionCone(max_depth=2), [(2, DEPTH)]),
        (FusionCone(max_regions=3), []),
        (FusionCone(max_regions=1), [(2, NUMBER)]),
        (FusionCone(recompute=True), []),
    ],
)
def test_a_cone_says_what_its_limits_hide(rule: FusionCone, expected: list[tuple[int, str]]) -> None:
    """The chain 0 relu, 1 exp, 2 tanh has one group of three operators."""
    assert limits(rule, graphs.chain()) == expected


def test_groups_that_compute_an_operator_again_are_counted_too() -> None:
    reason = "only 1 groups that compute an operator again are offered"
    rule = FusionCone(recompute=True, max_recomputed=2, max_regions=1)
    assert {reason} == {why for _, why in limits(rule, graphs.diamond())}


def test_unions_that_are_too_large_are_named() -> None:
    rule = Combine(
        OpCallByKind(), (ByKind(OpKind.BROADCAST, OpKind.BROADCAST),), Limits(max_depth=8), max_size=2
    )
    assert limits(rule, graphs.chain()) == [(2, "unions of more than 2 operators are not offered")]


def test_unions_that_were_not_tried_are_named_also_where_none_is_offered() -> None:
    """tanh does not join exp alone, and there is no step left for relu and exp together."""

    class Picky(Combiner):
        def joins(self, graph: DataflowGraph, up: Region, down: Region) -> bool:
            return up.inside != 0b010

    rule = Combine(OpCallByKind(), (Picky(),), Limits(), max_work=1)
    reason = "unions that end here are not all tried: more than 1 steps"
    assert (2, reason) in limits(rule, graphs.chain())


@pytest.mark.parametrize(("depth", "expected"), [(3, []), (4, [(2, TRIED)])])
def test_a_pattern_says_that_not_all_of_its_alternatives_are_tried(
    depth: int, expected: list[tuple[int, str]]
) -> None:
    """A sum has two orders of its operands, and 15 sums have more orders than are tried."""

    def sums(left: int) -> Pattern:
        return is_op("relax.add")(sums(left - 1), sums(left - 1)) if left else wildcard()

    def rule(root: str) -> DFPattern:
        return DFPattern("many", lambda: is_op(root)(sums(depth)), lambda calls: None, root)

    assert limits(rule("relax.tanh"), graphs.chain()) == expected
    assert limits(rule("relax.cos"), graphs.chain()) == []


def test_the_plan_and_the_checker_name_what_was_not_offered() -> None:
    toy = fake_backend("toy", "relax.nn.relu", "relax.exp", "relax.tanh")
    with only_backends(toy), Target("llvm"):
        func = AnnotateCandidates()(IRModule({"main": graphs.chain()}))["main"]
        hidden = DeclinedBinding("tvm", 2, SIZE, "limit")
        other = DeclinedBinding("tvm", 1, "opaque")
        func = DECLINED.write(func, (*DECLINED.read(func), hidden, other))
        costed = EstimateCosts(FixedCost())(IRModule({"main": func}))
        assert COSTS.on(costed["main"])
        plan = PLAN.read(SearchPartition()(costed)["main"])
    text = f"groups that end at 1 bindings were not all offered (tvm: {SIZE})"
    assert f"optimal among 9 candidates: {text}" in plan.remarks
    assert checked(plan).text.endswith(text)
