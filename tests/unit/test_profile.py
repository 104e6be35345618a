"""Profiles without a program: readings of the clock become kernels, tables, data and traces."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from trace_events import why_not_trace

from unity_collage.cli import main as cli
from unity_collage.errors import CollageError
from unity_collage.machine.peaks import Machine
from unity_collage.plan.plan import KernelWork, Plan, PlannedKernel
from unity_collage.profile.assembly import RUNTIME, Series, planned_kernels, profile_of
from unity_collage.profile.lanes import LaneCall, StageClocks
from unity_collage.profile.readings import decoded
from unity_collage.profile.result import Profile, least_seconds
from unity_collage.profile.timing_points import Call, TimedRegion
from unity_collage.profile.trace import trace_of
from unity_collage.report.profiles import WIDE, profile_data, profile_summary


def call(kernel: str, result: str = "", is_function: bool = True) -> Call:
    return Call(kernel, result, ("float32[4]",), is_function)


CONV, RELU, ODD = call("conv", "r1"), call("relu", "r2"), call("relax.run.unique", "r3", is_function=False)
STRAIGHT = [TimedRegion("main", (CONV, RELU, CONV, ODD))]
READING = 1e-6
PLANS = {
    "main": Plan(
        (
            PlannedKernel(
                0, "onednn", "conv2d", "conv", ("r1",), 9e-6, work=KernelWork(8e3, 4000, "float32")
            ),
            PlannedKernel(
                1, "onednn", "conv2d", "conv", ("a", "b"), 9e-6, work=KernelWork(8e3, 4000, "float32")
            ),
        ),
        launch_seconds=1e-6,
    )
}


def gaps(*microseconds: float) -> list[float]:
    return [READING, *(value * 1e-6 for value in microseconds)]


def straight(runs: int = 5, **series: Any) -> Profile:
    """Runs of 21, 4, 11 and 2 us, each with a reading of 1 us in it."""
    found = Series([40e-6] * runs, [45e-6] * runs, [gaps(21, 4, 11, 2)] * runs, [3e-6] * (runs - 1), **series)
    return profile_of(STRAIGHT, [], found, PLANS, Machine(2, 1e9, ((1 << 15, 1e9),), (), ((1, 1e9),)))


def test_readings_are_assigned_to_kernels_without_their_own_cost() -> None:
    profile = straight()

    assert [kernel.name for kernel in profile.kernels] == ["conv", "relu", "relax.run.unique"]
    assert [kernel.seconds for kernel in profile.kernels] == pytest.approx([30e-6, 3e-6, 1e-6])
    assert [each.seconds for each in profile.kernels[0].calls] == pytest.approx([20e-6, 10e-6])
    assert profile.kernel_seconds == profile.run_kernel_seconds == pytest.approx(34e-6)
    assert (profile.readings, profile.runs, profile.reading_seconds) == (6, 5, READING)
    assert profile.overhead == pytest.approx(5e-6)


def test_kernels_have_the_layers_and_costs_of_the_plan() -> None:
    conv, relu, odd = straight().kernels

    assert [each.layers for each in conv.calls] == [("r1",), ("a", "b")]
    assert (conv.backend, conv.label, conv.cost) == ("onednn", "conv2d", pytest.approx(20e-6))
    assert conv.ratio == pytest.approx(1.5)
    assert (relu.backend, relu.layers, relu.cost, relu.ratio) == ("tvm", ("r2",), None, None)
    assert odd.backend == RUNTIME


def test_a_plan_of_another_percentile_has_no_costs_that_a_run_compares_with() -> None:
    plans = {"main": replace(PLANS["main"], percentile=99.0)}
    profile = profile_of(STRAIGHT, [], Series([1e-6], [1e-6], [gaps(21, 4, 11, 2)]), plans)
    assert {kernel.cost for kernel in profile.kernels} == {None}
    reason = (
        "main has no costs here: the costs are the 99th percentile of the runs, and a profile has medians"
    )
    assert profile.remarks == (reason,)
    assert reason in " ".join(shown(profile, WIDE).split())


def test_rates_are_those_of_all_calls() -> None:
    conv, relu, _ = straight().kernels

    assert conv.flops_per_second == pytest.approx(2 * 8e3 / 30e-6)
    assert conv.bytes_per_second == pytest.approx(2 * 4000 / 30e-6)
    assert conv.part_of_limit == pytest.approx(2 * 4e-6 / 30e-6)  # 8e3 operations at 2e9 a second
    assert (relu.flops_per_second, relu.part_of_limit) == (None, None)


@pytest.mark.parametrize(
    ("work", "seconds"),
    [
        (KernelWork(4e6, 8, "float32"), 1e-3),
        (KernelWork(0.0, 1000), 1000 / 8e9),
        (KernelWork(0.0, 1 << 20), (1 << 20) / 2e9),
        (KernelWork(4e6, 8, "bfloat16"), None),
    ],
)
def test_the_limit_is_the_slower_of_arithmetic_and_the_nearest_cache(
    work: KernelWork, seconds: float | None
) -> None:
    machine = Machine(2, 2e9, ((1 << 15, 4e9), (1 << 17, 1e9)), (), ((1, 1e9),))
    assert least_seconds(work, machine) == (None if seconds is None else pytest.approx(seconds))


def test_the_result_decides_which_call_is_which_kernel() -> None:
    regions = [TimedRegion("main", (call("conv", "b"), call("conv", "r1")))]
    found = planned_kernels(regions, PLANS)
    assert [found[0, step].bindings for step in range(2)] == [("a", "b"), ("r1",)]


BRANCHING = [
    TimedRegion("main", (CONV, None, 3)),
    TimedRegion("main", (RELU,)),
    TimedRegion("main", ()),
    TimedRegion("part", (CONV,)),
]


@pytest.mark.parametrize(
    ("entered", "times", "kernels"),
    [
        # conv, to the branch, its reading, relu, to the end of the If, to the function, its reading, conv, its end
        ([1], (5, 1, 1, 7, 1, 1, 1, 9, 1), [(0, 0, 5), (1, 0, 7), (3, 0, 9)]),
        ([2], (5, 1, 1, 1, 1, 1, 9, 1), [(0, 0, 5), (3, 0, 9)]),
    ],
)
def test_a_run_passes_branches_and_functions(
    entered: list[int], times: tuple[float, ...], kernels: list[tuple[int, int, float]]
) -> None:
    calls, readings = decoded(BRANCHING, entered, gaps(*times))

    assert [(each.region, each.step) for each in calls] == [each[:2] for each in kernels]
    assert [each.seconds for each in calls] == pytest.approx([each[2] * 1e-6 for each in kernels])
    assert readings == pytest.approx([READING] * 3)


@pytest.mark.parametrize(
    ("entered", "times"), [([], (5, 1)), ([1], (5,)), ([1, 1], (5, 1, 1, 7, 1, 1, 1, 9, 1))]
)
def test_readings_that_do_not_fit_are_refused(entered: list[int], times: tuple[float, ...]) -> None:
    with pytest.raises(CollageError, match="differ from run to run"):
        decoded(BRANCHING, entered, gaps(*times))


def test_events_are_those_of_the_last_runs_in_the_order_of_time() -> None:
    events = straight().events

    assert [event.run for event in events] == [0] * 4 + [1] * 4 + [2] * 4
    starts = [event.start for event in events]
    assert starts == sorted(starts)
    assert starts[4] - starts[0] == pytest.approx(39e-6 + 3e-6)  # a run and the pause after it


def test_a_program_without_kernels_has_a_profile_too() -> None:
    profile = profile_of([TimedRegion("main", ())], [], Series([1e-6], [1e-6], [gaps()]), {})
    assert (profile.kernels, profile.events, profile.kernel_seconds) == ((), (), 0.0)
    assert why_not_trace(trace_of(profile, "model")) is None
    assert "0 kernels" in shown(profile, WIDE)


def side_by_side() -> Profile:
    """A stage of two lanes, of 10 and 8 us, that ends 12 us after it began."""
    stage = StageClocks((LaneCall("conv", 0, 0), LaneCall("relu", 1, 2)), 4)
    lanes = [np.array([100, 10_100, 1_000, 9_000, 11_500])] * 3
    series = Series([20e-6] * 3, [21e-6] * 3, [gaps(13)] * 3, [1e-6] * 2, lanes)
    return profile_of([TimedRegion("main", (call("stage_0"),))], [], series, PLANS, stages={"stage_0": stage})


def test_kernels_side_by_side_have_tracks_of_their_own() -> None:
    profile = side_by_side()

    assert [kernel.name for kernel in profile.kernels] == ["stage_0"]
    assert profile.kernel_seconds == pytest.approx(12e-6)
    assert [(kernel.name, kernel.seconds) for kernel in profile.side_by_side] == [
        ("conv", pytest.approx(10e-6)),
        ("relu", pytest.approx(8e-6)),
    ]
    stage, first, second = profile.events[:3]
    assert [event.track for event in (stage, first, second)] == [0, 1, 2]
    assert first.start == pytest.approx(stage.start + stage.seconds - 11.4e-6)
    assert second.start - first.start == pytest.approx(0.9e-6)


@pytest.mark.parametrize("profile", [straight(), side_by_side(), straight(runs=1)])
def test_traces_are_in_the_format_of_trace_viewers(profile: Profile) -> None:
    trace = json.loads(json.dumps(trace_of(profile, "model.onnx")))

    assert why_not_trace(trace) is None
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    kernels = [event for event in complete if event["cat"] == "kernel"]
    assert len(kernels) == len(profile.events)
    assert kernels[0]["name"] == profile.events[0].kernel.name
    assert {"backend", "layers", "shapes", "median_us"} <= kernels[0]["args"].keys()
    runs = [event for event in complete if event["cat"] == "run"]
    assert len(runs) == len({event.run for event in profile.events})


def test_data_has_all_figures() -> None:
    profile = straight()
    data = json.loads(json.dumps(profile_data("model.onnx", profile)))

    assert data["kernel_seconds"] == pytest.approx(sum(kernel["seconds"] for kernel in data["kernels"]))
    assert sum(kernel["share"] for kernel in data["kernels"]) == pytest.approx(1.0)
    conv = data["kernels"][0]
    assert conv["seconds"] == pytest.approx(sum(each["seconds"] for each in conv["calls"]))
    assert (conv["flops"], conv["bytes"], conv["ratio"]) == (16e3, 8000, pytest.approx(1.5))
    assert all(each["low_seconds"] <= each["seconds"] <= each["high_seconds"] for each in conv["calls"])


def shown(profile: Profile, width: int, rows: int = 30) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(profile_summary("m[0].onnx", profile, rows, width))
    return text.getvalue()


def test_the_table_shows_kernels_sums_and_the_overhead() -> None:
    text = shown(straight(), WIDE + 20)

    assert "m[0].onnx: 3 kernels, the program takes 40.0 us" in text
    assert "conv" in text and "r1 a b" in text and "1.50x" in text and "GFLOP/s" in text
    assert "all kernels: 34.0 us (85% of the program's 40.0 us)" in text
    assert "2 of them: " not in text and "1 of them: 30.0 us against a cost of 20.0 us, 1.50x" in text
    assert "6 timing points of 1.00 us" in text and "5.00 us longer" in " ".join(text.split())
    assert "disturbed" not in text


def test_a_narrow_table_has_no_rates_and_says_so() -> None:
    lines = shown(straight(), 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("GFLOP/s" in line and "time" in line for line in lines)
    assert any("need 110 columns" in line for line in lines)


def test_the_rest_of_the_kernels_is_one_row() -> None:
    text = shown(straight(), WIDE, rows=1)
    assert "(2 more kernels)" in text and "relax.run.unique" not in text


def test_a_disturbed_machine_is_named() -> None:
    runs = [gaps(41, 2, 2, 2), gaps(3, 42, 2, 2), gaps(3, 2, 42, 2)]
    series = Series([40e-6], [40e-6], runs, [1e-6] * 2)
    text = shown(profile_of(STRAIGHT, [], series, PLANS), 200)
    assert "the machine is disturbed" in text and "longer" not in text


def test_kernels_side_by_side_are_a_table_of_their_own() -> None:
    text = shown(side_by_side(), WIDE)
    assert "branches side by side" in text and "each on one core" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.onnx"], "none.onnx is not a file"),
        (
            ["there.so"],
            "there.so is not a model (.onnx, .pt2 or .pt): the code of a saved program has no timing",
        ),
        (["there.onnx", "--inputs", "none.npz"], "none.npz is not a file"),
        (
            ["there.onnx", "--trace", "none/t.json"],
            "--trace none/t.json cannot be written: there is no folder none",
        ),
        (["there.onnx", "--trace", "."], "--trace . cannot be written: it is a folder"),
        (["there.onnx", "--trace", "-"], "--trace - is not possible"),
        (
            ["there.onnx", "--report", "r.txt"],
            "--report r.txt: the name of the file ends in .html or .json",
        ),
        (["there.onnx", "--report", "r.dot"], "--report r.dot: the name of the file ends in .html or .json"),
        (
            ["there.onnx", "--report", "r.html", "--no-measure"],
            "--report explains costs, and --no-measure has",
        ),
        (
            ["there.so", "--model", "there.onnx", "--report", "r.html"],
            "--report explains costs, and a saved program has only its plan: unity-collage profile there.onnx",
        ),
    ],
)
def test_what_cannot_be_profiled_is_one_line(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("there.onnx", "there.so"):
        Path(name).touch()

    usage = ("is not a model", "is not possible", "--model is for", "--report explains", "the file ends in")
    is_usage = any(part in said for part in usage)
    assert cli.main(["profile", *arguments]) == (2 if is_usage else 1)
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith(f"unity-collage: {said}")


@pytest.mark.parametrize("option", [("--seconds", "soon"), ("--rows", "0")])
def test_a_value_that_an_option_does_not_take_is_refused(
    option: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["profile", "model.onnx", *option])
    assert option[1] in capfd.readouterr().err.splitlines()[-1]
