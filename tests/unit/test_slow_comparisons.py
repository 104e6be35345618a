"""Programs that run for seconds: those of other runtimes that are not faster are left out after one run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from unity_collage.feedback.comparison import CandidateProgram, Comparison
from unity_collage.feedback.settings import BY_DEFAULT, Refinement

OURS, THEIRS = "collage", "openvino, the whole model"


class Runs:
    """A worker with given seconds of the first run of ours, and of one more run of both."""

    def __init__(self, first: float, more: list[float]):
        self.first, self.more, self.asked = first, more, 0

    def seconds_so_far(self, name: str) -> float:
        assert name == OURS
        return self.first

    def once(self, names: list[str]) -> list[float]:
        assert names == [THEIRS, OURS]
        self.asked += 1
        return self.more


def reason(runs: Runs, settings: Refinement = BY_DEFAULT, name: str = THEIRS) -> str:
    builder: Any = SimpleNamespace(whole_models={THEIRS: None})
    worker: Any = runs
    return Comparison(builder, settings, worker, lambda _: None)._why_not_faster(name, OURS)


@pytest.mark.parametrize("theirs", [9.0, 5.0])
def test_a_runtime_that_is_not_faster_is_left_out_after_one_run(theirs: float) -> None:
    expected = f"left out: a run of it takes {theirs:g} s, and one of collage 5 s"
    assert reason(Runs(6.0, [theirs, 5.0])) == expected


@pytest.mark.parametrize(
    ("first", "more", "asked"), [(6.0, [4.5, 5.0], 1), (0.2, [9.0, 0.2], 0)], ids=["faster", "short runs"]
)
def test_others_are_checked_and_timed(first: float, more: list[float], asked: int) -> None:
    runs = Runs(first, more)
    assert reason(runs) == ""
    assert runs.asked == asked


def test_plans_and_refinements_are_compared_in_any_case() -> None:
    assert reason(Runs(6.0, [9.0, 5.0]), name="greedy") == ""
    assert reason(Runs(6.0, [9.0, 5.0]), Refinement()) == ""


class Turns:
    """A worker whose programs have given seconds; it keeps for how many rounds it was asked."""

    def __init__(self, **seconds: float):
        self.seconds, self.asked = seconds, list[int]()

    def timed_in_turns(self, names: list[str], rounds: int, _: float) -> dict[str, list[float]]:
        self.asked.append(rounds)
        return {name: [self.seconds[name]] * rounds for name in names}


@pytest.mark.parametrize(
    ("ours", "settings", "asked"),
    [(5.0, BY_DEFAULT, [2]), (0.01, BY_DEFAULT, [2, 5]), (5.0, Refinement(rounds=6), [2, 6])],
    ids=["slow", "fast", "asked for"],
)
def test_the_first_rounds_of_slow_programs_are_the_last(
    ours: float, settings: Refinement, asked: list[int]
) -> None:
    worker: Any = Turns(ours=ours, greedy=1.1 * ours, hopeless=9 * ours)
    builder: Any = SimpleNamespace(whole_models={})
    built: Any = ({}, None)
    programs = {name: CandidateProgram(None, built) for name in worker.seconds}
    compared = Comparison(builder, settings, worker, lambda _: None, programs)
    assert compared.finish() == "ours"
    assert worker.asked == asked
