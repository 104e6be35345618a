"""The page against its plan: every figure is computed once, so the page, the table for terminals and the plan agree.

A model whose batch is open has a page for each of its sizes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import tvm
from onnx import ModelProto, TensorProto, helper, numpy_helper
from rich.console import Console
from test_report_page import shown, text_of
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.target import Target

import unity_collage as uc
from unity_collage.annotations import EXPLANATION, PLAN
from unity_collage.cost.model import Overheads, Workload
from unity_collage.passes import AnnotateCandidates, EstimateCosts, SearchPartition
from unity_collage.plan.comparison import ProgramComparison, ProgramTimes
from unity_collage.plan.costs import Cost
from unity_collage.plan.explanation import Explanation
from unity_collage.plan.plan import Plan
from unity_collage.profile.planned_times import with_times
from unity_collage.program import Program
from unity_collage.report import duration, plan_summary
from unity_collage.report.html import html_report
from unity_collage.report.words import percent
from unity_collage.testing.fake_backend import fake_backend, only_backends
from unity_collage.testing.fixed_cost import FixedCost

SECONDS = {
    "onednn:matmul+relu": 2.4e-3, "tvm:matmul+relu": 5e-3, "onednn:matmul": 2e-3, "tvm:matmul": 2.9e-3,
    "onednn:sigmoid": 1e-3, "tvm:sigmoid": 1.02e-3, "tvm:softmax": 1.1e-3,
}  # fmt: skip
"""oneDNN and TVM tie at the sigmoid. All other kernels are far more expensive."""


@dataclass(frozen=True)
class NoisyCost(FixedCost):
    """Costs by hand with intervals of five percent, as measurements have them."""

    def costs(self, workloads: Sequence[Workload]) -> dict[str, Cost]:
        """Kernels with free sizes cost twice as much, so that variants for sizes pay."""
        free = {workload.key for workload in workloads if "collage.compiled_as" in workload.func.attrs}
        found = super().costs(workloads)
        return {key: self._noisy(cost, 2.0 if key in free else 1.0) for key, cost in found.items()}

    def overheads(self, backends: Sequence[str]) -> Overheads:
        return Overheads(3e-6)

    def _noisy(self, cost: Cost, factor: float) -> Cost:
        if cost.seconds is None:
            return cost
        seconds = cost.seconds * factor
        return Cost(seconds, seconds * 0.95, seconds * 1.05, 50, "measured")


def model() -> ModelProto:
    """Two products with a relu, a sigmoid and a softmax; the batch is open."""
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ("batch", 8)) for name in ("x", "scores")
    ]
    weights = [numpy_helper.from_array(np.ones((8, 8), "float32"), name) for name in ("w1", "w2")]
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["product1"]),
        helper.make_node("Relu", ["product1"], ["relu1"]),
        helper.make_node("Sigmoid", ["relu1"], ["gate"]),
        helper.make_node("MatMul", ["gate", "w2"], ["product2"]),
        helper.make_node("Softmax", ["product2"], ["scores"]),
    ]
    graph = helper.make_graph(nodes, "open", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def program() -> Program:
    """Programs are not compared with costs by hand, so the time of the whole one is set here."""
    made = uc.compile(
        model(),
        shapes={"batch": [1, 4]},
        backends=["onednn", "tvm"],
        estimator=NoisyCost(SECONDS, default=2e-2),
        explain=True,
    )
    for name in made.plan or {}:
        made.add_to_plan(name, measured_seconds=9e-3)
    return made


VARIANTS = ("main_batch_1", "main_batch_4")


def explained(program: Program, name: str) -> tuple[Plan, Explanation]:
    assert program.plan is not None and program.explanation is not None
    return program.plan[name], program.explanation[name]


def page_of(program: Program) -> str:
    names = [name for name in program.plan or {} if name in (program.explanation or {})]
    return html_report("m", {name: explained(program, name)[1] for name in names}, plans=program.plan)


@dataclass(frozen=True)
class Page:
    """What the page shows of one function."""

    dom: str
    rows: list[list[str]]
    """The table of all kernels as they run: label, backend, cost, share, time in place if known, next best plan."""
    facts: dict[str, str]
    """The certificate."""
    panels: list[str]
    """What is said of each kernel that is chosen."""


def opened(browser: str, folder: Path, page: str, name: str) -> Page:
    act = """
        chosen();
        at('equal').checked = false;
        at('order').value = 'run';
        showList();
        const cells = (row) => [...row.cells].map((cell) => cell.textContent);
        const terms = [...at('proof').querySelectorAll('dt')].map((dt) => [dt.textContent, dt.nextSibling.textContent]);
        const panels = kernels.map((kernel) => (showKernel(kernel), at('right').textContent));
        document.documentElement.dataset.told = JSON.stringify(
            [[...at('kernels').tBodies[0].rows].map(cells), Object.fromEntries(terms), panels])"""
    dom = shown(browser, folder, page, f"#{name}:", act)
    found = re.search(r'<html[^>]*data-told="([^"]*)"', dom)
    assert found is not None, "the script was not run to its end"
    return Page(dom, *json.loads(unescape(found[1])))


def in_terminal(name: str, plan: Plan) -> str:
    console = Console(width=100)
    with console.capture() as taken:
        console.print(plan_summary(name, plan), highlight=False)
    return taken.get()


@pytest.mark.parametrize("name", VARIANTS)
def test_the_page_of_each_size_agrees_with_its_plan(
    browser: str, tmp_path: Path, program: Program, name: str
) -> None:
    plan, _ = explained(program, name)
    page = opened(browser, tmp_path, page_of(program), name)
    assert [row[:4] for row in page.rows] == [
        [k.label, k.backend, duration(k.seconds), percent(k.seconds / plan.seconds)] for k in plan.kernels
    ]
    assert page.facts["cost"] == duration(plan.seconds)
    assert page.facts["lower bound"] == duration(plan.lower_bound)
    assert page.facts["gap"] == percent(plan.gap)
    assert page.facts["search"] == plan.algorithm
    assert (page.facts["proof"] == "no valid plan is cheaper") == plan.proved
    assert page.facts["each launch"] == duration(plan.launch_seconds)


@pytest.mark.parametrize("name", VARIANTS)
def test_intervals_ties_and_runners_up_are_those_of_the_plan(
    browser: str, tmp_path: Path, program: Program, name: str
) -> None:
    plan, _ = explained(program, name)
    page = opened(browser, tmp_path, page_of(program), name)
    assert any(kernel.ties for kernel in plan.kernels) and not all(kernel.ties for kernel in plan.kernels)
    for kernel, row, panel in zip(plan.kernels, page.rows, page.panels, strict=True):
        low, high = kernel.interval or (0.0, 0.0)
        assert (
            f"{duration(kernel.seconds)} a run ({duration(low)} to {duration(high)}, 50 runs, measured)"
            in panel
        )
        if kernel.ties:
            assert row[4] == f"tie with {kernel.ties[0][0].backend}"
            assert f"Tie with {kernel.ties[0][0].backend} {kernel.ties[0][0].label}" in panel
        elif kernel.runner_up is not None and kernel.runner_up.regret:
            assert row[4].startswith(kernel.runner_up.backend)
            assert row[4].endswith(f"+{duration(kernel.runner_up.regret)}")
            assert f"costs {duration(kernel.runner_up.regret)} more" in panel
    in_ties = sum(row[4].startswith("tie") for row in page.rows)
    assert f"{in_ties} kernel{'s' if in_ties > 1 else ''} in ties" in in_terminal(name, plan)


@pytest.mark.parametrize("name", VARIANTS)
def test_prediction_and_measurement_are_the_same_in_page_and_terminal(
    browser: str, tmp_path: Path, program: Program, name: str
) -> None:
    plan, _ = explained(program, name)
    dom = opened(browser, tmp_path, page_of(program), name).dom
    head, text = text_of(dom, "headline"), in_terminal(name, plan)
    assert f"predicted {duration(plan.seconds)}, launches and transitions included" in head
    assert head.endswith("the whole program, measured: 9.00 ms")
    assert f"predicted {duration(plan.seconds)}, measured 9.00 ms" in text
    error = re.search(r"additive error: .*", text)
    assert error is not None and error[0] in text_of(dom, "proof")


def test_times_in_place_are_those_of_the_profile(browser: str, tmp_path: Path, program: Program) -> None:
    name = "main_batch_4"
    profile = program.profile(np.ones((4, 8), "float32"), seconds=0.05)
    plans = with_times(program.plan or {}, profile)
    page = html_report("m", {name: explained(program, name)[1]}, plans=plans)
    found, calls = opened(browser, tmp_path, page, name), {}
    for kernel in profile.kernels:
        calls |= {call.layers: call for call in kernel.calls if call.function == name and call.cost}
    assert len(calls) == len(plans[name].kernels) == len(found.rows)
    for kernel, row, panel in zip(plans[name].kernels, found.rows, found.panels, strict=True):
        call = calls[kernel.bindings]
        off = f"{call.seconds / call.cost:.2f}x"
        assert row[4] == f"{duration(call.seconds)} {off}"
        assert f"In place: {duration(call.seconds)} ({duration(call.low)} to {duration(call.high)}" in panel
        assert f", {off} the {duration(call.cost)} that are predicted with its launch" in panel
    (block,) = re.findall(r"4 kernels.*", text_of(found.dom, "bars"))
    seconds = sum(call.seconds for call in calls.values())
    predicted = sum(call.cost for call in calls.values())
    assert block.endswith(f"{duration(seconds)} {seconds / predicted:.2f}x")
    assert text_of(found.dom, "moves").startswith("No kernel only copies or reorders values.")
    sums = text_of(found.dom, "compared-sums")
    together = [sum(call.cost for call in calls.values()), sum(call.seconds for call in calls.values())]
    assert f"4 kernels with launches {duration(together[0])} {duration(together[1])}" in sums
    assert f"the whole program {duration(plans[name].seconds)} {duration(profile.seconds)}" in sums
    assert text_of(found.dom, "headline").endswith(
        f"the whole program, measured: {duration(profile.seconds)}"
    )


def test_the_texts_of_a_kernel_are_put_into_the_page_when_they_are_opened(
    browser: str, tmp_path: Path, program: Program
) -> None:
    name = "main_batch_4"
    _, explanation = explained(program, name)
    act = """
        const number = kernels.findIndex((kernel) => kernel.candidate.backend === 'tvm');
        showKernel(kernels[number]);
        const texts = () => [...at('right').querySelectorAll('pre')].map((pre) => pre.textContent);
        const before = texts(), folded = [...at('right').querySelectorAll('details.text')];
        document.execCommand = () => (document.documentElement.dataset.copied = getSelection().toString(), true);
        for (const each of folded) each.open = true;
        setTimeout(() => {
            const buttons = [...at('right').querySelectorAll('details.text button')];
            buttons[1].click();
            const stops = [...at('right').querySelectorAll('pre')].map((pre) => pre.tabIndex);
            document.documentElement.dataset.told = JSON.stringify([number, before, texts(), stops]);
        }, 500);"""
    dom = shown(browser, tmp_path, page_of(program), f"#{name}:", f"chosen(); {act}")
    number, before, after, stops = json.loads(unescape(re.search(r'data-told="([^"]*)"', dom)[1]))
    kernel = explanation.kernels[number]
    assert kernel.script is not None and kernel.source is not None
    assert (before, stops) == ([], [0, 0])
    assert after == [explanation.texts[kernel.script], explanation.texts[kernel.source]]
    assert "T.prim_func" in after[1]
    copied = unescape(re.search(r'data-copied="([^"]*)"', dom)[1])
    assert copied.split() == after[1].split()


def test_a_page_without_a_profile_says_how_to_get_the_times(
    browser: str, tmp_path: Path, program: Program
) -> None:
    found = opened(browser, tmp_path, page_of(program), "main_batch_4")
    assert "unity-collage profile MODEL --report FILE.html" in text_of(found.dom, "compared-says")
    assert {len(row) for row in found.rows} == {5}


def test_the_shares_of_page_and_terminal_are_of_the_whole_plan(
    browser: str, tmp_path: Path, program: Program
) -> None:
    plan, _ = explained(program, "main_batch_1")
    legend = text_of(opened(browser, tmp_path, page_of(program), "main_batch_1").dom, "legend")
    text = in_terminal("main", plan)
    for backend in ("onednn", "tvm"):
        share = percent(sum(k.seconds for k in plan.kernels if k.backend == backend) / plan.seconds)
        assert re.search(rf"{backend}: \d kernels?, {re.escape(share)}", legend)
        assert re.search(rf"{backend} .* {re.escape(share)}", text)


def test_the_functions_of_a_range_are_named_by_their_sizes_in_order(
    browser: str, tmp_path: Path, program: Program
) -> None:
    dom = shown(browser, tmp_path, page_of(program))
    options = re.findall(r'<option value="(\w+)">(main_[^<]*)</option>', dom)
    assert options[:2] == [
        (name, f"{name} (batch {size})") for name, size in zip(VARIANTS, (1, 4), strict=True)
    ]
    assert text_of(dom, "headline").startswith("main_batch_1 (batch 1): ")


def test_a_page_about_another_plan_than_that_of_the_program_says_so(
    browser: str, tmp_path: Path, program: Program
) -> None:
    plan, explanation = explained(program, "main_batch_1")
    report = ProgramComparison("tvm", (ProgramTimes("collage", 9e-3), ProgramTimes("tvm", 8e-3)))
    other = replace(
        plan,
        kernels=plan.kernels[:1],
        measured_seconds=8e-3,
        comparison=report,
        remarks=("of the other plan",),
    )
    dom = shown(browser, tmp_path, html_report("m", {"main": explanation}, plans={"main": other}))
    kernel = f"{plan.kernels[0].backend} {plan.kernels[0].label}"
    assert text_of(dom, "notice") == (
        f"The program runs another plan of 1 kernel ({kernel}). This page explains the plan "
        "of the search; tvm was the fastest when whole programs were timed in turns: 8.00 ms against 9.00 ms."
    )
    assert text_of(dom, "headline").endswith("launches and transitions included")
    assert "of the other plan" not in dom.partition("<script")[0]


@I.ir_module
class TwoDevices:
    I.module_global_infos(
        {"vdevice": [I.vdevice("llvm"), I.vdevice({"kind": "llvm", "mcpu": "skylake-avx512"})]}
    )

    @R.function
    def main(x: R.Tensor((4, 16), "float32", "llvm:0")) -> R.Tensor((4, 16), "float32", "llvm:1"):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.to_vdevice(a, "llvm:1")
            c = R.nn.relu(b)
            R.output(c)
        return c


def test_a_plan_with_values_on_two_devices_is_a_page(browser: str, tmp_path: Path) -> None:
    passes = [AnnotateCandidates(), EstimateCosts(FixedCost({"toy": 0.5})), SearchPartition(explain=True)]
    # Not under the contract: TVM's parser knows no virtual devices in the types of local functions.
    with only_backends(fake_backend("toy", "relax.nn.relu")), Target("llvm"), tvm.transform.PassContext():
        mod = tvm.transform.Sequential(passes)(TwoDevices)
    plan, explanation = PLAN.read(mod["main"]), EXPLANATION.read(mod["main"])
    assert [kernel.device for kernel in plan.kernels] == ["llvm:0", "llvm:1"]
    page = html_report("m", {"main": explanation}, plans={"main": plan})
    opened_page = opened(browser, tmp_path, page, "main")
    assert [row[:2] for row in opened_page.rows] == [["relu", "toy"], ["relu", "toy"]]
    for kernel, panel in zip(plan.kernels, opened_page.panels, strict=True):
        assert f"function {kernel.function} on {kernel.device}" in panel
        assert f"toy, {kernel.device}" in text_of(opened_page.dom, "graph")
    assert "to_vdevice: no backend has a cost, TVM compiles it as it is" in text_of(
        opened_page.dom, "left-behind"
    )


def test_paper_shows_the_whole_picture(browser: str, tmp_path: Path, program: Program) -> None:
    """What is printed is the whole graph at any zoom; afterwards the view is as it was."""
    act = """
        zoom(4);
        const before = scene.getAttribute('transform');
        touched = false;
        window.dispatchEvent(new Event('beforeprint'));
        svg.style.height = '300px';
        resized();
        const box = [svg.getAttribute('viewBox'), scene.getAttribute('transform')];
        window.dispatchEvent(new Event('afterprint'));
        document.documentElement.dataset.told = JSON.stringify(
            [...box, svg.hasAttribute('viewBox'), scene.getAttribute('transform') === before])"""
    dom = shown(browser, tmp_path, page_of(program), act=act)
    found = re.search(r'<html[^>]*data-told="([^"]*)"', dom)
    assert found is not None
    view_box, transform, is_left, is_as_before = json.loads(unescape(found[1]))
    assert re.fullmatch(r"-12 -24 \d+ \d+", view_box)
    assert (transform, is_left, is_as_before) == (None, False, True)
