"""Dataflow patterns: all matches there are, also several at one root."""

from __future__ import annotations

from collections.abc import Callable

from rule_checks import found, proposals
from tvm import relax
from tvm.relax.dpl import DFPattern as Pattern
from tvm.relax.dpl import TupleGetItemPattern, is_op, wildcard
from tvm.script import relax as R

from unity_collage.backends.onednn.lrn import lrn_pattern
from unity_collage.rules import DFPattern
from unity_collage.rules.alternatives import MAX_ALTERNATIVES, matches, tried
from unity_collage.testing import graphs


def rule(pattern: Callable[[], Pattern], root: str) -> DFPattern:
    return DFPattern("matched", pattern, lambda calls: None, root)


def relu(operand: Pattern | None = None) -> Pattern:
    return is_op("relax.nn.relu")(operand or wildcard())


def test_a_sum_whose_operands_both_fit_matches_twice() -> None:
    """relu(x) + relu(y) with the pattern relu(*) + *."""
    either = rule(lambda: is_op("relax.add")(relu(), wildcard()), "relax.add")
    assert found(either, graphs.two_branches_joining()) == ["{0,2}", "{1,2}"]


def test_both_sides_of_an_alternative_match() -> None:
    """tanh of exp, with or without the relu before it; TVM's matcher takes the first that fits."""
    maybe = rule(lambda: is_op("relax.tanh")(is_op("relax.exp")(wildcard() | relu())), "relax.tanh")
    assert found(maybe, graphs.chain()) == ["{0..2}", "{1,2}"]


def test_alternatives_of_operators_need_no_second_pattern() -> None:
    unary = rule(
        lambda: is_op("relax.add")(
            is_op("relax.exp")(wildcard()) | is_op("relax.tanh")(wildcard()), wildcard()
        ),
        "relax.add",
    )
    assert found(unary, graphs.diamond()) == ["{1,3}", "{2,3}"]


def test_matches_may_overlap() -> None:
    two_in_a_row = rule(
        lambda: is_op("relax.add")(is_op("relax.add")(wildcard(), wildcard()), wildcard()), "relax.add"
    )
    assert found(two_in_a_row, graphs.three_adds()) == ["{0,1}", "{1,2}"]


def test_what_a_wildcard_stands_for_is_outside_whatever_its_type() -> None:
    typed = rule(lambda: is_op("relax.exp")(wildcard().has_dtype("float32")), "relax.exp")
    assert found(typed, graphs.chain()) == ["{1}"]


def test_projections_of_the_pattern_are_inside() -> None:
    split_exp = rule(
        lambda: is_op("relax.exp")(TupleGetItemPattern(is_op("relax.split")(wildcard()), 0)), "relax.exp"
    )
    assert found(split_exp, graphs.split_projections_concat()) == ["{0..2}"]


def test_a_part_that_occurs_twice_is_one_value() -> None:
    def square() -> Pattern:
        operand = wildcard() | relu()
        return is_op("relax.multiply")(operand, operand)

    x = relax.Var("x", relax.TensorType((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            top = builder.emit(R.nn.relu(x))
            other = builder.emit(R.nn.relu(top))
            first = builder.emit(R.multiply(top, top))
            second = builder.emit(R.multiply(top, other))
            result = builder.emit_output(R.add(first, second))
        builder.emit_func_output(result)
    squares = rule(square, "relax.multiply")
    offered = proposals(squares, builder.get()["main"])
    assert [p.inside.bit_count() for p in offered] == [1, 2]


def test_the_check_sees_the_calls_of_each_match() -> None:
    seen: list[list[str]] = []

    def why_not(calls: list[relax.Call]) -> str | None:
        seen.append([call.op.name for call in calls])
        return None

    pattern = lambda: is_op("relax.tanh")(is_op("relax.exp")(wildcard() | relu()))  # noqa: E731
    found(DFPattern("p", pattern, why_not, "relax.tanh"), graphs.chain())
    assert seen == [["relax.exp", "relax.tanh"], ["relax.nn.relu", "relax.exp", "relax.tanh"]]


def test_parts_of_alternatives_are_named_by_the_pattern_they_come_from() -> None:
    operand = wildcard() | relu()
    pattern = is_op("relax.exp")(operand)
    func = graphs.chain()
    exp = func.body.blocks[0].bindings[1].value
    found_parts = list(matches(tried(pattern)[0], exp, relax.analysis.get_var2val(func)))
    assert all(pattern in match for match in found_parts) and len(found_parts) > 1


def sums(depth: int) -> Pattern:
    return wildcard() if depth == 0 else is_op("relax.add")(sums(depth - 1), sums(depth - 1))


def test_choices_are_limited() -> None:
    """Seven sums have 128 orders of operands, fifteen have more than are tried."""
    found, reason = tried(sums(3))
    assert (len(found), reason) == (1 + 2**7, None)
    found, reason = tried(sums(4))
    assert len(found) == 1 + MAX_ALTERNATIVES and "the others are not tried" in (reason or "")
    assert len(tried(relu())[0]) == 1


def test_only_what_makes_a_difference_is_decided() -> None:
    """The order of one value with itself makes none, nor do choices on the side that is not taken."""
    operand = wildcard()
    assert len(tried(is_op("relax.multiply")(operand, operand))[0]) == 1
    left, right = sums(2), is_op("relax.exp")(wildcard())
    assert len(tried(left | right)[0]) == 1 + 2**3 + 1


def test_the_normalization_of_onednn_is_tried_in_all_ways() -> None:
    assert tried(lrn_pattern())[1] is None
