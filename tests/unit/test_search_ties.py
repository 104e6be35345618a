"""Ties: the policy decides where intervals overlap, and nowhere else; what it did is a claim that can be checked."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_problems import ids, problems

from unity_collage.index_set import members
from unity_collage.plan.candidate import VIEW
from unity_collage.search import Option, Problem, Solution, cheapest_cover
from unity_collage.search.certificate import certificate_of, why_not
from unity_collage.search.problem import NoCover
from unity_collage.search.tie_claim import TieClaim, why_not_ties
from unity_collage.search.ties import tied_with, with_ties_broken

CHAIN = ((), (0,), (1,))


def option(id_: int, inside: int, seconds: float, noise: float, backend: str) -> Option:
    return Option(id_, inside, seconds, 0, backend, seconds - noise, seconds + noise)


def plan(
    options: tuple[Option, ...], preference: tuple[str, ...] = ("lib", "tvm")
) -> tuple[Problem, Solution]:
    problem = Problem(CHAIN, 0, options)
    return problem, with_ties_broken(problem, cheapest_cover(problem), preference)


def test_the_preferred_backend_wins_a_tie() -> None:
    options = tuple(
        option(2 * node + turn, 1 << node, 10.0 - 0.1 * turn, 0.2, backend)
        for node in range(3)
        for turn, backend in enumerate(("lib", "tvm"))
    )
    problem, found = plan(options)
    assert ids(cheapest_cover(problem)) == [1, 3, 5] and ids(found) == [0, 2, 4]
    assert found.tie_seconds == pytest.approx(0.3) and found.is_closed
    assert ids(plan(options, ("tvm", "lib"))[1]) == [1, 3, 5]


def test_what_is_really_faster_stays() -> None:
    options = (
        option(0, 0b111, 10.0, 0.2, "lib"),
        option(1, 0b111, 9.0, 0.2, "tvm"),
    )
    problem, found = plan(options)
    assert ids(found) == [1] and not found.swaps and tied_with(problem, found) == {}


def test_fewer_transitions_count_more_than_preference() -> None:
    """The outer two are TVM's beyond doubt; between them the library would be preferred."""
    options = (
        option(0, 0b001, 1.0, 0.0, "tvm"),
        option(1, 0b010, 5.0, 0.2, "lib"),
        option(2, 0b010, 5.1, 0.2, "tvm"),
        option(3, 0b100, 1.0, 0.0, "tvm"),
    )
    problem, found = plan(options)
    assert ids(cheapest_cover(problem)) == [0, 1, 3] and ids(found) == [0, 2, 3]


def test_one_kernel_is_preferred_to_two_that_tie_with_it() -> None:
    options = (
        option(0, 0b011, 6.1, 0.1, "tvm"),
        option(1, 0b001, 3.0, 0.1, "tvm"),
        option(2, 0b010, 3.0, 0.1, "tvm"),
        option(3, 0b100, 1.0, 0.0, "tvm"),
    )
    problem, found = plan(options)
    assert ids(found) == [0, 3]
    assert [(swap.taken, sorted(swap.instead)) for swap in found.swaps] == [(0, [1, 2])]
    assert sorted(tied_with(problem, found)[0][0]) == [1, 2]


def test_a_view_is_not_a_kernel_and_has_no_transition() -> None:
    """As three kernels of two backends the plan with the view would give way to the two that tie with it."""
    options = (
        option(0, 0b001, 1.0, 0.0, "lib"),
        option(1, 0b010, 0.0, 0.0, VIEW),
        option(2, 0b100, 3.0, 0.1, "lib"),
        option(3, 0b110, 3.05, 0.1, "tvm"),
    )
    _, found = plan(options)
    assert ids(found) == [0, 1, 2] and not found.swaps


@pytest.mark.parametrize(("drift", "chosen"), [(0.0, [1, 2, 3]), (0.04, [0, 3])])
def test_costs_of_other_races_may_have_drifted(drift: float, chosen: list[int]) -> None:
    options = (
        option(0, 0b011, 6.4, 0.0, "tvm"),
        option(1, 0b001, 3.0, 0.0, "tvm"),
        option(2, 0b010, 3.0, 0.0, "tvm"),
        option(3, 0b100, 1.0, 0.0, "tvm"),
    )
    problem = replace(Problem(CHAIN, 0, options), drift=drift)
    cheapest = cheapest_cover(problem)
    found = with_ties_broken(problem, cheapest)
    assert ids(found) == chosen
    assert why_not_ties(problem, certificate_of(problem, cheapest), claim_of(found)) is None


def test_rivals_of_one_race_have_not_drifted() -> None:
    options = (option(0, 0b111, 10.0, 0.0, "lib"), option(1, 0b111, 9.9, 0.0, "tvm"))
    problem = replace(Problem(CHAIN, 0, options), drift=0.04)
    assert ids(with_ties_broken(problem, cheapest_cover(problem), ("lib", "tvm"))) == [1]


def test_a_tie_that_changes_nothing_is_still_reported() -> None:
    options = (option(0, 0b111, 10.0, 0.2, "lib"), option(1, 0b111, 10.1, 0.2, "tvm"))
    problem, found = plan(options)
    assert ids(found) == [0] and tied_with(problem, found) == {0: ((1,),)}


def test_two_runs_with_other_noise_end_with_one_plan() -> None:
    """Costs drawn from the intervals of each other: the cheapest plans differ, those with ties broken do not."""
    one = tuple(
        option(2 * n + t, 1 << n, 10 + 0.1 * ((n + t) % 2), 0.2, b)
        for n in range(3)
        for t, b in enumerate(("lib", "tvm"))
    )
    other = tuple(
        replace(o, seconds=20.1 - o.seconds, low=19.9 - o.seconds, high=20.3 - o.seconds) for o in one
    )
    (first, a), (second, b) = plan(one), plan(other)
    assert ids(cheapest_cover(first)) != ids(cheapest_cover(second)) and ids(a) == ids(b)


def claim_of(solution: Solution) -> TieClaim:
    return TieClaim(
        tuple(option.id for option in solution.chosen),
        tuple(members(solution.left_behind)),
        solution.seconds,
        tuple((swap.taken, swap.instead) for swap in solution.swaps),
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"chosen": (7,)}, "option 7 does not exist"),
        ({"chosen": (1, 2, 3)}, "the plans differ by more than the swaps"),
        ({"swaps": ()}, "the plans differ by more than the swaps"),
        ({"swaps": ((0, (1, 9)),)}, "option 0 replaces options that are not in the certified plan"),
        ({"seconds": 7.0}, "it costs 7.1 s, not 7.0 s"),
        ({"left_behind": (2,)}, "node 2 must not be left behind"),
    ],
)
def test_a_wrong_claim_is_named(change: dict[str, object], reason: str) -> None:
    options = (
        option(0, 0b011, 6.1, 0.1, "tvm"),
        option(1, 0b001, 3.0, 0.1, "tvm"),
        option(2, 0b010, 3.0, 0.1, "tvm"),
        option(3, 0b100, 1.0, 0.0, "tvm"),
    )
    problem, found = plan(options)
    certificate = certificate_of(problem, cheapest_cover(problem))
    assert why_not_ties(problem, certificate, claim_of(found)) is None
    why = why_not_ties(problem, certificate, replace(claim_of(found), **change))
    assert why is not None and reason in why


def test_options_that_do_not_tie_make_no_claim() -> None:
    options = (option(0, 0b111, 10.0, 0.2, "lib"), option(1, 0b111, 9.0, 0.2, "tvm"))
    problem = Problem(CHAIN, 0, options)
    certificate = certificate_of(problem, cheapest_cover(problem))
    why = why_not_ties(problem, certificate, TieClaim((0,), (), 10.0, ((0, (1,)),)))
    assert why is not None and "option 0 does not tie" in why


def test_swaps_that_add_more_than_their_intervals_allow_are_no_ties() -> None:
    """The middle kernels tie, but one of them is of another backend, whose values cost 5 s to read."""
    options = (
        option(0, 0b001, 1.0, 0.0, "tvm"),
        option(1, 0b010, 5.0, 0.2, "lib"),
        option(2, 0b010, 5.1, 0.2, "tvm"),
        option(3, 0b100, 1.0, 0.0, "tvm"),
    )
    problem = Problem(CHAIN, 0, options, transitions={("tvm", "lib"): 5.0, ("lib", "tvm"): 5.0})
    certificate = certificate_of(problem, cheapest_cover(problem))
    assert certificate.chosen == (0, 2, 3)
    why = why_not_ties(problem, certificate, TieClaim((0, 1, 3), (), 17.0, ((1, (2,)),)))
    assert why is not None and why.startswith("the swaps add 9.9")
    cheap = replace(problem, transitions={("tvm", "lib"): 0.1, ("lib", "tvm"): 0.1})
    assert why_not_ties(cheap, certificate, TieClaim((0, 1, 3), (), 7.2, ((1, (2,)),))) is None


@settings(max_examples=150, deadline=None)
@given(problems(), st.lists(st.integers(0, 3), min_size=1, max_size=20), st.sampled_from([0.0, 0.1]))
def test_every_broken_tie_can_be_checked(problem: Problem, noise: list[int], drift: float) -> None:
    options = tuple(
        replace(o, low=o.seconds - noise[n % len(noise)] / 2, high=o.seconds + noise[n % len(noise)] / 2)
        for n, o in enumerate(problem.options)
    )
    problem = replace(problem, options=options, drift=drift)
    try:
        cheapest = cheapest_cover(problem)
    except NoCover:
        return
    found = with_ties_broken(problem, cheapest, ("two", "one"))
    certificate = certificate_of(problem, cheapest)
    assert why_not(problem, certificate) is None
    assert why_not_ties(problem, certificate, claim_of(found)) is None
    assert found.seconds - cheapest.seconds <= found.tie_seconds + 1e-9
    assert found.is_closed == cheapest.is_closed
    assert with_ties_broken(problem, cheapest, ("two", "one")) == found


def test_a_tie_with_what_another_swap_has_taken_is_no_tie_with_the_plan() -> None:
    """0 ties with 1 and 1 with 2, but 2 costs more than twice as much as 0."""
    options = tuple(Option(id_, 0b1, float(id_ + 1), 0, "lib", id_ + 0.4, id_ + 1.5) for id_ in range(3))
    problem = Problem(((),), 0, options)
    found = cheapest_cover(problem)
    forged = TieClaim((2,), (), 3.0, ((1, (0,)), (2, (1,))))
    reason = why_not_ties(problem, certificate_of(problem, found), forged)
    assert reason == "option 2 replaces options that are not in the certified plan"
    honest = TieClaim((1,), (), 2.0, ((1, (0,)),))
    assert why_not_ties(problem, certificate_of(problem, found), honest) is None


def test_a_kernel_with_an_expected_cost_ties_with_none() -> None:
    measured = (option(0, 0b001, 5.0, 0.2, "tvm"), option(1, 0b110, 5.0, 0.2, "tvm"))
    guess = Option(2, 0b111, 10.05, 0, "lib", least=2.0)
    problem = Problem(CHAIN, 0, (*measured, guess), drift=0.025)
    found = with_ties_broken(problem, cheapest_cover(problem), ("lib", "tvm"))
    assert ids(found) == [0, 1] and tied_with(problem, found) == {}
    claim = TieClaim((2,), (), 10.05, ((2, (0, 1)),))
    reason = why_not_ties(problem, certificate_of(problem, found), claim)
    assert reason == "option 2 was not measured, so it ties with none"
    sure = replace(problem, options=(*measured, replace(guess, least=None)))
    assert ids(with_ties_broken(sure, cheapest_cover(sure), ("lib", "tvm"))) == [2]
