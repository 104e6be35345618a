"""Stages: every step once, in a valid order, in lanes that do not wait for each other; scratch memory is not shared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unity_collage.lowering.branches import Stage, Step, stages_of
from unity_collage.lowering.branches.scratch import BranchScratch
from unity_collage.lowering.branches.stages import seconds_of

US = 1e-6


def step(*sources: int, single: float | None = 10.0, split: float = 8.0) -> Step:
    return Step(frozenset(sources), split * US, None if single is None else single * US)


def several(stages: list[Stage]) -> list[Stage]:
    return [stage for stage in stages if len(stage) > 1]


def test_two_chains_run_side_by_side_and_what_joins_them_comes_after() -> None:
    chains = [step(), step(0), step(), step(2), step(1, 3)]

    assert stages_of(chains, 2) == [((0, 1), (2, 3)), ((4,),)]


def test_a_chain_has_no_stages() -> None:
    assert several(stages_of([step(), step(0), step(1)], 2)) == []


def test_kernels_that_lose_nothing_are_split() -> None:
    assert several(stages_of([step(split=5.0), step(split=5.0)], 2)) == []


def test_one_thread_has_no_stages() -> None:
    assert stages_of([step(), step()], 1) == [((0,),), ((1,),)]


def test_what_cannot_be_in_a_stage_stands_alone_between_them() -> None:
    library = step(0, 1, single=None)

    assert stages_of([step(), step(), library, step(2), step(2)], 2) == [((0,), (1,)), ((2,),), ((3,), (4,))]


def test_lanes_are_balanced() -> None:
    loads = (40.0, 10.0, 10.0, 10.0, 10.0)
    (stage,) = several(stages_of([step(single=load, split=0.8 * load) for load in loads], 2))

    assert sorted(stage) == [(0,), (1, 2, 3, 4)]


def test_the_end_of_the_longest_lane_is_left_for_later() -> None:
    steps = [step(), step(), step(1, single=100.0, split=51.0)]

    assert stages_of(steps, 2) == [((0,), (1,)), ((2,),)]


def test_a_lane_for_each_thread() -> None:
    (stage,) = several(stages_of([step() for _ in range(4)], 4))

    assert len(stage) == 4


@st.composite
def programs(draw: st.DrawFn) -> list[Step]:
    """Up to 14 steps, some of which cannot be in stages, and some of which are not kernels."""
    seconds = st.integers(1, 40)
    return [
        Step(
            frozenset(draw(st.sets(st.integers(max(0, number - 5), number - 1), max_size=3)))
            if number
            else frozenset(),
            draw(seconds) * US,
            draw(st.one_of(st.none(), seconds.map(lambda value: value * US))),
        )
        for number in range(draw(st.integers(1, 14)))
    ]


@given(programs(), st.integers(1, 4))
def test_stages_are_an_order_of_the_program_that_is_predicted_to_be_no_slower(
    steps: list[Step], lanes: int
) -> None:
    stages = stages_of(steps, lanes)

    assert sorted(number for stage in stages for lane in stage for number in lane) == list(range(len(steps)))
    done: set[int] = set()
    for stage in stages:
        assert len(stage) <= lanes
        for lane in stage:
            before = set(done)
            for number in lane:
                assert steps[number].sources <= before
                assert len(stage) == 1 or steps[number].single is not None
                before.add(number)
        done.update(number for lane in stage for number in lane)
    assert seconds_of(steps, stages) <= sum(step.split for step in steps) * (1 + 1e-9)


@st.composite
def lanes_with_results(draw: st.DrawFn) -> tuple[Stage, dict[int, frozenset[int]], dict[int, int]]:
    """Two lanes; results that later steps of their lane read, and their bytes."""
    lengths = draw(st.tuples(st.integers(1, 8), st.integers(1, 8)))
    first, second = tuple(range(lengths[0])), tuple(range(lengths[0], sum(lengths)))
    readers = {
        number: frozenset(draw(st.sets(st.sampled_from(lane[position + 1 :]), min_size=1)))
        for lane in (first, second)
        for position, number in enumerate(lane[:-1])
        if draw(st.booleans())
    }
    nbytes = {number: draw(st.integers(1, 5000)) for number in (*first, *second)}
    return (first, second), readers, nbytes


@given(lanes_with_results())
def test_no_two_results_that_are_needed_share_memory(
    given_lanes: tuple[Stage, dict[int, frozenset[int]], dict[int, int]],
) -> None:
    stage, readers, nbytes = given_lanes
    scratch = BranchScratch.of(stage, readers, nbytes)

    assert set(scratch.offsets) == set(readers)
    assert all(
        offset % 64 == 0 and offset + nbytes[n] <= scratch.nbytes for n, offset in scratch.offsets.items()
    )
    lane_of = {number: lane for lane in stage for number in lane}
    for one in readers:
        for other in readers:
            at_once = one < other and (lane_of[one] != lane_of[other] or max(readers[one]) >= other)
            begin, end = scratch.offsets[one], scratch.offsets[one] + nbytes[one]
            assert (
                not at_once
                or end <= scratch.offsets[other]
                or scratch.offsets[other] + nbytes[other] <= begin
            )


def test_memory_is_used_again_behind_the_last_reader() -> None:
    lane = (0, 1, 2, 3)
    readers = {0: frozenset({1}), 1: frozenset({2}), 2: frozenset({3})}

    scratch = BranchScratch.of((lane, (4,)), readers, dict.fromkeys(range(5), 640))

    assert [scratch.offsets[number] for number in (0, 1, 2)] == [0, 640, 0]


@pytest.mark.parametrize("lanes", [2, 3])
def test_lanes_do_not_write_into_one_page(lanes: int) -> None:
    stage = tuple((2 * lane, 2 * lane + 1) for lane in range(lanes))
    readers = {2 * lane: frozenset({2 * lane + 1}) for lane in range(lanes)}

    scratch = BranchScratch.of(stage, readers, dict.fromkeys(range(2 * lanes), 64))

    assert sorted(offset // 4096 for offset in scratch.offsets.values()) == list(range(lanes))
