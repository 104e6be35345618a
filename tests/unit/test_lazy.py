"""Lazy measurement finds what measuring everything finds, and asks for no cost twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unity_collage.index_set import index_set, members
from unity_collage.search import NoCover, Option, Problem, best_throughs, cheapest_cover
from unity_collage.search.lazy import Answer, LazySearch, LazySolution


@dataclass(frozen=True)
class Case:
    """Candidates whose costs hide behind bounds."""

    sources: tuple[tuple[int, ...], ...]
    host: int
    candidates: tuple[tuple[int, str], ...]
    """The nodes and the key of each."""
    truth: Mapping[str, Answer]
    bounds: Mapping[str, float]
    launch: float = 0.0

    @property
    def keys(self) -> dict[int, str]:
        return {number: key for number, (_, key) in enumerate(self.candidates)}

    def problem(self, answers: Mapping[str, Answer]) -> Problem:
        """As SearchPartition makes it: a node whose options have no cost may be left behind."""
        options = [
            Option(number, inside, float(answers[key]), backend=key[0])
            for number, (inside, key) in enumerate(self.candidates)
            if not isinstance(answers[key], str)
        ]
        costed = index_set(index for option in options for index in members(option.inside))
        without_cost = ~costed & ((1 << len(self.sources)) - 1)
        return Problem(self.sources, self.host | without_cost, tuple(options), self.launch)


class Asked:
    """Answers with the truth and remembers the questions."""

    def __init__(self, truth: Mapping[str, Answer]):
        self._truth = truth
        self.keys: list[str] = []

    def __call__(self, keys: Sequence[str]) -> dict[str, Answer]:
        self.keys += keys
        return {key: self._truth[key] for key in keys}


def search(case: Case, **options: Any) -> tuple[LazySolution, list[str]]:
    asked = Asked(case.truth)
    return LazySearch(case.keys, case.bounds, case.problem, asked, **options).run(), asked.keys


def costs() -> st.SearchStrategy[Answer]:
    return st.one_of(st.integers(0, 6).map(float), st.just("broken"))


def _bounds(answer: Answer) -> st.SearchStrategy[float]:
    """What may be known of a cost beforehand: nothing of one that there is not, else a part of it."""
    return st.sampled_from((0.0, 9.0) if isinstance(answer, str) else (0.0, answer / 2, answer))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count = draw(st.integers(1, 6))
    sources = tuple(
        tuple(sorted(draw(st.sets(st.integers(0, i - 1), max_size=3)))) if i else () for i in range(count)
    )
    keys = [f"{backend}{number}" for backend in "ab" for number in range(3)]
    sets = draw(st.lists(st.integers(1, (1 << count) - 1), min_size=1, max_size=9))
    insides = [inside for inside in sets if _convex(sources, inside)]
    truth = {key: draw(costs()) for key in keys}
    bounds = {key: draw(_bounds(answer)) for key, answer in truth.items()}
    return Case(
        sources,
        draw(st.integers(0, (1 << count) - 1)),
        tuple((inside, draw(st.sampled_from(keys))) for inside in insides),
        truth,
        bounds,
        float(draw(st.integers(0, 2))),
    )


def _convex(sources: tuple[tuple[int, ...], ...], inside: int) -> bool:
    graph = Problem(sources, 0, ())
    return not any(graph.upstream[i] & inside for i in members(graph.inputs(inside)))


def outcome(solve: Callable[[], float]) -> float | None:
    try:
        return solve()
    except NoCover:
        return None


@settings(max_examples=300, deadline=None)
@given(cases())
def test_the_plan_costs_what_the_eager_one_costs(case: Case) -> None:
    eager = outcome(lambda: cheapest_cover(case.problem(case.truth)).seconds)
    lazy = outcome(lambda: search(case)[0].solution.seconds)
    assert lazy == (None if eager is None else pytest.approx(eager))


@settings(max_examples=100, deadline=None)
@given(cases())
def test_no_key_is_measured_twice_and_the_others_could_not_matter(case: Case) -> None:
    try:
        found, asked = search(case)
    except NoCover:
        return
    assert len(asked) == len(set(asked)) and set(asked) == set(found.answers)
    assert all(case.truth[key] == answer for key, answer in found.answers.items())
    optimum = cheapest_cover(case.problem(case.truth)).seconds
    throughs = best_throughs(found.problem, found.solution.seconds)
    unmeasured = [through for id_, through in throughs.items() if case.keys[id_] in found.bounds]
    assert all(through.seconds >= optimum - 1e-9 for through in unmeasured)


@settings(max_examples=100, deadline=None)
@given(cases(), st.data())
def test_what_is_expected_does_not_change_the_plan(case: Case, data: st.DataObject) -> None:
    expected = {key: data.draw(st.sampled_from((0.5, 1.0, 4.0))) for key in data.draw(st.sets(keys_of(case)))}
    eager = outcome(lambda: cheapest_cover(case.problem(case.truth)).seconds)
    try:
        found, asked = search(case, expected=lambda _answers: expected)
    except NoCover:
        assert eager is None
        return
    assert found.solution.seconds == pytest.approx(eager) and len(asked) == len(set(asked))


def keys_of(case: Case) -> st.SearchStrategy[str]:
    return st.sampled_from(sorted(case.truth))


def test_the_plan_that_is_expected_is_measured_first() -> None:
    """By the bounds alone, the pair would be measured before the two that are expected to cost less."""
    candidates = ((0b11, "pair"), (0b01, "one"), (0b10, "two"))
    truth: dict[str, Answer] = {"pair": 9.0, "one": 2.0, "two": 2.0}
    case = Case(((), (0,)), 0, candidates, truth, {"pair": 1.0, "one": 1.0, "two": 1.0})
    assert search(case)[1][0] == "pair"
    assert search(case, expected=lambda _answers: {"one": 2.0, "two": 2.0})[1][:2] == ["one", "two"]


@settings(max_examples=100, deadline=None)
@given(cases(), st.data())
def test_a_search_that_was_ended_needs_nothing_the_next_time(case: Case, data: st.DataObject) -> None:
    """Whatever is expected then: expectations follow from what is known, which is more now."""
    try:
        found, _ = search(case)
    except NoCover:
        return
    expected = {key: data.draw(st.sampled_from((0.1, 1.0, 4.0))) for key in case.truth}
    again, asked = search(case, known=found.answers, expected=lambda _answers: expected)
    assert asked == [] and again.solution.seconds == found.solution.seconds


@settings(max_examples=100, deadline=None)
@given(cases(), st.integers(1, 5), st.data())
def test_doubtful_answers_count_at_the_end_of_the_search_alone(
    case: Case, factor: int, data: st.DataObject
) -> None:
    """A search that may not measure begins with them, in any order, and finds the same plan. Bounds may be wrong."""
    doubtful = {key: case.truth[key] for key in data.draw(st.sets(keys_of(case)))}
    case = replace(case, bounds={key: bound * factor for key, bound in case.bounds.items()})
    try:
        found, asked = search(case, rest=lambda keys: {key: doubtful[key] for key in keys if key in doubtful})
    except NoCover:
        return
    assert found.answers.keys() == {*asked, *doubtful} and not found.bounds.keys() & doubtful.keys()
    again, more = search(case, known=dict(reversed(found.answers.items())))
    assert more == [] and again.solution == found.solution and again.bounds == found.bounds
    if factor == 1:
        assert found.solution.seconds == pytest.approx(cheapest_cover(case.problem(case.truth)).seconds)


def test_the_bounds_after_a_failure_do_not_depend_on_the_order_of_answers() -> None:
    """Two costs are below their bounds, by different parts."""
    truth: dict[str, Answer] = {"a": 0.9, "b": 0.8, "c": 9.0}
    case = Case(((),), 0, tuple((1, key) for key in truth), truth, {"a": 1.0, "b": 1.0, "c": 2.0})
    for order in ("ab", "ba"):
        found, _ = search(case, known={key: truth[key] for key in order})
        assert found.bounds == {"c": pytest.approx(2.0 * 0.8 * 0.8)}


@settings(max_examples=100, deadline=None)
@given(cases())
def test_what_is_assumed_shows_as_a_gap(case: Case) -> None:
    eager = outcome(lambda: cheapest_cover(case.problem(case.truth)).seconds)
    try:
        found, _ = search(case, assume_fusion_pays=True)
    except NoCover:
        assert eager is None
        return
    assert eager is not None
    assert found.solution.lower_bound <= eager + 1e-9
    assert found.solution.seconds >= eager - 1e-9


@settings(max_examples=150, deadline=None)
@given(cases(), st.integers(2, 5))
def test_bounds_that_fail_are_noticed(case: Case, factor: int) -> None:
    """Then the search still ends, and reports every cost that was below its bound."""
    wrong = Case(case.sources, case.host, case.candidates, case.truth,
                 {key: bound * factor for key, bound in case.bounds.items()}, case.launch)  # fmt: skip
    try:
        found, asked = search(wrong)
    except NoCover:
        return
    assert set(found.failed) <= set(asked)
    if not found.failed:
        assert all(wrong.truth[k] == "broken" or wrong.truth[k] >= wrong.bounds[k] for k in asked)


def _pair(bound: float) -> Case:
    """Two bids for one node: the first costs 2; the second 5, and ``bound`` at least."""
    return Case(((),), 0, ((1, "a"), (1, "b")), {"a": 2.0, "b": 5.0}, {"a": 1.0, "b": bound})


def test_a_bid_whose_bound_is_too_high_is_not_measured() -> None:
    found, asked = search(_pair(bound=3.0))
    assert asked == ["a"] and found.bounds == {"b": 3.0}


def test_a_bid_that_could_win_is_measured() -> None:
    found, asked = search(_pair(bound=1.5))
    assert asked == ["a", "b"] and [option.id for option in found.solution.chosen] == [0]


def test_bounds_are_lowered_after_one_has_failed() -> None:
    """a is four times as fast as was thought possible, so b may be too."""
    case = Case(((),), 0, ((1, "a"), (1, "b")), {"a": 1.0, "b": 0.9}, {"a": 4.0, "b": 4.5})
    found, asked = search(case)
    assert found.failed == ("a", "b")[: len(found.failed)] and asked == ["a", "b"]
    assert found.solution.seconds == 0.9


def test_what_may_gain_most_is_measured_first() -> None:
    """The rival of a slow kernel, whose bound is the lowest of all, does not wait for rivals that can win little."""
    count, slow = 40, 39
    singles = tuple((1 << number, f"a{number}") for number in range(count))
    rivals = tuple((1 << number, f"b{number}") for number in range(count))
    truth = {f"a{number}": 10.0 for number in range(count)} | {f"b{number}": 9.5 for number in range(count)}
    bounds = {f"a{number}": 9.0 for number in range(count)} | {f"b{number}": 9.1 for number in range(count)}
    truth |= {f"a{slow}": 90.0, f"b{slow}": 2.0}
    bounds |= {f"a{slow}": 0.5, f"b{slow}": 1.0}
    _, asked = search(Case(((),) * count, 0, singles + rivals, truth, bounds))
    rivals_asked = [key for key in asked if key[0] == "b"]
    assert rivals_asked.index(f"b{slow}") <= len(rivals_asked) / 2


def test_equal_workloads_are_one_measurement() -> None:
    case = Case(((), (0,), (1,)), 0, ((1, "a"), (2, "a"), (4, "a")), {"a": 2.0}, {"a": 0.0})
    found, asked = search(case)
    assert asked == ["a"] and found.solution.seconds == 6.0


def test_a_node_without_any_cost_is_left_behind_as_eagerly() -> None:
    """The second node is only in a kernel with the first, and that one turns out to be broken."""
    case = Case(((), (0,)), 0, ((1, "a"), (3, "b")), {"a": 2.0, "b": "broken"}, {"a": 1.0, "b": 1.0})
    found, asked = search(case)
    assert sorted(asked) == ["a", "b"] and found.solution.left_behind == 2


def test_a_node_that_cannot_be_computed_is_named() -> None:
    """Both kernels are measured, but they overlap."""
    case = Case(((), (0,), (1,)), 0, ((3, "a"), (6, "b")), {"a": 1.0, "b": 1.0}, {"a": 0.0, "b": 0.0})
    with pytest.raises(NoCover):
        search(case)


def test_the_assumption_of_the_second_version_can_be_wrong() -> None:
    """a fuses badly: 9 for what its parts do for 2. The parts are inside a measured kernel, so none is measured."""
    case = Case(
        ((), (0,)), 0, ((3, "a0"), (1, "a1"), (2, "a2")), {"a0": 9.0, "a1": 1.0, "a2": 1.0},
        {"a0": 0.0, "a1": 0.5, "a2": 0.5},
    )  # fmt: skip
    assert search(case)[0].solution.seconds == 2.0
    found, asked = search(case, assume_fusion_pays=True)
    assert asked == ["a0"] and found.solution.seconds == 9.0
    assert found.solution.lower_bound == 1.0 and not found.solution.is_closed


@settings(max_examples=100, deadline=None)
@given(cases(), st.floats(0.5, 8.0))
def test_a_search_that_ends_early_knows_that_the_plan_costs_that_much(case: Case, enough: float) -> None:
    """As long as every kernel has a cost: for one that is refused its node is left behind."""
    case = replace(case, truth={key: 6.0 if isinstance(cost, str) else cost for key, cost in case.truth.items()},
                   bounds={key: min(bound, 6.0) for key, bound in case.bounds.items()})  # fmt: skip
    eager = outcome(lambda: cheapest_cover(case.problem(case.truth)).seconds)
    lazy = outcome(lambda: search(case, enough=enough)[0].solution.lower_bound)
    if lazy is not None and lazy >= enough:
        assert eager is None or eager >= enough - 1e-9
    else:
        assert lazy == (None if eager is None else pytest.approx(eager))


def test_what_is_known_is_not_asked_for_and_views_have_no_key() -> None:
    """The view does the first node for nothing, and the kernel of the second one is known."""
    case = Case(((), (0,)), 0, ((0b10, "a0"), (0b10, "b0")), {"a0": 2.0, "b0": 1.0}, {"a0": 1.0, "b0": 0.5})
    asked = Asked(case.truth)

    def problem(answers: Mapping[str, Answer]) -> Problem:
        made = case.problem(answers)
        return replace(made, free=0, options=(*made.options, Option(7, 0b01, 0.0, backend="view")))

    found = LazySearch(case.keys, case.bounds, problem, asked, known={"a0": 2.0}).run()
    assert asked.keys == ["b0"] and found.solution.seconds == 1.0
