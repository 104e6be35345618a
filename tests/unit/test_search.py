"""The search against brute force, on random graphs and on the shapes that misled its ancestors."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unity_collage.index_set import index_set, is_subset, members
from unity_collage.search import NoCover, Option, Problem, cheapest_cover, why_not_cover


def brute_force(problem: Problem) -> float | None:
    """The cheapest valid cover among all subsets of options."""
    best: float | None = None
    for count in range(len(problem.options) + 1):
        for chosen in combinations(problem.options, count):
            inside = index_set(i for option in chosen for i in members(option.inside))
            left = problem.everything & ~inside
            if why_not_cover(problem, chosen, left) is None:
                cost = sum(option.seconds + problem.launch_seconds for option in chosen)
                best = cost if best is None else min(best, cost)
    return best


def convex(sources: tuple[tuple[int, ...], ...], inside: int) -> bool:
    upstream = Problem(sources, 0, ()).upstream
    reads = Problem(sources, 0, ()).inputs(inside)
    return not any(upstream[i] & inside for i in members(reads))


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    count = draw(st.integers(1, 7))
    sources = tuple(
        tuple(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else () for i in range(count)
    )
    sets = draw(st.lists(st.integers(1, (1 << count) - 1), max_size=9))
    sets = [inside for inside in sets if convex(sources, inside)]
    prices = [draw(st.integers(1, 6)) for _ in sets]
    options = tuple(Option(i, s, float(p)) for i, (s, p) in enumerate(zip(sets, prices, strict=True)))
    free = draw(st.integers(0, (1 << count) - 1))
    return Problem(sources, free, options, launch_seconds=float(draw(st.integers(0, 2))))


@settings(max_examples=1500, deadline=None)
@given(problems())
def test_agrees_with_brute_force(problem: Problem) -> None:
    expected = brute_force(problem)
    if expected is None:
        with pytest.raises(NoCover):
            cheapest_cover(problem)
        return
    found = cheapest_cover(problem)
    assert found.seconds == pytest.approx(expected)
    assert why_not_cover(problem, found.chosen, found.left_behind) is None


def test_two_convex_kernels_that_wait_for_each_other_are_not_both_taken() -> None:
    """K2,2: a->b, a->d, c->b, c->d; {a,d} and {c,b} are convex, and together a cycle."""
    a, c, b, d = range(4)
    sources = ((), (), (a, c), (a, c))
    singles = [Option(i, 1 << i, 10.0) for i in range(4)]
    crossing = [Option(4, index_set((a, d)), 1.0), Option(5, index_set((c, b)), 1.0)]
    found = cheapest_cover(Problem(sources, 0, (*singles, *crossing)))
    assert found.seconds == 21.0


def test_an_uncoverable_node_is_named() -> None:
    with pytest.raises(NoCover) as error:
        cheapest_cover(Problem(((), (0,), (1,)), 0, (Option(0, 0b101, 1.0), Option(1, 0b001, 1.0))))
    assert error.value.index == 1


def test_the_launch_cost_can_flip_the_choice() -> None:
    sources = ((), (0,))
    options = (Option(0, 0b01, 1.0), Option(1, 0b10, 1.0), Option(2, 0b11, 2.5))
    assert cheapest_cover(Problem(sources, 0, options)).seconds == 2.0
    assert [o.id for o in cheapest_cover(Problem(sources, 0, options, launch_seconds=1.0)).chosen] == [2]


def test_equal_costs_give_the_option_offered_first() -> None:
    options = (Option(0, 0b1, 1.0), Option(1, 0b1, 1.0))
    assert cheapest_cover(Problem(((),), 0, options)).chosen == (options[0],)


def test_a_long_chain_with_residuals_is_quick_to_solve() -> None:
    count = 600
    sources = tuple((i - 1, i - 6) if i % 6 == 0 and i else (i - 1,) if i else () for i in range(count))
    options = [Option(i, 1 << i, 1.0 + i % 3) for i in range(count)]
    options += [Option(count + i, 0b111 << i, 2.0 + i % 5) for i in range(count - 2)]
    found = cheapest_cover(
        Problem(sources, 0, tuple(o for o in options if is_subset(o.inside, (1 << count) - 1)))
    )
    assert found.visited < 20_000
