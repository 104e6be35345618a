"""Delta debugging: what it finds fails, and fails no longer without any one of its items."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unity_collage.inspection.bisection.delta import smallest_failing

ITEMS = range(64)


@pytest.mark.parametrize("culprits", [{0}, {63}, {17}, {3, 40}, {1, 2, 62}, {5, 6, 7, 8}])
def test_items_that_fail_together_are_found(culprits: set[int]) -> None:
    assert smallest_failing(ITEMS, lambda items: culprits <= set(items)) == tuple(sorted(culprits))


@pytest.mark.parametrize("culprit", [0, 31, 63])
def test_one_culprit_takes_as_many_tests_as_two_for_each_halving(culprit: int) -> None:
    tests: list[Sequence[int]] = []

    def fails(items: Sequence[int]) -> bool:
        tests.append(items)
        return culprit in items

    assert smallest_failing(ITEMS, fails) == (culprit,)
    assert len(tests) <= 2 * log2(len(ITEMS))


def test_one_of_several_culprits_is_found() -> None:
    found = smallest_failing(ITEMS, lambda items: not {9, 50}.isdisjoint(items))
    assert found in ((9,), (50,))


def test_an_item_alone_is_not_tried_without_others() -> None:
    def fails(items: Sequence[str]) -> bool:
        raise AssertionError(items)

    assert smallest_failing(["only"], fails) == ("only",)


@given(st.sets(st.frozensets(st.integers(0, 11), min_size=1), min_size=1, max_size=4))
def test_no_item_of_what_is_found_can_be_left_out(causes: set[frozenset[int]]) -> None:
    def fails(items: Sequence[int]) -> bool:
        return any(cause <= set(items) for cause in causes)

    found = smallest_failing(range(12), fails)
    assert fails(found)
    assert not any(fails([other for other in found if other != item]) for item in found)
