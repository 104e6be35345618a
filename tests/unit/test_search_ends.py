"""Parameters and results with devices around a problem."""

from __future__ import annotations

import pytest

from unity_collage.index_set import EMPTY
from unity_collage.search.auto import certified, solve
from unity_collage.search.certificate import why_not
from unity_collage.search.ends import with_ends
from unity_collage.search.exact import cheapest_cover
from unity_collage.search.milp import milp_cover
from unity_collage.search.problem import Option, Problem

HOST, GPU = "cpu:0", "gpu:0"
COPIES = {(HOST, GPU): 1.0, (GPU, HOST): 2.0}


def two_readers(on_host: float, on_gpu: float) -> Problem:
    """Two nodes, which read the parameter, and one that reads both."""
    options = [
        Option(10 * node + number, 1 << node, seconds, backend="tvm", device=device)
        for node in range(3)
        for number, (device, seconds) in enumerate(((HOST, on_host), (GPU, on_gpu)))
    ]
    return Problem(((), (), (0, 1)), EMPTY, tuple(options), launch_seconds=0.5, transitions=COPIES)


@pytest.mark.parametrize("search", [cheapest_cover, milp_cover])
@pytest.mark.parametrize(
    ("on_host", "wanted", "devices", "seconds"),
    [
        # One copy of the parameter for both readers, one of the result.
        (5.0, HOST, [GPU, GPU, GPU], 3 * 1.0 + 3 * 0.5 + 4.0 + 2.0),
        (5.0, GPU, [GPU, GPU, GPU], 3 * 1.0 + 3 * 0.5 + 4.0),
        (2.9, HOST, [HOST, HOST, HOST], 3 * 2.9 + 3 * 0.5),
    ],
)
def test_copies_of_parameters_and_results_are_charged_once(
    search: object, on_host: float, wanted: str, devices: list[str], seconds: float
) -> None:
    inner = two_readers(on_host, 1.0)
    whole = with_ends(inner, [(0,), (0,), ()], [HOST], {2: wanted}, {(HOST, GPU): [4.0]})
    found = search(whole.problem)  # type: ignore[operator]
    assert found.seconds == pytest.approx(seconds)
    inside = whole.inside(found)
    assert [option.device for option in inside.chosen] == devices
    assert set(inside.chosen) <= set(inner.options)


def test_a_problem_with_ends_is_proved_like_any_other() -> None:
    whole = with_ends(
        two_readers(2.0, 1.0), [(0,), (1,), (0, 1)], [HOST, GPU], {0: GPU, 2: HOST}, {(GPU, HOST): [0.0, 3.0]}
    )
    claim = certified(whole.problem, solve(whole.problem))
    assert claim.proved and why_not(whole.problem, claim) is None


def test_what_is_left_behind_keeps_its_number() -> None:
    """Node 1 is a view of node 0."""
    options = (Option(7, 0b001, 1.0, device=GPU), Option(8, 0b100, 1.0, device=GPU))
    inner = Problem(((), (0,), (1,)), 0b010, options, transitions=COPIES)
    whole = with_ends(inner, [(0, 1), (), ()], [GPU, GPU], {2: GPU}, {})
    found = whole.inside(cheapest_cover(whole.problem))
    assert (found.left_behind, [option.id for option in found.chosen]) == (0b010, [7, 8])
