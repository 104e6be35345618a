"""Backends that exclude each other are in no plan together, whichever search finds it and whoever checks it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from search_problems import cheapest, cost_of, excluding_problems, ids

from unity_collage.index_set import EMPTY
from unity_collage.plan.instance import packed, unpacked
from unity_collage.search import best_throughs, best_withouts
from unity_collage.search.alternatives import evolutionary_cover
from unity_collage.search.auto import certified, solve
from unity_collage.search.camps import camps
from unity_collage.search.certificate import why_not
from unity_collage.search.evolutionary import EvolutionSettings
from unity_collage.search.exact import cheapest_cover
from unity_collage.search.greedy import greedy_cover
from unity_collage.search.milp import milp_cover
from unity_collage.search.problem import NoCover, Option, Problem
from unity_collage.search.ties import with_ties_broken

CHAIN = ((), (0,), (1,))
OPTIONS = (
    Option(0, 0b001, 1.0, backend="a"),
    Option(1, 0b010, 1.0, backend="b"),
    Option(2, 0b100, 1.0, backend="a"),
    *(Option(3 + node, 1 << node, 3.0, backend="c") for node in range(3)),
)
MIXED = Problem(CHAIN, EMPTY, OPTIONS, exclusions=(("a", "b"),))


@pytest.mark.parametrize("algorithm", ["auto", "exact", "milp", "evolutionary"])
def test_the_cheapest_plan_has_one_of_the_two(algorithm: str) -> None:
    assert ids(solve(replace(MIXED, exclusions=()), algorithm)) == [0, 1, 2]
    found = solve(MIXED, algorithm)
    assert (ids(found), found.seconds) == ([0, 2, 4], 5.0)
    assert why_not(MIXED, certified(MIXED, found)) is None


def test_the_proof_holds_although_the_relaxed_problem_is_cheaper() -> None:
    certificate = certified(MIXED, solve(MIXED))
    assert (certificate.proved, certificate.proved_seconds) == (True, 5.0)
    mixed = solve(replace(MIXED, exclusions=()))
    assert why_not(MIXED, certified(replace(MIXED, exclusions=()), mixed)) == "a and b exclude each other"


def test_greedy_keeps_to_the_preferred_one() -> None:
    assert ids(greedy_cover(MIXED, ("b", "a", "c"))) == [1, 3, 5]
    assert ids(greedy_cover(MIXED, ("a", "b", "c"))) == [0, 2, 4]


def test_without_another_backend_there_is_no_plan() -> None:
    alone = replace(MIXED, options=OPTIONS[:3])
    for search in (cheapest_cover, milp_cover, greedy_cover):
        with pytest.raises(NoCover):
            search(alone)


def test_camps_are_the_largest_sets() -> None:
    problem = replace(MIXED, exclusions=(("a", "b"), ("c", "a")))
    assert [{option.backend for option in camp.options} for camp in camps(problem)] == [{"a"}, {"b", "c"}]
    assert [{o.backend for o in camp.options} for camp in camps(problem, ("b",))] == [{"b", "c"}, {"a"}]


def test_the_problem_of_a_plan_keeps_its_exclusions() -> None:
    assert unpacked(packed(MIXED)) == MIXED


def test_ties_are_not_broken_by_an_excluded_backend() -> None:
    """``b`` ties with ``c`` and is preferred, but ``a`` is in the plan."""
    wide = replace(OPTIONS[4], low=0.5, high=3.5)
    tied = replace(MIXED, options=(*OPTIONS[:4], wide, OPTIONS[5]))
    found = with_ties_broken(tied, solve(tied), ("b", "a", "c"))
    assert {option.backend for option in found.chosen} == {"a", "c"}


def test_regrets_are_those_of_plans_that_can_be() -> None:
    best = solve(MIXED)
    assert best_throughs(MIXED, best.seconds)[1].seconds == 7.0
    assert best_withouts(MIXED, best)[0].seconds == 7.0


@settings(max_examples=300, deadline=None)
@given(excluding_problems())
def test_all_searches_find_what_brute_force_finds(problem: Problem) -> None:
    least = cheapest(problem)
    for search in (cheapest_cover, milp_cover):
        if least is None:
            with pytest.raises(NoCover):
                search(problem)
            continue
        found = search(problem)
        assert found.seconds == pytest.approx(least)
        assert found.lower_bound <= least + 1e-9
        assert cost_of(problem, found.chosen) == pytest.approx(least)
    if least is not None:
        assert why_not(problem, certified(problem, solve(problem))) is None


@settings(max_examples=100, deadline=None)
@given(excluding_problems())
def test_other_searches_find_plans_that_can_be(problem: Problem) -> None:
    try:
        found = [greedy_cover(problem, ("three",)), cheapest_cover(problem)]
    except NoCover:
        return
    found.append(evolutionary_cover(problem, found[0], EvolutionSettings(population=6, generations=3)))
    found.append(with_ties_broken(problem, found[1], ("three", "two", "one")))
    assert all(cost_of(problem, solution.chosen) is not None for solution in found)


@settings(max_examples=100, deadline=None)
@given(excluding_problems(most=6))
def test_throughs_are_those_of_brute_force(problem: Problem) -> None:
    least = cheapest(problem)
    if least is None:
        return
    found = best_throughs(problem, least)
    for option in problem.options:
        with_it = cheapest(replace(problem, options=tuple(o for o in problem.options if o != option)))
        through = found.get(option.id)
        if through is not None and through.exact:
            assert through.seconds >= least - 1e-9
            if with_it is None or with_it > least + 1e-9:
                assert through.seconds == pytest.approx(least)


def test_without_a_kernel_no_plan_mixes_what_excludes_each_other() -> None:
    """In place of 1 there is 2, but not beside 0: the plan without 1 takes 3 in place of 0."""
    options = (
        Option(0, 0b01, 1.0, backend="a"),
        Option(1, 0b10, 1.0, backend="c"),
        Option(2, 0b10, 1.5, backend="b"),
        Option(3, 0b01, 10.0, backend="c"),
    )
    problem = Problem(((), (0,)), EMPTY, options, exclusions=(("a", "b"),))
    best = solve(problem)
    assert ids(best) == [0, 1]
    found = best_withouts(problem, best)
    assert {id_: (each.seconds, each.exact) for id_, each in found.items()} == {
        0: (11.0, True),
        1: (11.5, True),
    }


@settings(max_examples=150, deadline=None)
@given(excluding_problems(most=6))
def test_withouts_are_those_of_brute_force(problem: Problem) -> None:
    try:
        best = cheapest_cover(problem)
    except NoCover:
        return
    found = best_withouts(problem, best)
    for option in best.chosen:
        rest = tuple(other for other in problem.options if other.id != option.id)
        least, without = cheapest(replace(problem, options=rest)), found.get(option.id)
        assert (least is None) == (without is None)
        if without is not None and without.exact:
            assert without.seconds == pytest.approx(least)
