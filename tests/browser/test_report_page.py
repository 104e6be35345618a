"""The report as a page, as a browser shows it: Debian's chromium without a window, and without a network."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from unity_collage.plan.explanation import (
    DeclinedGroup,
    ExplainedBinding,
    ExplainedCandidate,
    ExplainedCost,
    ExplainedKernel,
    Explanation,
    Proof,
    Verdict,
)
from unity_collage.plan.memory import MemorySpace, PlanMemory
from unity_collage.plan.plan import Plan
from unity_collage.report.html import html_report

VIRTUAL = ("--virtual-time-budget=2000",)
"""Two seconds of the page's own time, which pass at once while it is idle."""

EVIL = "</script><script>document.title = 'broken'</script>"


def explanation(kernels: int = 3) -> Explanation:
    """``kernels`` equal convolutions of onednn and a relu of tvm behind them; every convolution has a rival."""
    costs = (
        ExplainedCost("conv", 2e-3, 1.9e-3, 2.2e-3, 50, "measured"),
        ExplainedCost("relu", 1e-3, 1e-3, 1e-3, 50, "measured"),
        ExplainedCost("rival", 3e-3, 2.9e-3, 3.1e-3, 50, "measured"),
        ExplainedCost("crash", reason=f"it crashed {EVIL}"),
    )
    numbers = range(kernels)
    chosen = [
        ExplainedCandidate(i, "onednn", "primitive", "conv2d", (i,), 0, Verdict.CHOSEN, 1e-2, 0.0)
        for i in numbers
    ]
    relu = ExplainedCandidate(kernels, "tvm", "cone", "relu", (kernels,), 1, Verdict.CHOSEN, 1e-2, 0.0)
    rivals = [
        ExplainedCandidate(
            100_000 + i, "tvm", "cone", "conv2d", (i,), 2, Verdict.RUNNER_UP, 1.1e-2, 1e-3, saved=1 / 3
        )
        for i in numbers
    ]
    crash = ExplainedCandidate(-1, "openblas", "gemm", "conv2d", (0,), 3, Verdict.NO_COST)
    convolutions = [
        ExplainedKernel(
            i, f"fused_conv2d_{i}", (i - 1,) if i else (), 100_000 + i, 1e-3, True, (100_000 + i,)
        )
        for i in numbers
    ]
    return Explanation(
        proof=Proof(1e-2, 1e-2, 0.0, True, "exact", 12, 1e-6),
        bindings=(
            *(ExplainedBinding(f"conv{i}", "relax.nn.conv2d", "float32 (1, 8)") for i in numbers),
            ExplainedBinding("out", "relax.nn.relu", "float32 (1, 8)"),
            ExplainedBinding("view", "relax.reshape", "float32 (8)", True),
        ),
        kernels=(*convolutions, ExplainedKernel(kernels, "fused_relu", (kernels - 1,))),
        candidates=(*chosen, relu, *rivals, crash),
        costs=costs,
        declined=(DeclinedGroup("openblas", "3x3 kernels are no products", (0, 1)),),
        left_behind=(kernels + 1,),
    )


def shown(
    browser: str, folder: Path, page: str, where: str = "", act: str = "", clock: Sequence[str] = VIRTUAL
) -> str:
    """The page after its script and ``act`` have run, opened at ``where``; no script may fail."""
    watch = "addEventListener('error', (e) => document.documentElement.dataset.errors = e.message);"
    page = page.replace("<title>", f"<script>{watch}</script><title>", 1)
    (folder / "page.html").write_text(page.replace("</body>", f"<script>{act}</script></body>"))
    # A container's root has no sandbox of its own to offer, and the page is ours.
    options = ["--headless", "--no-sandbox", "--disable-gpu", *clock, "--dump-dom"]
    address = f"{(folder / 'page.html').as_uri()}{where}"
    command = [browser, *options, f"--user-data-dir={folder / 'profile'}", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    root = done.stdout[done.stdout.index("<html") :].split(">")[0]
    assert "data-errors" not in root, root
    return done.stdout


def text_of(dom: str, id_: str) -> str:
    """The text of one element, as far as its like-named end."""
    found = re.search(rf'<(\w+)[^>]*\bid="{id_}"[^>]*>(.*?)</\1>', dom, re.DOTALL)
    assert found is not None, f"no element {id_}"
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", found[2])).split())


def test_the_page_needs_nothing_but_itself() -> None:
    page = html_report("m.onnx", {"main": explanation()})
    assert not re.search(
        r"""(src|href)=|https?:|@import|url\(|fetch\(|@[A-Z]+@""", page.replace("<a href", "")
    )
    assert "default-src 'none'" in page
    assert "</script><script>document.title" not in page


def test_the_page_lists_kernels_with_their_share_and_equal_ones_as_one(browser: str, tmp_path: Path) -> None:
    dom = shown(browser, tmp_path, html_report("m.onnx", {"main": explanation()}))
    assert text_of(dom, "headline").startswith(
        "main: 4 kernels out of 8 candidates (7 with a cost), predicted 10.0 ms"
    )
    assert text_of(dom, "kernels") == (
        "kernel backend cost share in place next best plan "
        "conv2d x3 onednn 6.00 ms 60.0% tvm +1.00 ms relu tvm 1.00 ms 10.0% none"
    )
    assert text_of(dom, "right").startswith("Choose a kernel")
    assert "proof no valid plan is cheaper search exact" in text_of(dom, "proof")
    assert text_of(dom, "left-behind") == "reshape: the VM evaluates it for free (1) view"


def test_the_head_has_the_kernels_that_only_move_values_and_shows_them(browser: str, tmp_path: Path) -> None:
    known = explanation()
    moving = replace(known.bindings[3], op="relax.permute_dims")
    page = html_report(
        "m.onnx", {"main": replace(known, bindings=(*known.bindings[:3], moving, known.bindings[4]))}
    )
    show = "at('moves').querySelector('button').click()"
    act = f"zoom(0.1); const before = view.scale; {show}; at('count').textContent = view.scale - before"
    dom = shown(browser, tmp_path, page, act=act)
    assert text_of(dom, "moves").startswith("1 kernel only copies or reorders values: 1.00 ms, 10.0%.")
    assert float(text_of(dom, "count")) > 0


def test_the_page_says_what_the_plan_remarks(browser: str, tmp_path: Path) -> None:
    page = html_report("m.onnx", {"main": explanation()}, {"main": ["4 kernels run side by side"]})
    assert text_of(shown(browser, tmp_path, page), "proof").endswith("4 kernels run side by side")


def test_the_page_draws_the_memory_over_the_run(browser: str, tmp_path: Path) -> None:
    space = MemorySpace("llvm:0", live=(4096, 12288), weights=8192)
    plans = {"main": Plan(memory=PlanMemory(("conv", "softmax"), (space,)))}
    dom = shown(browser, tmp_path, html_report("m.onnx", {"main": explanation()}, plans=plans))
    assert text_of(dom, "memory-says").startswith("Peak memory 20.5 kB at softmax")
    assert re.findall(r'<i class="(\w*)" title="(\w+: [^"]*)" style="height: ?([\d.]+)%', dom) == [
        ("", "conv: 12.3 kB", "60"), ("peak", "softmax: 20.5 kB", "100")
    ]  # fmt: skip


def test_the_page_says_nothing_of_memory_that_is_not_known(browser: str, tmp_path: Path) -> None:
    dom = shown(browser, tmp_path, html_report("m.onnx", {"main": explanation()}))
    assert re.search(r'<section id="memory"[^>]*hidden', dom)


def test_a_chosen_kernel_says_why_it_won_by_how_much_and_what_would_change_it(
    browser: str, tmp_path: Path
) -> None:
    dom = shown(browser, tmp_path, html_report("m.onnx", {"main": explanation()}), "#main:conv1")
    told = text_of(dom, "right")
    assert "one of 3 equal kernels: conv0 conv1 conv2" in told.lower()
    assert "The best plan without it has tvm conv2d (conv1) and costs 1.00 ms more" in told
    assert "+1.00 ms: would win if 33.3% faster" in told
    assert "Reads from: conv0 Read by: conv2" in told
    assert "openblas declined (predicate): 3x3 kernels are no products" in told


def test_a_screen_reader_has_a_name_for_whatever_can_be_used(browser: str, tmp_path: Path) -> None:
    act = """
        const label = (each) => each.getAttribute('aria-label'), isPlace = (each) => each.matches('table, section');
        const named = (each) => label(each) || (!isPlace(each) && (each.labels?.length || each.textContent.trim()));
        const kinds = 'table, section, svg a, svg [role=button], button, input, select, main a';
        const all_ = [...document.querySelectorAll(kinds)].filter((each) => !each.closest('[aria-hidden=true]'));
        const without = all_.filter((each) => !named(each)).map((each) => each.outerHTML.slice(0, 90));
        at('count').textContent = `${all_.length > 20} ${without.join(' ')}`"""
    dom = shown(browser, tmp_path, html_report("m", {"main": explanation()}), "#main:conv0", act)
    assert text_of(dom, "count") == "true"


def test_names_from_outside_are_only_text(browser: str, tmp_path: Path) -> None:
    dom = shown(browser, tmp_path, html_report(EVIL, {"main": explanation()}), "#main:conv0")
    assert f"it crashed {EVIL}" in text_of(dom, "right")
    assert "<title>broken" not in dom


@pytest.mark.parametrize(
    ("act", "count"),
    [
        ("at('find').value = 'RELU'", "1 kernel, 10.0% of the time"),
        ("at('find').value = 'conv2'", "3 kernels, 60.0% of the time"),
        ("at('find').value = 'fused_conv2d_1'", "1 kernel, 20.0% of the time"),
        ("at('backend').value = 'tvm'", "1 kernel, 10.0% of the time"),
        ("at('find').value = 'nothing'", "0 kernels, 0.0% of the time"),
    ],
)
def test_kernels_are_filtered_by_operator_name_and_backend(
    browser: str, tmp_path: Path, act: str, count: str
) -> None:
    act += "; at('controls').dispatchEvent(new Event('input', {bubbles: true}))"
    assert (
        text_of(shown(browser, tmp_path, html_report("m", {"main": explanation()}), act=act), "count")
        == count
    )


def test_a_click_on_a_kernel_chooses_it(browser: str, tmp_path: Path) -> None:
    act = "document.querySelector('#kernels tbody tr:nth-child(2) a').click()"
    dom = shown(browser, tmp_path, html_report("m", {"main": explanation()}), act=act)
    assert text_of(dom, "right").startswith("tvm relu")


def test_another_function_can_be_looked_at(browser: str, tmp_path: Path) -> None:
    page = html_report("m", {"main": explanation(), "other": explanation(5)})
    assert text_of(shown(browser, tmp_path, page, "#other:conv4"), "headline").startswith("other: 6 kernels")


def test_a_function_without_kernels_is_a_page_too(browser: str, tmp_path: Path) -> None:
    bare = Explanation(Proof(0.0, 0.0, 0.0, True, "exact"))
    assert (
        text_of(shown(browser, tmp_path, html_report("m", {"main": bare})), "count")
        == "0 kernels, 0.0% of the time"
    )


def test_a_thousand_kernels_are_all_listed(browser: str, tmp_path: Path) -> None:
    act = "at('equal').checked = false; at('controls').dispatchEvent(new Event('input', {bubbles: true}))"
    act += "; at('more').click()"
    dom = shown(browser, tmp_path, html_report("m", {"main": explanation(1000)}), "#main:conv999", act)
    assert text_of(dom, "kernels").count("conv2d") == 1000
    assert "(conv999)" in text_of(dom, "right")


def test_the_memory_of_many_kernels_keeps_its_peak(browser: str, tmp_path: Path) -> None:
    space = MemorySpace("llvm:0", live=tuple(9000 if i == 777 else 10 for i in range(1000)), weights=0)
    plans = {"main": Plan(memory=PlanMemory(tuple(f"k{i}" for i in range(1000)), (space,)))}
    dom = shown(browser, tmp_path, html_report("m.onnx", {"main": explanation()}, plans=plans))
    assert re.findall(r'<i class="peak" title="(\w+: [^"]*)"', dom) == ["k777: 9.00 kB"]
    assert len(re.findall(r"<i class=", dom.split('id="memory-curves"')[1].split("</section>")[0])) == 500
