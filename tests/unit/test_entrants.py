"""Which programs take part in a comparison; none is built."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from unity_collage.errors import CollageError
from unity_collage.feedback.candidates import OURS, Choice
from unity_collage.feedback.entrants import BEFORE, add_entrants
from unity_collage.feedback.settings import Refinement

PLANS: dict[str, tuple[Choice, float]] = {
    OURS: ({"main": (0,)}, 1.0),
    "greedy": ({"main": (1,)}, 1.2),
    "onednn": ({"main": (2,)}, 1.1),
    "tvm": ({"main": (3,)}, 9.0),
}
SAME: Choice = {"main": (2,)}
OTHER: Choice = {"main": (4,)}


@dataclass
class Listed:
    """A comparison that builds nothing."""

    settings: Refinement
    builder: Any = field(default_factory=lambda: SimpleNamespace(whole_models={}))
    programs: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    left_out: bool = False
    worker: Any = field(default_factory=lambda: SimpleNamespace(was_silent=False))

    def add_built(self, name: str, choice: Choice, _build: Callable[[], Any], _copies: int = 0) -> bool:
        self.add(name, choice)
        return not self.worker.was_silent

    def add(self, name: str, choice: Choice) -> None:
        self.programs[name] = SimpleNamespace(choice=choice, built=None, reason="no answer within 20 s")

    def leave_out(self, name: str, _choice: Choice, reason: str) -> None:
        self.reasons[name] = reason

    def timed(self, _names: list[str], _rounds: int) -> dict[str, list[float]]:
        return {}


def entered(before: Choice | None = None, **settings: Any) -> Listed:
    comparison = Listed(Refinement(stock=False, hopeless=1.25, **settings))
    add_entrants(comparison, PLANS, before)  # type: ignore[arg-type]
    return comparison


def test_whole_models_are_next_to_ours() -> None:
    comparison = Listed(Refinement(stock=False, hopeless=1.25))
    comparison.builder = SimpleNamespace(
        whole_models={"runtime, the whole model": None}, searched=None, costed=None, whole=lambda: None
    )
    add_entrants(comparison, PLANS, None)  # type: ignore[arg-type]
    assert [*comparison.programs] == [OURS, "runtime, the whole model", "onednn", "greedy"]


def test_if_ours_does_not_end_no_other_is_tried() -> None:
    comparison = Listed(Refinement(stock=False, hopeless=1.25))
    comparison.worker.was_silent = True
    with pytest.raises(CollageError, match="does not end on drawn inputs: no answer within 20 s"):
        add_entrants(comparison, PLANS, None)  # type: ignore[arg-type]
    assert [*comparison.programs] == [OURS]


def test_there_is_time_for_the_first_whole_model_in_any_case() -> None:
    comparison = Listed(Refinement(stock=False, hopeless=1.25, build_seconds=-1.0))
    comparison.builder = SimpleNamespace(
        whole_models=dict.fromkeys(["first", "second"]), searched=None, costed=None, whole=lambda: None
    )
    add_entrants(comparison, PLANS, None)  # type: ignore[arg-type]
    assert [*comparison.programs] == [OURS, "first"] and comparison.left_out
    assert comparison.reasons["second"].startswith("not built: the runtimes before took 0 s")


def test_the_most_promising_plan_is_first_and_a_hopeless_one_is_left_out() -> None:
    comparison = entered()
    assert [*comparison.programs] == [OURS, "onednn", "greedy"]
    assert comparison.reasons == {"tvm": "not built: its kernels cost 9 times as much"}


@pytest.mark.parametrize(
    ("seconds", "built"), [(0.0, [OURS, BEFORE]), (math.inf, [OURS, BEFORE, "onednn", "greedy"])]
)
def test_what_was_the_fastest_before_takes_part_whatever_it_takes(seconds: float, built: list[str]) -> None:
    comparison = entered(OTHER, build_seconds=seconds)
    assert [*comparison.programs] == built
    assert all(reason.startswith("not built") for reason in comparison.reasons.values())
    assert comparison.left_out == (seconds == 0.0)


def test_a_plan_takes_part_once() -> None:
    assert [*entered(SAME).programs] == [OURS, BEFORE, "greedy"]
