"""True plans of random graphs are proved, and no forged one is taken for proved: brute force is the judge.

``make check-proofs`` draws 500 graphs for each test.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_problems import cheapest, excluding_problems, problems

from unity_collage.index_set import EMPTY, members
from unity_collage.plan.encoding import decode, encode
from unity_collage.search.auto import certified, solve
from unity_collage.search.bounds import lp_potentials, lp_proof
from unity_collage.search.branches import ProofBranch, branches_seconds, why_no_branches
from unity_collage.search.branching import MOST_BRANCHES, branched
from unity_collage.search.certificate import Certificate, certificate_of, why_not
from unity_collage.search.enumeration import Enumeration, least_seconds, why_not_enumerated
from unity_collage.search.problem import NoCover, Option, Problem
from unity_collage.search.proof import BoundProof, why_no_proof
from unity_collage.search.validity import ROUNDING, seconds_of_only

Draw = Callable[[st.SearchStrategy[Any]], Any]

Forge = Callable[[Problem, Certificate, Draw], Certificate | None]
"""Changes a claim; None where there is nothing to change."""


ANY_PROBLEM = st.one_of(problems(most=12), excluding_problems(most=12))


@given(ANY_PROBLEM)
def test_the_plan_that_is_found_is_the_cheapest_and_proved(problem: Problem) -> None:
    """A plan has no proof only where that takes too many cases, which thousands of graphs never did."""
    expected = cheapest(problem)
    try:
        found = solve(problem)
    except NoCover:
        assert expected is None
        return
    claim = certified(problem, found)
    assert why_not(problem, claim) is None
    assert claim.seconds == pytest.approx(expected)
    assert claim.proved or len(branched(problem, claim.seconds, 5.0)) >= MOST_BRANCHES


@given(ANY_PROBLEM, st.data())
def test_what_is_taken_for_proved_is_the_cheapest_plan(problem: Problem, data: st.DataObject) -> None:
    """Whatever is changed in a claim: it is refused, or is still true."""
    expected = cheapest(problem)
    if expected is None:
        return
    claim = certified(problem, solve(problem))
    for forge in data.draw(st.lists(st.sampled_from(FORGERIES), min_size=1, max_size=2)):
        claim = forge(problem, claim, data.draw) or claim
    if why_not(problem, claim) is None:
        assert claim.seconds >= expected - 1e-9
        assert claim.proved_seconds <= expected + 1e-9
        assert not claim.proved or claim.seconds == pytest.approx(expected)


def _another_plan(problem: Problem, claim: Certificate, draw: Draw) -> Certificate | None:
    """The best plan without a kernel of the claim is said to be proved by the same numbers."""
    if not claim.chosen:
        return None
    gone = draw(st.sampled_from(claim.chosen))
    try:
        other = solve(replace(problem, options=tuple(o for o in problem.options if o.id != gone)))
    except NoCover:
        return None
    made = certificate_of(problem, other, claim.proof, claim.enumeration, claim.branches)
    return replace(made, lower_bound=other.seconds, gap=0.0, proved=True)


def _other_words(problem: Problem, claim: Certificate, draw: Draw) -> Certificate:
    less = draw(st.floats(0.0, 1.0)) * claim.seconds
    words = (
        {"proved": not claim.proved},
        {"proof": None, "enumeration": None, "branches": ()},
        {"seconds": less, "lower_bound": less},
        {"proved_seconds": claim.seconds, "proved": True, "proof": None, "enumeration": None, "branches": ()},
        {"chosen": claim.chosen[1:]},
        {"left_behind": (*claim.left_behind, 0)},
    )
    return replace(claim, **draw(st.sampled_from(words)))


def _other_numbers(problem: Problem, claim: Certificate, draw: Draw) -> Certificate | None:
    """A potential is raised, and what it proves is said to be more."""
    if claim.proof is None:
        return None
    potentials = list(claim.proof.potentials)
    potentials[draw(st.integers(0, len(potentials) - 1))] += draw(st.floats(0.1, 5.0))
    proof = BoundProof(tuple(potentials), claim.proof.readings)
    return _proving(problem, replace(claim, proof=proof, enumeration=None, branches=()))


def _other_enumeration(problem: Problem, claim: Certificate, draw: Draw) -> Certificate:
    """An enumeration is claimed of some bound, with potentials of which one may be too high."""
    potentials = list(lp_potentials(problem))
    at = draw(st.integers(0, len(potentials) - 1))
    potentials[at] += draw(st.sampled_from((0.0, 0.0, 1.0)))
    bound = draw(st.floats(0.5, 1.5)) * claim.seconds
    enumeration = Enumeration(bound, tuple(potentials))
    return _proving(problem, replace(claim, proof=None, branches=(), enumeration=enumeration))


def _other_cases(problem: Problem, claim: Certificate, draw: Draw) -> Certificate:
    """A proof by cases with a case less, a case that charges other costs, or a case that is only said to be empty."""
    goal = draw(st.floats(0.5, 1.5)) * claim.seconds
    branches = list(claim.branches or branched(problem, goal, 1.0, most=6))
    at = draw(st.integers(0, len(branches) - 1))
    kind = draw(st.integers(0, 3))
    branch = branches[at]
    if kind == 0 and len(branches) > 1:
        del branches[at]
    elif kind == 1:
        charged = tuple((id_, seconds + draw(st.floats(-3.0, 3.0))) for id_, seconds in branch.charged)
        branches[at] = replace(branch, charged=charged)
    elif kind == 2:
        branches[at] = replace(branch, proof=None)
    else:
        branches[at] = replace(branch, forks=branch.forks[:-1])
    return _proving(problem, replace(claim, proof=None, enumeration=None, branches=tuple(branches)))


def _proving(problem: Problem, claim: Certificate) -> Certificate:
    """``claim``, with the words that fit its proof if that holds."""
    proved = branches_seconds(problem, claim.branches)
    proved = max(proved, *(proof.seconds for proof in (claim.proof, claim.enumeration) if proof), 0.0)
    reaches = proved >= claim.seconds - ROUNDING * claim.seconds
    return replace(claim, proved_seconds=proved, proved=reaches)


FORGERIES: tuple[Forge, ...] = (_another_plan, _other_words, _other_numbers, _other_enumeration, _other_cases)


@given(problems(), st.integers(1, 8))
def test_cases_prove_no_more_than_the_cheapest_plan(problem: Problem, most: int) -> None:
    """However high the goal, and wherever the branching stops."""
    expected = cheapest(problem)
    if expected is None:
        return
    branches = branched(problem, 2.0 * expected + 1.0, 5.0, most)
    assert why_no_branches(problem, branches) is None
    assert branches_seconds(problem, branches) <= expected + 1e-9


@given(problems(most=12), st.floats(0.25, 2.0))
def test_an_enumeration_finds_no_less_than_what_no_plan_costs(problem: Problem, share: float) -> None:
    """It may find less than the cheapest plan costs, never more: kernels need no order, and may overlap."""
    expected = cheapest(problem)
    if expected is None:
        return
    claim = Enumeration(share * expected, lp_potentials(problem))
    found = least_seconds(problem, claim)
    assert found is not None and found <= expected + 1e-9
    if problem.redundant and not any(o.inside.bit_count() > 1 for o in problem.options):
        assert found == pytest.approx(min(expected, claim.seconds))


def test_an_enumeration_does_not_trust_sums_that_are_rounded() -> None:
    """Each -63 vanishes beside 2**60: behind the last node 128 s would seem to be left, and less than nothing is."""
    alike = tuple(Option(id_, 0b011111, seconds) for id_, seconds in ((0, 1.0), (1, 100.0)))
    chain = ((), *((node,) for node in range(5)))
    problem = Problem(chain, EMPTY, (*alike, Option(2, 0b100000, 1.0)))
    forged = Enumeration(101.0, (2.0**60, -63.0, -63.0, -63.0, 128.0 - 2.0**60, 0.0))
    assert "too large to be added" in (why_not_enumerated(problem, forged) or "")
    assert why_not_enumerated(problem, Enumeration(2.0, (1.0, 0.0, 0.0, 0.0, 0.0, 1.0))) is None


def test_numbers_that_are_none_are_no_proof() -> None:
    endless = BoundProof((float("inf"), -float("inf"), 0.0))
    assert why_no_proof(RING, endless) == "a potential or a reading is not a finite number"


def test_a_node_that_does_not_exist_is_not_left_behind() -> None:
    claim = replace(certified(RING, solve(RING)), left_behind=(-1,))
    assert why_not(RING, claim) == "node -1 must not be left behind"


def test_an_enumeration_that_takes_too_long_is_no_proof() -> None:
    claim = Enumeration(2.0, lp_potentials(RING))
    assert least_seconds(RING, claim) == pytest.approx(2.0)
    assert least_seconds(RING, claim, most=1) is None


# Three nodes in a ring of pairs: by halves of the pairs the program covers them for 1.5, and a plan costs 2.
RING = Problem(
    ((), (), ()),
    EMPTY,
    (
        Option(0, 0b011, 1.0),
        Option(1, 0b110, 1.0),
        Option(2, 0b101, 1.0),
        *(Option(3 + node, 1 << node, 1.0) for node in range(3)),
    ),
    results=0b111,
)


def test_one_linear_program_is_not_enough_and_an_enumeration_or_cases_are() -> None:
    found = solve(RING)
    claim = certified(RING, found)
    assert lp_proof(RING).seconds == pytest.approx(1.5)
    assert claim.seconds == 2.0 and claim.proved and claim.proof is None
    assert claim.enumeration is not None and why_not(RING, claim) is None
    by_cases = certificate_of(RING, found, branches=branched(RING, 2.0, 5.0))
    assert by_cases.proved and len(by_cases.branches) > 1 and why_not(RING, by_cases) is None
    assert decode(Certificate, json.loads(json.dumps(encode(by_cases)))) == by_cases
    assert decode(Certificate, json.loads(json.dumps(encode(claim)))) == claim


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda found: found[1:], "do not fork at one option"),
        (lambda found: (*found, found[0]), "do not fork at one option"),
        (lambda found: (replace(found[0], forks=((9, 0),)), *found[1:]), "option 9, which does not exist"),
        (lambda found: (replace(found[0], charged=((5, 7.0),)), *found[1:]), "charges for options"),
        (lambda found: (replace(found[0], proof=None), *found[1:]), "may have several plans"),
        (
            lambda found: tuple(replace(b, proof=BoundProof((1.0, 1.0, 1.0))) for b in found),
            "costs 1.0 s less",
        ),
    ],
)
def test_a_wrong_proof_by_cases_is_named(
    change: Callable[[tuple[ProofBranch, ...]], tuple[ProofBranch, ...]], reason: str
) -> None:
    branches = branched(RING, 2.0, 5.0)
    assert reason in (why_no_branches(RING, change(branches)) or "")


def test_kernels_that_wait_for_each_other_are_no_case() -> None:
    """The cheap pairs cross, so they are in no plan together; no potentials show that."""
    options = (
        Option(0, 0b1001, 1.0),
        Option(1, 0b0110, 1.0),
        *(Option(2 + i, 1 << i, 10.0) for i in range(4)),
    )
    problem = Problem(((), (), (0, 1), (0, 1)), EMPTY, options)
    claim = certified(problem, solve(problem))
    assert claim.seconds == 21.0 and claim.proved and claim.branches
    assert why_not(problem, claim) is None


def test_a_set_of_options_is_a_plan_or_not() -> None:
    assert seconds_of_only(RING, [RING.options[0], RING.options[5]]) == 2.0
    assert seconds_of_only(RING, RING.options[:2]) == float("inf")
    assert list(members(RING.results)) == [0, 1, 2]


def test_an_enumeration_expects_costs_below_zero() -> None:
    """The pair costs 3 s. The two others cost 6 s and then 5 s less than nothing, so 1 s together."""
    single = Option(0, 0b01, -5.0), Option(1, 0b10, 6.0)
    problem = Problem(((), (0,)), EMPTY, (*single, Option(2, 0b11, 3.0)))
    assert cheapest(problem) == 1.0
    assert "a plan may cost 1.0 s" in (why_not_enumerated(problem, Enumeration(3.0, (-5.0, 6.0))) or "")
