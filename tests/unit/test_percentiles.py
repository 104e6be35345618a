"""Costs by another percentile than the median: how they are timed, kept apart and shown."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from tvm.ir import IRModule

import unity_collage as uc
from unity_collage import runtime
from unity_collage.annotations import CANDIDATES, COSTS, PLAN
from unity_collage.cli.options import add_options
from unity_collage.cli.settings import cost_model_of
from unity_collage.cost.fingerprint import stale
from unity_collage.cost.method import METHOD_VERSION, Method, least_runs
from unity_collage.errors import CollageError
from unity_collage.feedback.percentiles import percentile_of, too_few_runs
from unity_collage.feedback.records import _outcome_settings
from unity_collage.feedback.settings import BY_DEFAULT
from unity_collage.measure.measured import MeasuredCost
from unity_collage.plan.candidate import Candidate
from unity_collage.plan.comparison import ProgramComparison
from unity_collage.plan.costs import Cost, Costs
from unity_collage.plan.plan import Plan, PlannedKernel
from unity_collage.profile.rounds import in_turns
from unity_collage.report import comparison_table, plan_summary
from unity_collage.report.writing import write_report
from unity_collage.testing import graphs
from unity_collage.testing.fixed_cost import FixedCost


def test_the_median_is_timed_as_before() -> None:
    assert Method.of(50) == Method()


@pytest.mark.parametrize("percentile", [10, 50, 75, 90, 99])
def test_there_are_just_enough_runs_for_both_ends_of_the_interval(percentile: float) -> None:
    least = least_runs(percentile, 0.95)
    enough = runtime.interval([float(i) for i in range(least)], percentile)
    assert enough.low > 0.0 and enough.high < least - 1
    fewer = runtime.interval([float(i) for i in range(least - 1)], percentile)
    assert fewer.low == 0.0 or fewer.high == least - 2
    assert Method.of(percentile).min_runs >= least


def test_time_grows_with_the_runs_up_to_a_limit() -> None:
    assert Method().max_seconds < Method.of(90).max_seconds < Method.of(99).max_seconds <= 2.0
    assert Method.of(99).max_runs > Method.of(99).min_runs


@pytest.mark.parametrize("percentile", [0, 100, -5])
def test_what_is_no_percentile_is_refused(percentile: float) -> None:
    with pytest.raises(CollageError, match="a percentile is between 0 and 100"):
        uc.compile(IRModule({"main": graphs.chain()}), percentile=percentile)


def test_costs_of_another_percentile_are_not_stale_but_those_of_another_method_are() -> None:
    here = f"backend: tvm\nmachine: m\nsystem: s\nmethod: {METHOD_VERSION} {Method()}"
    texts = {
        "same": here,
        "p90": here.replace(str(Method()), str(Method.of(90))),
        "old": here.replace(f"method: {METHOD_VERSION}", "method: 1"),
        "old p90": here.replace(f"{METHOD_VERSION} {Method()}", f"1 {Method.of(90)}"),
    }
    assert stale(texts, {"tvm": here}) == {"old", "old p90"}


def test_a_stored_comparison_of_medians_keeps_its_name() -> None:
    """Before there were percentiles the settings had no such field."""
    assert "percentile" not in _outcome_settings(BY_DEFAULT)
    assert _outcome_settings(replace(BY_DEFAULT, percentile=90.0))["percentile"] == 90.0


def test_programs_are_compared_by_the_percentile() -> None:
    runs = {"calm": lambda _: [1.0] * 9 + [1.1], "wild": lambda _: [0.9] * 8 + [5.0] * 2}
    medians = in_turns(runs, rounds=1, round_seconds=0.0, pause_seconds=0.0)
    assert medians["wild"] < medians["calm"]
    tails = in_turns(runs, rounds=1, round_seconds=0.0, pause_seconds=0.0, percentile=90)
    assert tails["wild"] > tails["calm"]


def test_the_option_chooses_the_method(tmp_path: Path) -> None:
    parser = ArgumentParser()
    add_options(parser)
    asked = ["model.onnx", "--database", str(tmp_path / "c.sqlite"), "--percentile"]
    assert percentile_of(cost_model_of(parser.parse_args([*asked, "90"]), lambda *_: None)) == 90.0
    with pytest.raises(SystemExit):
        parser.parse_args([*asked, "100"])


def test_a_percentile_belongs_to_the_estimator_that_is_given() -> None:
    mod = IRModule({"main": graphs.chain()})
    with pytest.raises(CollageError, match="a percentile and an estimator"):
        uc.compile(mod, percentile=90, estimator=FixedCost())
    with pytest.raises(CollageError, match="a percentile and refine"):
        uc.compile(mod, refine=uc.Refinement(), estimator=MeasuredCost(method=Method.of(90)))


def kernel(number: int, seconds: float = 1e-3) -> PlannedKernel:
    return PlannedKernel(number, "tvm", "relu", "f", ("lv",), seconds)


def test_kernels_with_too_few_runs_are_remarked() -> None:
    func = graphs.chain()
    candidates = tuple(Candidate(i, "tvm", "cone", "relu", (i,)) for i in range(2))
    costs = Costs({"a": Cost(1.0, 1.0, 1.0, 54), "b": Cost(1.0, 1.0, 1.0, 53)}, {0: "a", 1: "b"})
    costed = IRModule({"main": COSTS.write(CANDIDATES.write(func, candidates), costs)})
    final = IRModule({"main": PLAN.write(func, Plan((kernel(0), kernel(1))))})
    (remark,) = too_few_runs(costed, final, 90)
    assert remark.startswith("1 kernels ran fewer than 54 times")
    assert too_few_runs(costed, final, 50) == ()


def shown(renderable: object) -> list[str]:
    console = Console(width=80)
    with console.capture() as captured:
        console.print(renderable)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_the_additive_error_stands_beside_what_was_measured() -> None:
    plan = Plan((kernel(0),), seconds=1e-3, measured_seconds=1.1e-3)
    assert plan.additive_error == pytest.approx(1e-4)
    assert shown(plan_summary("main", plan))[:2] == [
        "main: 1 kernel, predicted 1.00 ms, measured 1.10 ms",
        "additive error: 100 us more than all kernels together (+10.0%)",
    ]
    faster = replace(plan, measured_seconds=0.9e-3, percentile=90.0)
    assert shown(plan_summary("main", faster))[:2] == [
        "main: 1 kernel, predicted p90 1.00 ms, measured p90 900 us",
        "additive error: 100 us less than all kernels together (-10.0%)",
    ]
    compared = ProgramComparison("collage", (), predicted=1e-3, measured=1.1e-3)
    assert "additive error: 100 us more" in " ".join(shown(comparison_table(compared)))


def test_without_costs_there_is_no_additive_error() -> None:
    plan = Plan((kernel(0, 0.0),), measured_seconds=1e-3, algorithm="rule", remarks=("chosen by rule",))
    assert plan.additive_error is None and not plan.has_costs
    lines = shown(plan_summary("main", plan))
    assert lines[0] == "main: 1 kernel, nothing measured, measured 1.00 ms" and "chosen by rule" in lines
    assert "0 ns" not in "".join(lines)


def test_reports_have_the_additive_error(tmp_path: Path) -> None:
    from unity_collage.compiler import explain
    from unity_collage.pipeline import Pipeline

    explained = explain(IRModule({"main": graphs.chain()}), Pipeline(backends=("tvm",), model=FixedCost()))
    of_main = explained["main"]
    chosen = [of_main.by_id[each.candidate] for each in of_main.kernels]
    kernels = tuple(
        replace(
            kernel(number),
            backend=each.backend,
            label=each.label,
            bindings=tuple(of_main.bindings[index].name for index in each.bindings),
        )
        for number, each in enumerate(chosen)
    )
    plans = {"main": Plan(kernels, seconds=1e-3, measured_seconds=1.1e-3)}
    for name in ("plan.json", "plan.html"):
        write_report(str(tmp_path / name), "chain", plans, explained)
    assert '"additive_error": 0.0001' in (tmp_path / "plan.json").read_text()
    assert "additive error: 100 us more" in (tmp_path / "plan.html").read_text()
