"""Plans that hold few bytes: lifetimes and storages by hand, and the best plans by brute force."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_problems import cost_of, excluding_problems, problems

from unity_collage.index_set import EMPTY, members
from unity_collage.search.auto import solve
from unity_collage.search.exact import cheapest_cover
from unity_collage.search.memory import Footprint, curve_of, live_at, peak_of
from unity_collage.search.memory_bounded import MemoryGoal, memory_bounded
from unity_collage.search.plans import solution_of
from unity_collage.search.problem import NoCover, Option, Problem, Solution


def chain(*sizes: int) -> tuple[Problem, Solution]:
    """A kernel for each node, and each node reads the one before."""
    options = tuple(Option(i, 1 << i, 1.0) for i in range(len(sizes)))
    problem = Problem(tuple((i - 1,) if i else () for i in range(len(sizes))), EMPTY, options)
    return problem, cheapest_cover(problem)


def test_two_values_of_a_chain_live_at_a_time_and_the_result_has_its_own_memory() -> None:
    problem, plan = chain(100, 100, 100, 100)
    assert curve_of(problem, Footprint((100,) * 4, weights=7), plan) == (107, 207, 207, 207)
    assert list(members(live_at(problem, Footprint((100,) * 4), plan, [2]))) == [1, 2]


def test_a_storage_is_for_values_up_to_a_sixteenth_and_it_grows() -> None:
    """The third value takes the storage of the first one: it has the larger size from the start."""
    problem, plan = chain(100, 10, 1600, 10, 5)
    sizes = (100, 10, 1600, 10, 5)
    assert curve_of(problem, Footprint(sizes), plan) == (1600, 1610, 1610, 1610, 15)
    tiny = (100, 10, 1616, 10, 5)
    assert curve_of(problem, Footprint(tiny), plan) == (100, 110, 1626, 1626, 15)
    kinds = ("float32", "int8", "int8", "int8", "int8")
    assert curve_of(problem, Footprint(sizes, kinds), plan) == (100, 110, 1610, 1610, 15)


def test_a_view_keeps_what_it_reads_and_pages_round_up() -> None:
    """Node 1 is a view of node 0, which the last kernel reads."""
    options = tuple(Option(i, 1 << i, 1.0) for i in (0, 2, 3))
    problem = Problem(((), (0,), (0,), (1, 2)), 0b0010, options)
    plan = cheapest_cover(problem)
    assert curve_of(problem, Footprint((10, 0, 10, 10), page=8), plan) == (16, 32, 48)


def test_scratch_counts_while_a_kernel_runs_and_packed_copies_all_the_time() -> None:
    problem, plan = chain(10, 10)
    footprint = Footprint((10, 10), scratch={0: 100}, packed={1: 1000})
    assert curve_of(problem, footprint, plan) == (1110, 1020)


FUSED = Problem(
    ((), (0,), (1,)),
    EMPTY,
    (
        *(Option(i, 1 << i, 1.0, backend="quick") for i in range(3)),
        Option(3, 0b011, 5.0, backend="fused"),
        Option(4, 0b111, 9.0, backend="fused"),
    ),
)
SIZES = Footprint((100, 60, 10))


@pytest.mark.parametrize(
    ("limit", "chosen", "peak"),
    [(200, [0, 1, 2], 160), (160, [0, 1, 2], 160), (159, [2, 3], 70), (69, [4], 10)],
)
def test_the_cheapest_plan_under_a_limit_is_found_and_proved(
    limit: int, chosen: list[int], peak: int
) -> None:
    found = memory_bounded(FUSED, SIZES, cheapest_cover(FUSED), MemoryGoal(limit))
    assert found.solution is not None and found.is_proved
    assert sorted(option.id for option in found.solution.chosen) == chosen
    assert found.peak == peak


def test_that_there_is_none_under_a_limit_is_proved_or_not_said() -> None:
    found = memory_bounded(FUSED, SIZES, cheapest_cover(FUSED), MemoryGoal(9))
    assert (found.solution, found.peak, found.is_proved) == (None, 160, True)
    scratch = Footprint(SIZES.sizes, scratch=dict.fromkeys(range(5), 50))
    found = memory_bounded(FUSED, scratch, cheapest_cover(FUSED), MemoryGoal(20))
    assert (found.solution, found.peak, found.is_proved) == (None, 60, True)
    found = memory_bounded(FUSED, scratch, cheapest_cover(FUSED), MemoryGoal(20), max_plans=1)
    assert found.solution is None and not found.is_proved


def test_where_the_cheapest_plan_is_under_the_limit_no_plan_is_enumerated() -> None:
    cheapest = cheapest_cover(FUSED)
    found = memory_bounded(
        FUSED, SIZES, replace(cheapest, lower_bound=cheapest.seconds * (1 - 1e-15)), MemoryGoal(160)
    )
    assert found.solution is not None and found.is_proved and found.plans == 0


def test_seconds_are_traded_against_bytes() -> None:
    cheapest = cheapest_cover(FUSED)
    for price, chosen in ((0.01, [0, 1, 2]), (0.05, [2, 3]), (0.2, [4])):
        found = memory_bounded(FUSED, SIZES, cheapest, MemoryGoal(seconds_per_byte=price))
        assert found.solution is not None and found.is_proved
        assert sorted(option.id for option in found.solution.chosen) == chosen


def test_a_long_chain_is_under_its_limit_though_its_plans_cannot_be_enumerated() -> None:
    """Each pair is cheaper as two kernels, and only the fused ones avoid the large value between."""
    count = 200
    sources = tuple((i - 1,) if i else () for i in range(count))
    options = [Option(i, 1 << i, 1.0) for i in range(count)]
    options += [Option(count + i, 0b11 << i, 2.5) for i in range(0, count, 2)]
    problem = Problem(sources, EMPTY, tuple(options))
    sizes = Footprint(tuple(1000 if i % 2 == 0 else 10 for i in range(count)))
    found = memory_bounded(problem, sizes, cheapest_cover(problem), MemoryGoal(500), max_plans=50)
    assert found.solution is not None and found.peak <= 500
    assert peak_of(problem, sizes, found.solution) == found.peak


def test_a_plan_for_memory_has_no_backends_that_exclude_each_other() -> None:
    options = (Option(0, 0b01, 1.0, backend="a"), Option(1, 0b10, 1.0, backend="b"))
    options += tuple(Option(2 + node, 1 << node, 3.0, backend="c") for node in range(2))
    problem = Problem(((), (0,)), EMPTY, options, exclusions=(("a", "b"),))
    found = memory_bounded(problem, Footprint((10, 10)), solve(problem), MemoryGoal(seconds_per_byte=0.1))
    assert found.solution is not None and found.is_proved
    assert found.solution.seconds == 4.0


def plans(problem: Problem) -> Iterator[Solution]:
    """All valid plans, among all sets of options."""
    for number in range(len(problem.options) + 1):
        for chosen in combinations(problem.options, number):
            if cost_of(problem, chosen) is not None:
                yield solution_of(problem, chosen, "brute force")


@st.composite
def footprints(draw: st.DrawFn, problem: Problem) -> Footprint:
    numbers = st.sampled_from((0, 1, 3, 10, 40))
    bytes_of_options = st.dictionaries(st.sampled_from([o.id for o in problem.options]), numbers, max_size=3)
    count = len(problem)
    sizes = draw(st.lists(st.sampled_from((1, 2, 5, 20, 90)), min_size=count, max_size=count))
    views = problem.free if draw(st.booleans()) else EMPTY
    return Footprint(
        tuple(0 if views >> node & 1 else size for node, size in enumerate(sizes)),
        tuple(draw(st.lists(st.sampled_from("fi"), min_size=count, max_size=count))),
        draw(bytes_of_options),
        draw(bytes_of_options),
        frozenset(draw(st.sets(st.sampled_from([o.id for o in problem.options]), max_size=1))),
        weights=draw(st.integers(0, 5)),
        page=draw(st.sampled_from((1, 4))),
    )


@settings(max_examples=100, deadline=None)
@given(problems(most=7) | excluding_problems(most=7), st.data())
def test_the_best_plan_agrees_with_brute_force(problem: Problem, data: st.DataObject) -> None:
    try:
        cheapest = solve(problem)
    except NoCover:
        return
    footprint = data.draw(footprints(problem))
    every = [(plan.seconds, peak_of(problem, footprint, plan)) for plan in plans(problem)]
    limit = data.draw(
        st.sampled_from([None, *sorted({peak + more for _, peak in every for more in (-1, 0)})])
    )
    goal = MemoryGoal(limit, data.draw(st.sampled_from((0.0, 0.01, 0.5))))
    best = min(goal.score(*plan) for plan in every) if every else 0.0
    found = memory_bounded(problem, footprint, cheapest, goal)
    assert found.is_proved
    if found.solution is None:
        assert best == float("inf")
    elif every:
        assert goal.score(found.solution.seconds, found.peak) == pytest.approx(best)
        assert found.peak == peak_of(problem, footprint, found.solution)


@settings(max_examples=100, deadline=None)
@given(problems(most=8), st.data())
def test_values_without_shared_storages_are_held_from_the_first_to_the_last_use(
    problem: Problem, data: st.DataObject
) -> None:
    """Each value is of a type of its own, so that no storage is used again, and nothing is a view."""
    try:
        plan = solve(problem)
    except NoCover:
        return
    sizes = tuple(data.draw(st.integers(1, 50)) for _ in range(len(problem)))
    footprint = Footprint(sizes, tuple(map(str, range(len(problem)))))
    curve = curve_of(problem, footprint, plan)
    for turn, option in enumerate(plan.chosen):
        kept = live_at(problem, footprint, plan, [turn])
        assert problem.outputs(option) & ~kept == 0
        assert problem.inputs(option.inside) & ~kept == 0
        assert curve[turn] == sum(sizes[node] for node in members(kept))
        for node in members(kept):
            later = plan.chosen[turn:]
            reads = any(problem.inputs(other.inside) >> node & 1 for other in later)
            behind = any(node in problem.sources[index] for index in members(plan.left_behind))
            assert reads or behind or problem.wanted >> node & 1 or problem.outputs(option) >> node & 1
