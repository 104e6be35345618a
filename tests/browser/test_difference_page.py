"""Two plans side by side as a page, as a browser shows it."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from test_report_page import EVIL, shown, text_of

from unity_collage.inspection.plan_diff import ProgramDifference, diff
from unity_collage.plan.plan import Plan, PlannedKernel
from unity_collage.report.difference import difference_data
from unity_collage.report.difference_page import difference_page


def kernel(backend: str, label: str, names: str, seconds: float) -> PlannedKernel:
    interval = (seconds * 0.99, seconds * 1.01)
    return PlannedKernel(0, backend, label, "", tuple(names.split()), seconds, interval)


def two_plans(conv: str = "conv2d") -> ProgramDifference:
    """A convolution of another backend, an addition and a relu that are fused, a softmax that stays."""
    first = [
        kernel("onednn", conv, "layer1.conv", 4e-3),
        kernel("tvm", "add", "layer1.add", 1e-3),
        kernel("tvm", "relu", "layer1.relu", 1e-3),
        kernel("tvm", "softmax", "out", 5e-4),
    ]
    second = [
        kernel("kernels", conv, "layer1.conv", 2e-3),
        kernel("tvm", "add+relu", "layer1.add layer1.relu", 1.5e-3),
        kernel("tvm", "softmax", "out", 5e-4),
    ]
    plans = [
        Plan(tuple(own), sum(k.seconds for k in own) + 1e-4 * len(own), left_behind=("view",), measured_seconds=7e-3)
        for own in (first, second)
    ]  # fmt: skip
    return diff({"main": plans[0], "f": plans[0]}, {"main": plans[1], "f": plans[0]}, names=("a.so", "b.so"))


def told(browser: str, folder: Path, value: str, act: str = "", where: str = "") -> Any:
    """The ``value`` of an expression after ``act``, as the page computes it."""
    act = f"{act}; document.documentElement.dataset.told = JSON.stringify({value})"
    dom = shown(browser, folder, difference_page(two_plans()), where, act)
    found = re.search(r'<html[^>]*data-told="([^"]*)"', dom)
    assert found is not None, "the script was not run to its end"
    return json.loads(unescape(found[1]))


def cells(table: str) -> str:
    """The texts of a table's cells by row."""
    return f"[...at('{table}').tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent))"


def chosen(id_: str, value: str) -> str:
    return f"at('{id_}').value = '{value}'; at('{id_}').dispatchEvent(new Event('input', {{bubbles: true}}))"


def test_the_page_needs_nothing_but_itself() -> None:
    page = difference_page(two_plans())
    assert not re.search(r"""(src|href)=|https?:|@import|url\(|fetch\(|@[A-Z]+@""", page)
    assert "default-src 'none'" in page


def test_the_page_has_both_costs_and_what_differs(browser: str, tmp_path: Path) -> None:
    dom = shown(browser, tmp_path, difference_page(two_plans()))
    assert text_of(dom, "which") == "first a.so second b.so"
    assert text_of(dom, "headline") == "main: 4 kernels, 6.90 ms; then 3 kernels, 4.30 ms: -2.60 ms (-37.7%)"
    assert text_of(dom, "measured").startswith("the whole programs, measured: 7.00 ms, then 7.00 ms: 0")
    assert text_of(dom, "count") == "2 parts of 3, -2.50 ms"


def test_the_largest_difference_comes_first(browser: str, tmp_path: Path) -> None:
    assert told(browser, tmp_path, cells("parts")) == [
        ["layer1.convother backend", "onednn conv2d", "kernels conv2d", "4.00 ms", "2.00 ms", "-2.00 ms", "76.9%"],
        ["layer1.relufused differently", "tvm addtvm relu", "tvm add+relu", "2.00 ms", "1.50 ms", "-500 us", "19.2%"],
    ]  # fmt: skip


def test_the_sums_are_those_of_the_data(browser: str, tmp_path: Path) -> None:
    changes, backends = told(browser, tmp_path, f"[{cells('changes')}, {cells('backends')}]")
    data = difference_data(two_plans())["functions"]["main"]
    assert [row[0] for row in changes[:3]] == [each["change"] for each in data["by_change"]]
    assert [row[1:] for row in changes] == [
        ["1", "0", "0.0%"], ["1", "-2.00 ms", "76.9%"], ["1", "-500 us", "19.2%"],
        ["", "-100 us", "3.8%"], ["", "-2.60 ms", "100.0%"],
    ]  # fmt: skip
    assert backends[0] == ["onednn", "4.00 ms1 kernel", "0 kernels", "-4.00 ms"]
    assert [row[0] for row in backends] == [each["backend"] for each in data["by_backend"]]


def test_both_strips_have_one_scale(browser: str, tmp_path: Path) -> None:
    widths = "[...at('strip-%s').children].map((part) => parseFloat(part.style.width))"
    first, second = told(browser, tmp_path, f"[{widths % 'first'}, {widths % 'second'}]")
    assert first == pytest.approx([4 / 0.069, 1 / 0.069, 1 / 0.069, 0.5 / 0.069], rel=1e-3)
    assert second == pytest.approx([2 / 0.069, 1.5 / 0.069, 0.5 / 0.069], rel=1e-3)


@pytest.mark.parametrize(
    ("act", "layers"),
    [
        (chosen("change", ""), ["layer1.conv", "layer1.relu", "out"]),
        (chosen("change", "same kernel"), ["out"]),
        (chosen("change", "fused differently"), ["layer1.relu"]),
        (chosen("find", "LAYER1.ADD"), ["layer1.relu"]),
        (chosen("find", "kernels"), ["layer1.conv"]),
    ],
)
def test_parts_are_filtered(browser: str, tmp_path: Path, act: str, layers: list[str]) -> None:
    shown_layers = "[...at('parts').tBodies[0].rows].map((row) => row.querySelector('a').textContent)"
    assert told(browser, tmp_path, shown_layers, act) == layers


def test_a_click_shows_the_kernels_of_both_plans_and_marks_them(browser: str, tmp_path: Path) -> None:
    act = "document.querySelector('#strip-second a:nth-child(2)').click()"
    dom = shown(browser, tmp_path, difference_page(two_plans()), act=act)
    strips = dom.partition('id="strip-first"')[2].partition("<main")[0]
    assert len(re.findall(r'<a [^>]*class="[^"]*\bhere\b', strips)) == 3
    text = text_of(dom, "right")
    assert text.startswith("layer1.relu fused differently: -500 us, 19.2% of the whole difference")
    assert "tvm add: 1.00 ms (990 us to 1.01 ms) layer1.add" in text


MOVES = {
    ("ArrowRight",): "strip-first: tvm relu, 1.00 ms, layer1.relu, fused differently",
    ("ArrowLeft",): "strip-first: onednn conv2d, 4.00 ms, layer1.conv, other backend",
    ("ArrowDown",): "strip-second: tvm add+relu, 1.50 ms, layer1.relu, fused differently",
    ("ArrowUp", "ArrowDown"): "strip-first: tvm add, 1.00 ms, layer1.relu, fused differently",
    ("End", "ArrowRight"): "strip-first: tvm softmax, 500 us, out, same kernel",
    ("Home", "ArrowLeft"): "strip-first: onednn conv2d, 4.00 ms, layer1.conv, other backend",
}
"""Where keys lead to from the second kernel of the first plan."""

KEYBOARD = """
    const second = document.querySelector('#strip-first a:nth-child(2)');
    const focus = () => document.activeElement;
    const press = (key) => focus().dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}));
    const where = () => `${focus().parentElement.id}: ${focus().getAttribute('aria-label')}`;
    second.focus();"""


def test_arrows_go_from_kernel_to_kernel_and_to_the_other_plan(browser: str, tmp_path: Path) -> None:
    moves = f"{json.dumps([*MOVES])}.map((keys) => (second.focus(), keys.forEach(press), where()))"
    assert told(browser, tmp_path, moves, KEYBOARD) == [*MOVES.values()]


def test_the_tab_key_has_one_stop_in_each_plan_and_one_in_each_row(browser: str, tmp_path: Path) -> None:
    stops = "[...document.querySelectorAll('a[href]')].filter((a) => a.tabIndex >= 0)"
    texts = f"{stops}.map((a) => a.textContent || a.title)"
    first, second, *rows = told(
        browser, tmp_path, texts, f"{KEYBOARD} press('ArrowLeft'); press('ArrowRight')"
    )
    assert first.startswith("tvm add:") and second.startswith("kernels conv2d:")
    assert rows == ["layer1.conv", "layer1.relu"]


def test_what_has_the_focus_keeps_it_when_its_part_is_chosen(browser: str, tmp_path: Path) -> None:
    act = f"{KEYBOARD} focus().click(); window.dispatchEvent(new Event('hashchange'))"
    value = "[at('right').querySelector('h2').textContent, at('right').ariaLive, focus() === second]"
    assert told(browser, tmp_path, value, act) == ["layer1.relu", "polite", True]


def test_enter_in_the_search_chooses_the_next_part(browser: str, tmp_path: Path) -> None:
    enter = "[1, 2, 3].map(() => (at('controls').requestSubmit(), location.hash))"
    found = told(browser, tmp_path, enter, chosen("find", "layer1"))
    assert found == ["#main:layer1.conv", "#main:layer1.relu", "#main:layer1.conv"]


def test_a_link_opens_its_function(browser: str, tmp_path: Path) -> None:
    dom = shown(browser, tmp_path, difference_page(two_plans()), "#f:layer1.conv")
    assert text_of(dom, "headline").startswith("f: 4 kernels, 6.90 ms; then 4 kernels, 6.90 ms: 0")
    assert text_of(dom, "right").startswith("layer1.conv same kernel")


def test_names_from_outside_are_only_text(browser: str, tmp_path: Path) -> None:
    dom = shown(browser, tmp_path, difference_page(two_plans(EVIL)), "#main:layer1.conv")
    assert "<title>broken" not in dom
    assert EVIL in text_of(dom, "right")
