"""When ``compile --report`` times the kernels of its program."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from typing import Any

import pytest

from unity_collage.cli import in_place
from unity_collage.plan.plan import Plan
from unity_collage.plan.ranges import PlanAtSample


@dataclass
class Costs:
    """The costs of a compile, as far as they are asked."""

    locked: bool = False
    spent: bool = False
    elsewhere: str | None = None

    def database_and_lock(self) -> tuple[None, bool]:
        return None, self.locked

    def is_budget_spent(self) -> bool:
        return self.spent

    def why_not(self, capability: object) -> str | None:
        return self.elsewhere


def why_not(costs: Any = None, report: str | None = "plan.html", **facts: Any) -> str | None:
    plan = Plan(seconds=facts.pop("seconds", 1e-3))
    program = Namespace(plan={"main": plan}, kept_since=facts.pop("kept_since", None))
    return in_place.why_not_timed(Namespace(report=report), program, costs or Costs(**facts))


@pytest.mark.parametrize("report", ["plan.html", "plan.json"])
def test_a_program_that_was_compiled_and_runs_here_is_timed(report: str) -> None:
    assert why_not(report=report) is None


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"report": None}, "there is no report"),
        ({"report": "plan.dot"}, "there is no report"),
        ({"kept_since": 1.0}, "an earlier compile"),
        ({"locked": True}, "nothing may be measured"),
        ({"spent": True}, "no time is left"),
        ({"seconds": 0.2}, "a run takes too long"),
        ({"elsewhere": "it runs on a board"}, "it runs on a board"),
    ],
)
def test_others_are_not(facts: dict[str, Any], reason: str) -> None:
    assert reason in str(why_not(**facts))


def test_a_program_for_several_sizes_runs_at_those_that_take_most_of_the_time() -> None:
    samples = (PlanAtSample({"batch": 1}, 0.8, 1e-3), PlanAtSample({"batch": 8}, 0.2, 5e-3))
    assert in_place.costliest_sizes({"main": Plan(), "all": Plan(at_samples=samples)}) == {"batch": 8}
    assert in_place.costliest_sizes({"main": Plan()}) == {}
