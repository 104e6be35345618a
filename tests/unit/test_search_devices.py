"""Devices by cost: the search chooses where each kernel runs, and a copy is charged once for each device that reads."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from search_problems import DEVICES, cheapest, ids, problems

from unity_collage.index_set import EMPTY
from unity_collage.plan.check import why_malformed
from unity_collage.plan.instance import packed, unpacked
from unity_collage.search.auto import certified, solve
from unity_collage.search.certificate import why_not
from unity_collage.search.exact import cheapest_cover
from unity_collage.search.milp import milp_cover
from unity_collage.search.problem import NoCover, Option, Problem
from unity_collage.search.ties import with_ties_broken

HOST, GPU = "cpu:0", "gpu:0"


def on_devices(seconds: list[dict[str, float]], sources: tuple[tuple[int, ...], ...], copy: float) -> Problem:
    """An option for each node and device; the seconds of each, and of a copy of any value between any devices."""
    options = [
        Option(10 * node + number, 1 << node, cost, backend="tvm", device=device)
        for node, by_device in enumerate(seconds)
        for number, (device, cost) in enumerate(by_device.items())
    ]
    copies = {(a, b): copy for a in DEVICES for b in DEVICES if a != b}
    return Problem(sources, EMPTY, tuple(options), transitions=copies)


CHAIN = ((), (0,), (1,), (2,))


@pytest.mark.parametrize(
    ("copy", "chosen", "seconds"), [(1.0, [0, 11, 21, 30], 8.0), (6.0, [0, 10, 20, 30], 14.0)]
)
def test_the_cut_moves_where_the_copies_say(copy: float, chosen: list[int], seconds: float) -> None:
    """The ends are on the host. Between them the other device is faster, if it is worth two copies."""
    costs = [{HOST: 1.0}, {HOST: 6.0, GPU: 2.0}, {HOST: 6.0, GPU: 2.0}, {HOST: 1.0}]
    problem = on_devices(costs, CHAIN, copy)
    for search in (cheapest_cover, milp_cover):
        found = search(problem)
        assert (ids(found), found.seconds) == (chosen, seconds)


def test_one_copy_serves_all_uses_on_a_device() -> None:
    """Three kernels of the other device, of two backends, read the value of node 0."""
    problem = on_devices([{HOST: 1.0}, {GPU: 1.0}, {GPU: 1.0}, {GPU: 1.0}], ((), (0,), (0,), (0,)), 10.0)
    assert cheapest_cover(problem).seconds == 14.0
    options = (*problem.options[:3], replace(problem.options[3], backend="other"))
    assert cheapest_cover(replace(problem, options=options)).seconds == 14.0
    both = {**problem.transitions, ("tvm", "other"): 0.5}
    assert cheapest_cover(replace(problem, options=options, transitions=both)).seconds == 14.5


def test_each_device_that_reads_a_value_gets_a_copy_of_its_own_cost() -> None:
    problem = on_devices([{HOST: 1.0}, {GPU: 1.0}, {"gpu:1": 1.0}], ((), (0,), (0,)), 0.0)
    copies = {(HOST, GPU): (2.0, 0.0, 0.0), (HOST, "gpu:1"): 5.0}
    assert cheapest_cover(replace(problem, transitions=copies)).seconds == 10.0


def test_a_copy_goes_through_a_view() -> None:
    problem = on_devices([{HOST: 1.0}, {}, {GPU: 1.0}, {GPU: 1.0}], ((), (0,), (1,), (1,)), 3.0)
    assert cheapest_cover(replace(problem, free=0b0010)).seconds == 6.0


def test_a_tie_never_moves_a_kernel_to_another_device() -> None:
    costs = [{HOST: 1.0}, {HOST: 1.0, GPU: 0.9}, {HOST: 1.0}]
    problem = on_devices(costs, CHAIN[:3], 0.01)
    noisy = tuple(replace(option, low=0.5, high=2.0) for option in problem.options)
    problem = replace(problem, options=noisy)
    found = cheapest_cover(problem)
    assert ids(found) == [0, 11, 20]
    assert with_ties_broken(problem, found, ("tvm",)) == found


def test_a_problem_keeps_its_devices_as_text_and_a_device_is_no_backend() -> None:
    problem = on_devices([{HOST: 1.0, GPU: 2.0}], ((),), 1.0)
    assert unpacked(packed(problem)) == problem
    assert why_malformed(problem) is None
    wrong = replace(problem, options=(replace(problem.options[0], backend=HOST), *problem.options[1:]))
    assert why_malformed(wrong) == "cpu:0 is a device and a backend"


@given(problems(devices=True))
def test_the_plan_on_several_devices_agrees_with_brute_force_and_is_proved(problem: Problem) -> None:
    expected = cheapest(problem)
    if expected is None:
        with pytest.raises(NoCover):
            solve(problem)
        return
    found = solve(problem)
    assert found.seconds == pytest.approx(expected)
    claim = certified(problem, found)
    assert claim.proved
    assert why_not(problem, claim) is None


def network(count: int, seed: int = 0) -> Problem:
    """A chain with branches that join again, three devices, kernels of one and two nodes, copies by value."""
    draw = random.Random(seed)
    sources = tuple(
        (i - 6, i - 1) if i % 6 == 0 and i else (i - 3, i - 1) if i % 11 == 0 and i else (i - 1,) if i else ()
        for i in range(count)
    )
    insides = [1 << i for i in range(count)] + [0b11 << i for i in range(count - 1) if draw.random() < 0.5]
    options = tuple(
        Option(3 * number + k, inside, draw.uniform(1, 8 * inside.bit_count()), backend="tvm", device=device)
        for number, inside in enumerate(insides)
        for k, device in enumerate(DEVICES)
    )
    copies = {
        (a, b): tuple(draw.uniform(0.5, 6) for _ in range(count)) for a in DEVICES for b in DEVICES if a != b
    }
    return Problem(sources, EMPTY, options, launch_seconds=0.1, transitions=copies)


def test_two_thousand_nodes_and_three_devices_take_few_states() -> None:
    """``benchmarks/search.py --devices 3`` times such graphs."""
    found = cheapest_cover(network(2000))
    assert found.is_closed and found.visited < 60_000
    assert len({option.device for option in found.chosen}) == 3


def test_a_long_network_on_three_devices_is_proved() -> None:
    problem = network(300)
    claim = certified(problem, cheapest_cover(problem), 60.0)
    assert claim.proved and why_not(problem, claim) is None
