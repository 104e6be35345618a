"""The checker finds what is wrong with a claim; potentials prove bounds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from unity_collage.index_set import EMPTY
from unity_collage.plan.encoding import decode, encode
from unity_collage.search.auto import certified, solve
from unity_collage.search.bounds import repaired
from unity_collage.search.certificate import Certificate, why_not
from unity_collage.search.exact import cheapest_cover
from unity_collage.search.problem import Option, Problem
from unity_collage.search.proof import BoundProof, why_no_proof

# 0 -> 1 (a view, free) -> 2, 0 -> 3, (2, 3) -> 4
SOURCES = ((), (0,), (1,), (0,), (2, 3))
OPTIONS = (
    Option(0, 0b00001, 1.0, backend="one"),
    Option(1, 0b00100, 2.0, backend="one"),
    Option(2, 0b01000, 1.0, backend="two"),
    Option(3, 0b10000, 1.0, backend="one"),
    Option(4, 0b11000, 3.0, backend="one"),
    Option(5, 0b00101, 9.0, backend="one"),
    Option(6, 0b01001, 1.0, EMPTY | 0b00001, "one"),
)
PROBLEM = Problem(SOURCES, 0b00010, OPTIONS, launch_seconds=0.5, transitions={("one", "two"): 0.25})
GOOD = certified(PROBLEM, cheapest_cover(PROBLEM))


def test_a_right_claim_stands() -> None:
    assert why_not(PROBLEM, GOOD) is None
    assert (GOOD.chosen, GOOD.left_behind, GOOD.seconds) == ((0, 1, 2, 3), (1,), 7.25)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"chosen": (0, 1, 2, 7)}, "option 7 does not exist"),
        ({"chosen": (0, 1, 2)}, "node 4 is covered 0 times"),
        ({"chosen": (0, 1, 2, 3, 4)}, "node 3 is covered 2 times"),
        ({"chosen": (1, 6, 3)}, "option 6 hides node 0"),
        ({"chosen": (1, 0, 2, 3)}, "option 1 runs before node 1"),
        ({"chosen": (5, 2, 3)}, "option 5 runs before node 1"),
        ({"left_behind": (1, 2)}, "node 2 must not be left behind"),
        ({"left_behind": ()}, "node 1 is covered 0 times"),
        ({"seconds": 7.0}, "it costs 7.25 s, not 7.0 s"),
        ({"seconds": float("nan")}, "it costs 7.25 s, not nan s"),
        ({"lower_bound": 7.5}, "lower bound 7.5 s is above the cost 7.25 s"),
        ({"lower_bound": 5.0}, "the gap is 0.31"),
        ({"proved": False}, "it is said to be not proved, and what is proved is 7.2"),
        ({"proof": None}, "it is said to be proved, and what is proved is nothing"),
        ({"proved_seconds": 7.5}, "it is said to prove 7.5 s, and it proves 7.2"),
        ({"proof": BoundProof((1.0,))}, "1 potentials for 5 nodes"),
        ({"proof": BoundProof((1.5, 0.5, 2.0, 1.5, 1.5))}, "node 1 is free"),
        ({"proof": BoundProof((1.5, 0.0, 2.5, 1.5, 1.75))}, "option 3 costs 0.25 s less than the proof says"),
        ({"proof": BoundProof((1.5, 0.0, 2.5, 0.0, 1.5))}, "said to be proved, and what is proved is 5.5 s"),
        ({"proof": BoundProof((1.5, 0.0, 2.5, 1.75, 1.5))}, "option 2 costs 0.25 s less than the proof says"),
        (
            {"proof": BoundProof((1.5, 0.0, 2.5, 2.0, 1.5), ((0, "two", 3, 0.5),))},
            "option 0 costs 0.25 s less than the proof says",
        ),
        (
            {"proof": BoundProof((1.5, 0.0, 2.5, 1.75, 1.5), ((1, "two", 3, 0.25),))},
            "node 1 may be left behind",
        ),
        ({"proof": BoundProof((1.5, 0.0, 2.5, 1.75, 1.5), ((0, "two", 3, -0.25),))}, "is -0.25"),
        ({"proof": BoundProof((1.5, 0.0, 2.5, 1.75, 1.5), 2 * ((0, "two", 3, 0.25),))}, "given twice"),
    ],
)
def test_a_wrong_claim_is_named(change: dict[str, Any], reason: str) -> None:
    found = why_not(PROBLEM, replace(GOOD, **change))
    assert found is not None
    assert reason in found


# 0 -> 1, 0 -> 2: node 0 may be computed in both
TWICE = Problem(
    ((), (0,), (0,)),
    EMPTY,
    (
        Option(0, 0b001, 3.0),
        Option(1, 0b010, 1.0),
        Option(2, 0b100, 1.0),
        Option(3, 0b011, 2.0, hidden=0b001),
        Option(4, 0b101, 2.0, hidden=0b001),
        Option(5, 0b011, 2.0, hidden=0b010),
    ),
    redundant=True,
)


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        ((3, 4), None),
        ((0, 1, 2), None),
        ((0, 3, 2), None),
        ((0, 3, 4), "node 0 is written and not wanted"),
        ((3, 2), "node 0 is wanted and written 0 times"),
        ((0, 1, 3, 2), "node 1 is wanted and written 2 times"),
        ((0, 1, 2, 5), "option 5 does not write its last node"),
    ],
)
def test_values_are_written_once_and_only_if_wanted_where_nodes_are_computed_twice(
    chosen: tuple[int, ...], reason: str | None
) -> None:
    seconds = sum(option.seconds for number in chosen for option in TWICE.options if option.id == number)
    claim = Certificate(chosen, (), seconds, seconds, 0.0, False, "hand")
    assert why_not(TWICE, claim) == reason


def test_two_kernels_that_wait_for_each_other_have_no_order() -> None:
    options = (Option(0, 0b1001, 1.0), Option(1, 0b0110, 1.0))
    problem = Problem(((), (), (0, 1), (0, 1)), EMPTY, options)
    for order in ((0, 1), (1, 0)):
        assert "runs before node" in (
            why_not(problem, Certificate(order, (), 2.0, 2.0, 0.0, True, "hand")) or ""
        )


def test_a_transition_is_in_the_proof() -> None:
    """The reading is paid by the transition from the backend that writes node 0, and by no one else."""
    proof = BoundProof((1.5, 0.0, 2.5, 1.75, 1.5), ((0, "two", 3, 0.25),))
    assert why_not(PROBLEM, replace(GOOD, proof=proof)) is None
    assert GOOD.proved and GOOD.proof is not None and GOOD.proof.readings


def test_the_certificate_of_a_chain_carries_potentials_and_goes_through_json() -> None:
    sources = tuple((i - 1,) if i else () for i in range(40))
    options = [Option(i, 1 << i, 1.0 + i % 3, backend=("one", "two")[i % 2]) for i in range(40)]
    options += [Option(40 + i, 0b11 << i, 2.1 + i % 4) for i in range(39)]
    transitions = {("one", "two"): 0.2, ("two", "one"): 0.1}
    problem = Problem(sources, EMPTY, tuple(options), launch_seconds=0.3, transitions=transitions)
    claim = certified(problem, solve(problem))
    assert claim.proved and claim.proof is not None
    assert len(claim.proof.potentials) == 40 and claim.proof.readings
    again = decode(Certificate, json.loads(json.dumps(encode(claim))))
    assert again == claim
    assert why_not(problem, again) is None


def test_potentials_that_hold_too_much_are_lowered_until_they_fit_exactly() -> None:
    options = (Option(0, 0b011, 0.3), Option(1, 0b110, 0.7), Option(2, 0b100, 0.1))
    problem = Problem(((), (0,), (1,)), EMPTY, options)
    potentials = (0.1, 0.2 + 1e-9, 0.6)
    assert "option 0 costs" in (why_no_proof(problem, BoundProof(potentials)) or "")
    assert why_no_proof(problem, repaired(problem, potentials)) is None
