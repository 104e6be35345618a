"""Greedy's priorities, breeding, and the one door to all searches."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_problems import cheapest, ids, problems

from unity_collage.index_set import EMPTY
from unity_collage.search import auto
from unity_collage.search.alternatives import alternatives, evolutionary_cover, picked, seconds_of
from unity_collage.search.auto import ALGORITHMS, solve
from unity_collage.search.certificate import certificate_of, why_not
from unity_collage.search.evolutionary import EvolutionSettings, EvolutionState, evolve, first_state
from unity_collage.search.greedy import greedy_cover
from unity_collage.search.milp import milp_cover
from unity_collage.search.problem import NoCover, Option, Problem

SOURCES = tuple((i - 1,) if i else () for i in range(6))
SINGLES = tuple(Option(i, 1 << i, 1.0, backend="tvm") for i in range(6))


def test_greedy_takes_the_largest_of_the_preferred_backend_whatever_it_costs() -> None:
    small, large = Option(6, 0b000111, 9.0, backend="lib"), Option(7, 0b111100, 99.0, backend="lib")
    other = Option(8, 0b000011, 0.1, backend="other")
    problem = Problem(SOURCES, EMPTY, (*SINGLES, small, large, other))
    assert ids(greedy_cover(problem, ("lib",))) == [7, 8]
    assert ids(greedy_cover(problem, ("other", "lib"))) == [7, 8]
    assert ids(greedy_cover(problem, ())) == [2, 3, 4, 5, 8]


def test_greedy_gives_up_what_leaves_a_node_uncovered() -> None:
    """Node 2 is only in an option that overlaps the larger one."""
    options = (
        *SINGLES[:2],
        *SINGLES[3:],
        Option(6, 0b11, 5.0, backend="lib"),
        Option(7, 0b110, 1.0, backend="tvm"),
    )
    assert ids(greedy_cover(Problem(SOURCES, EMPTY, options), ("lib",))) == [0, 3, 4, 5, 7]


def test_greedy_takes_no_kernel_that_would_wait_for_another() -> None:
    crossing = (Option(4, 0b1001, 1.0, backend="lib"), Option(5, 0b0110, 1.0, backend="lib"))
    singles = tuple(Option(i, 1 << i, 10.0) for i in range(4))
    problem = Problem(((), (), (0, 1), (0, 1)), EMPTY, (*singles, *crossing))
    assert ids(greedy_cover(problem, ("lib",))) == [1, 2, 4]


def test_integer_programming_starts_from_a_plan_and_answers_with_it_when_time_is_short() -> None:
    problem = Problem(SOURCES, EMPTY, (*SINGLES, Option(6, 0b111111, 2.0)))
    start = greedy_cover(problem, ("tvm",))
    found = milp_cover(problem, 0.0, start)
    assert found.lower_bound <= found.seconds <= start.seconds


@settings(max_examples=300, deadline=None)
@given(problems())
def test_any_combination_of_alternatives_is_a_valid_plan(problem: Problem) -> None:
    try:
        base = solve(problem, "exact")
    except NoCover:
        return
    groups = alternatives(problem, base)
    for position, choices in enumerate(groups):
        for number in range(len(choices)):
            genome = tuple(number if at == position else len(other) - 1 for at, other in enumerate(groups))
            seconds = seconds_of(problem, picked(groups, genome))
            assert seconds is not None
            assert seconds >= base.seconds - 1e-9


@settings(max_examples=100, deadline=None)
@given(problems())
def test_breeding_never_loses_its_base_and_is_certified(problem: Problem) -> None:
    try:
        base = greedy_cover(problem, ("one", "two"))
    except NoCover:
        return
    found = evolutionary_cover(problem, base, EvolutionSettings(population=6, generations=4))
    assert found.seconds <= base.seconds
    assert why_not(problem, certificate_of(problem, found)) is None


def test_breeding_splits_what_greedy_took_too_large() -> None:
    wide = [Option(10 + i, 0b111 << 3 * i, 9.0, backend="lib") for i in range(2)]
    problem = Problem(SOURCES, EMPTY, (*SINGLES, *wide, Option(20, 0b000011, 1.5, backend="lib")))
    base = greedy_cover(problem, ("lib",))
    assert ids(base) == [10, 11]
    assert evolutionary_cover(problem, base).seconds == cheapest(problem) == 5.5


SIZES = (3, 4, 2, 5, 3, 4)


def distance(genome: tuple[int, ...]) -> float | None:
    """Seconds without a sum behind it: neighbours that differ disturb each other; some genomes do not work."""
    if genome[0] == 1:
        return None
    return 1.0 + sum(abs(a - b) for a, b in pairwise(genome)) + genome[3] * 0.1


def test_breeding_finds_the_best_combination_where_costs_do_not_add_up() -> None:
    state = evolve(SIZES, distance, settings=EvolutionSettings(generations=60))
    assert state.best == ((0,) * 6, 1.0)


def test_breeding_asks_once_for_each_genome_and_repeats_itself_by_seed() -> None:
    asked: list[tuple[int, ...]] = []

    def fitness(genome: tuple[int, ...]) -> float | None:
        asked.append(genome)
        return distance(genome)

    start = first_state(SIZES, [(2, 3, 1, 4, 2, 3)])
    first = evolve(SIZES, fitness, start)
    assert len(asked) == len(set(asked)) == len(first.known)
    assert evolve(SIZES, distance, start) == first
    assert (
        evolve(SIZES, distance, first_state(SIZES, (), EvolutionSettings(seed=1)), EvolutionSettings(seed=1))
        != first
    )


def test_the_best_survives_every_generation() -> None:
    few = EvolutionSettings(population=4, generations=1, elite=1)
    state = evolve(SIZES, distance, first_state(SIZES, [(0,) * 6], few), few)
    assert (0,) * 6 in state.population


@given(st.integers(0, 60))
@settings(max_examples=20, deadline=None)
def test_a_search_that_was_stopped_goes_on_from_its_state_in_json(stop: int) -> None:
    """Stopped after any number of measurements, it ends where one that was never stopped ends."""
    options = EvolutionSettings(population=8, generations=6)

    class Stopped(Exception):
        pass

    known: dict[tuple[int, ...], float | None] = {}

    def until_stop(genome: tuple[int, ...]) -> float | None:
        if len(known) == stop:
            raise Stopped
        known[genome] = distance(genome)
        return known[genome]

    start = first_state(SIZES, (), options)
    with suppress(Stopped):
        evolve(SIZES, until_stop, start, options)
    saved = json.dumps(EvolutionState(0, start.population, known).to_data())
    resumed = evolve(SIZES, distance, EvolutionState.from_data(json.loads(saved)), options)
    assert resumed == evolve(SIZES, distance, start, options)
    assert evolve(SIZES, distance, start, options, seconds=0.0) == start


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_search_answers_by_name_with_a_certificate(algorithm: str) -> None:
    problem = Problem(SOURCES, EMPTY, (*SINGLES, Option(6, 0b001111, 2.0)), launch_seconds=0.5)
    found = solve(problem, algorithm)
    assert found.algorithm == ("exact" if algorithm == "auto" else algorithm)
    assert found.seconds == 5.5
    assert why_not(problem, certificate_of(problem, found)) is None


def test_an_unknown_search_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"no search algorithm 'annealing': choose one of auto, exact, milp"):
        solve(Problem((), EMPTY, ()), "annealing")


@settings(max_examples=100, deadline=None)
@given(problems())
def test_auto_is_optimal_with_a_budget_of_no_states_too(problem: Problem) -> None:
    expected = cheapest(problem)
    if expected is None:
        with pytest.raises(NoCover):
            solve(problem, "auto", max_states=0)
        return
    found = auto.solve(problem, max_states=0)
    assert found.seconds == pytest.approx(expected)
    assert found.is_closed
    assert why_not(problem, certificate_of(problem, found)) is None
