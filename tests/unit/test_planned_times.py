"""The times of a profile in the plans of its program, and what the report says of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unity_collage.plan.explanation import (
    ExplainedBinding,
    ExplainedCandidate,
    ExplainedCost,
    ExplainedKernel,
    Explanation,
    Proof,
    Verdict,
)
from unity_collage.plan.in_place import InPlace, KernelTime
from unity_collage.plan.plan import VIEW, Plan, PlannedKernel
from unity_collage.plan.ranges import PlanAtSample
from unity_collage.profile.assembly import SIDE_BY_SIDE
from unity_collage.profile.planned_times import with_times
from unity_collage.profile.result import Profile, ProfiledCall, ProfiledKernel
from unity_collage.report.html import html_report
from unity_collage.report.in_place import HOW, in_place

LAUNCHES = {"onednn": 2e-6}


def planned(backend: str, name: str, seconds: float) -> PlannedKernel:
    return PlannedKernel(0, backend, "conv2d", name, (name,), seconds)


PLAN = Plan(
    (planned("onednn", "a", 10e-6), planned("tvm", "b", 20e-6), planned("tvm", "c", 5e-6)),
    seconds=40e-6,
    launch_seconds=1e-6,
    launches=LAUNCHES,
    measured_seconds=99e-6,
)


def call(layer: str, seconds: float, function: str = "main") -> ProfiledCall:
    return ProfiledCall(function, (layer,), (), seconds, seconds * 0.9, seconds * 1.1, None)


def profiled(*calls: tuple[str, ProfiledCall], label: str = "conv2d") -> Profile:
    kernels = tuple(ProfiledKernel(name, "", label, (each,), None) for name, each in calls)
    return Profile(kernels, 50e-6, 0.0, 42e-6, 0.0, 0, 9, 2)


WHOLE = profiled(
    *((name, call(name, seconds)) for name, seconds in (("a", 11e-6), ("b", 25e-6), ("c", 5e-6)))
)


def time(seconds: float) -> KernelTime:
    return KernelTime(seconds, seconds * 0.9, seconds * 1.1)


def test_a_kernel_has_the_time_of_its_call_and_the_plan_that_of_the_program() -> None:
    plan = with_times({"main": PLAN}, WHOLE)["main"]
    assert plan.in_place == InPlace(
        (time(11e-6), time(25e-6), time(5e-6)), 0.0, 50e-6, pytest.approx(41e-6), 42e-6, 9, 2
    )
    assert plan.measured_seconds == 50e-6
    assert plan.additive_error == pytest.approx(10e-6)


def test_a_plan_that_was_not_passed_has_no_times() -> None:
    assert with_times({"main": PLAN, "other": PLAN}, WHOLE)["other"] == PLAN


def test_a_run_through_two_plans_is_the_time_of_neither() -> None:
    both = profiled(("a", call("a", 11e-6)), ("b", call("b", 25e-6, "other")))
    for plan in with_times({"main": PLAN, "other": PLAN}, both).values():
        assert plan.in_place is not None
        assert (plan.in_place.program, plan.measured_seconds) == (None, 99e-6)


def test_a_kernel_that_is_called_twice_has_no_time() -> None:
    twice = profiled(("a", call("a", 11e-6)), ("a", call("a", 12e-6)), ("b", call("b", 25e-6)))
    timed = with_times({"main": PLAN}, twice)["main"].in_place
    assert timed is not None
    assert timed.kernels == (None, time(25e-6), None)


def test_branches_side_by_side_are_timed_together() -> None:
    stage = profiled(("stage", call("b", 30e-6)), label=SIDE_BY_SIDE)
    timed = with_times({"main": PLAN}, replace(WHOLE, kernels=(WHOLE.kernels[0], *stage.kernels)))[
        "main"
    ].in_place
    assert timed is not None
    assert (timed.kernels, timed.side_by_side) == ((time(11e-6), None, None), 30e-6)


def test_the_prediction_has_the_launch_of_the_backend() -> None:
    assert [PLAN.predicted(kernel) for kernel in PLAN.kernels] == pytest.approx([12e-6, 21e-6, 6e-6])
    assert Plan().predicted(planned("tvm", "a", 0.0)) is None


def explanation() -> Explanation:
    """The kernels of ``PLAN`` with a view before the last one."""
    backends = ("onednn", "tvm", VIEW, "tvm")
    candidates = tuple(
        ExplainedCandidate(number, backend, "r", "conv2d", (number,), number, Verdict.CHOSEN)
        for number, backend in enumerate(backends)
    )
    return Explanation(
        Proof(40e-6, 40e-6, 0.0, True, "exact"),
        tuple(ExplainedBinding(name, "op", "") for name in ("a", "b", "view", "c")),
        tuple(ExplainedKernel(number, f"f{number}") for number in range(4)),
        candidates,
        tuple(
            ExplainedCost(str(number), seconds) for number, seconds in enumerate((10e-6, 20e-6, 0.0, 5e-6))
        ),
    )


def test_the_rows_add_up_to_the_plan_and_to_the_program() -> None:
    data = in_place(explanation(), with_times({"main": PLAN}, WHOLE)["main"], ["main"])
    assert [kernel and kernel["seconds"] for kernel in data["kernels"]] == [11e-6, 25e-6, None, 5e-6]
    predicted = [kernel["predicted"] for kernel in data["kernels"] if kernel]
    assert predicted == [PLAN.predicted(kernel) for kernel in PLAN.kernels]
    *parts, whole = data["rows"]
    assert [part["name"] for part in parts] == ["3 kernels with launches", "transitions, and all else"]
    assert (whole["predicted"], whole["seconds"]) == (PLAN.seconds, 50e-6)
    for key in ("predicted", "seconds"):
        assert sum(part[key] for part in parts) == pytest.approx(whole[key])


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"percentile": 99.0}, "the costs are the 99th percentile of the runs"),
        ({"at_samples": (PlanAtSample({"n": 1}, 1.0, 1e-6),)}, "the costs are weighed over 1 size,"),
    ],
)
def test_times_that_do_not_compare_with_the_costs_stand_alone(
    changed: dict[str, object], reason: str
) -> None:
    plan = with_times({"main": replace(PLAN, **changed)}, WHOLE)["main"]
    assert plan.measured_seconds == PLAN.measured_seconds
    data = in_place(explanation(), plan, ["main"])
    assert f"Not compared: {reason}" in data["says"]
    assert {row["predicted"] for row in data["rows"]} == {None}
    assert [kernel["predicted"] for kernel in data["kernels"] if kernel] == [None] * 3


def test_a_disturbed_machine_is_named() -> None:
    plan = with_times({"main": PLAN}, replace(WHOLE, run_kernel_seconds=60e-6))["main"]
    says = in_place(explanation(), plan, ["main"])["says"]
    assert says.startswith(
        "Medians of 9 runs on 2 threads, timed kernel by kernel. The machine is disturbed: in a median"
    )
    assert "60.0 us" in says and "41.0 us" in says


@pytest.mark.parametrize(
    ("profiled", "says"), [([], HOW), (["main (n 1)"], "not known: the profiled run used main (n 1)")]
)
def test_without_times_it_says_why(profiled: list[str], says: str) -> None:
    assert (
        in_place(explanation(), PLAN, profiled)["says"]
        == f"Times of kernels in the running program are {says}."
    )


def test_a_page_about_another_plan_has_no_times() -> None:
    other = replace(
        PLAN, kernels=PLAN.kernels[:1], in_place=InPlace((time(11e-6),), 0.0, 50e-6, 1.0, 1.0, 9, 2)
    )
    assert '"in_place": null' in html_report("m", {"main": explanation()}, plans={"main": other})
