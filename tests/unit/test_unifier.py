"""Unifier: the join of what is claimed of leaves, and the way between two claims that disagree."""

from __future__ import annotations

import pytest
from tvm.target import Target

from unity_collage.devices.solver import Claim, Disagreement, Unifier
from unity_collage.devices.table import joined
from unity_collage.plan.placed import ID, SCOPE, TARGET

PLAIN = Target({"kind": "llvm", "mcpu": "znver4"})
WITH_TOOLS = Target({"kind": "llvm", "mcpu": "znver4", "libs": ["some"]})
OTHER_TOOLS = Target({"kind": "llvm", "mcpu": "znver4", "libs": ["other"]})


@pytest.mark.parametrize(
    ("part", "first", "second", "join"),
    [
        (ID, 1, 1, 1),
        (ID, 0, 1, None),
        (SCOPE, "global", "texture", None),
        (TARGET, PLAIN, WITH_TOOLS, WITH_TOOLS),
        (TARGET, WITH_TOOLS, PLAIN, WITH_TOOLS),
        (TARGET, WITH_TOOLS, OTHER_TOOLS, None),
        (TARGET, PLAIN, Target("llvm"), None),
    ],
)
def test_the_join_of_two_values(part: str, first: object, second: object, join: object) -> None:
    assert str(joined(part, first, second)) == str(join)


def chain(length: int) -> Unifier:
    unifier = Unifier(joined)
    for leaf in range(length):
        unifier.add()
        if leaf:
            assert unifier.unify(leaf - 1, leaf, f"{leaf - 1}-{leaf}") is None
    return unifier


def test_a_disagreement_has_the_way_between_its_claims() -> None:
    unifier = chain(4)
    first, second = Claim(ID, 0, 0, "zero"), Claim(ID, 1, 3, "one")
    assert unifier.claim(first) is None
    found = unifier.claim(second)
    assert found == Disagreement((first, second), (0, 1, 2, 3), ("0-1", "1-2", "2-3"))
    assert unifier.claims(3) == {ID: first}, "a claim that was refused leaves nothing behind"


def test_classes_that_disagree_stay_apart() -> None:
    unifier = chain(2)
    for _ in range(2):
        unifier.add()
    assert unifier.unify(2, 3, "2-3") is None
    assert unifier.claim(Claim(ID, 0, 0, "zero")) is None
    assert unifier.claim(Claim(ID, 1, 3, "one")) is None
    found = unifier.unify(1, 2, "1-2")
    assert found is not None and found.path == (0, 1, 2, 3)
    assert unifier.root(1) != unifier.root(2)
    assert unifier.unify(1, 2, "1-2") == found, "the edge that was refused is not there twice"


def test_what_an_annotation_says_outlasts_what_a_rule_says() -> None:
    unifier = chain(2)
    assert unifier.claim(Claim(ID, 0, 0, "a rule", derived=True)) is None
    assert unifier.claim(Claim(ID, 0, 1, "an annotation")) is None
    assert unifier.claims(0)[ID].text == "an annotation"
    assert unifier.claim(Claim(ID, 0, 0, "a rule", derived=True)) is None
    assert unifier.claims(0)[ID].text == "an annotation"
