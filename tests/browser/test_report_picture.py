"""The picture of the kernels in the report, as a browser shows it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from report_page import chain
from test_report_page import EVIL, explanation, shown, text_of

from unity_collage.plan.explanation import (
    ExplainedBinding,
    ExplainedCandidate,
    ExplainedCost,
    ExplainedKernel,
    Explanation,
    Proof,
    Verdict,
)
from unity_collage.report.html import html_report


def layers(copies: int, sizes: Sequence[float] = (1e-3, 2e-3)) -> Explanation:
    """A stem of tvm and ``copies`` equal layers: a product of onednn, and what adds its result to the layer's input."""
    kinds = ["stem", *["product", "add"] * copies]
    seconds = {"stem": 5e-4, "product": sizes[0], "add": sizes[1]}
    costs = tuple(ExplainedCost(kind, cost, cost, cost, 9, "measured") for kind, cost in seconds.items())
    backends = {"stem": "tvm", "product": "onednn", "add": "onednn"}
    candidates = tuple(
        ExplainedCandidate(i, backends[kind], "r", kind, (i,), list(seconds).index(kind), Verdict.CHOSEN)
        for i, kind in enumerate(kinds)
    )
    reads = [(), *((i - 1,) if i % 2 else (i - 2, i - 1) for i in range(1, len(kinds)))]
    names = ["stem_out", *(f"layer{(i - 1) // 2}.{kinds[i]}" for i in range(1, len(kinds)))]
    total = sum(seconds[kind] for kind in kinds)
    return Explanation(
        Proof(total + 1e-3, total, 0.0, True, "exact"),
        tuple(ExplainedBinding(called, "relax.op", "float32 (1, 8)") for called in names),
        tuple(ExplainedKernel(i, f"f{i}", read, inputs=read) for i, read in enumerate(reads)),
        candidates,
        costs,
    )


def told(
    browser: str, folder: Path, explained: Explanation, value: str, act: str = "", where: str = ""
) -> Any:
    """The ``value`` of an expression after ``act``, as the page computes it."""
    page = html_report("m", {"main": explained})
    act = f"{act}; document.documentElement.dataset.told = JSON.stringify({value})"
    found = re.search(r'<html[^>]*data-told="([^"]*)"', shown(browser, folder, page, where, act))
    assert found is not None, "the script was not run to its end"
    return json.loads(unescape(found[1]))


BOXES = "[...document.querySelectorAll('#graph .kernel')].map((k) => Number(k.dataset.kernel))"
HEADS = "[...document.querySelectorAll('#graph .head')].map((h) => h.querySelector('.times').textContent)"
CLICK = "dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}))"


def pressed(what: str, key: str) -> str:
    return f"{what}.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true, cancelable: true}}))"


def searched(text: str, then: str = "") -> str:
    return f"at('find').value = '{text}'; at('find').dispatchEvent(new Event('input', {{bubbles: true}})); {then}"


def test_the_picture_has_each_kernel_and_the_lines_between_them(browser: str, tmp_path: Path) -> None:
    first = "document.querySelector('main').firstElementChild.id"
    value = f"[{first}, {BOXES}, lines.length, svg.getAttribute('aria-label'), at('fold-key').hidden]"
    first, boxes, lines, label, is_hidden = told(browser, tmp_path, explanation(), value)
    assert (first, boxes, lines, is_hidden) == ("picture", [0, 1, 2, 3], 3, True)
    assert label.startswith("Graph of 4 kernels, 0 repeated blocks. The table")


def test_a_kernel_shows_its_label_backend_and_cost_and_a_line_its_value(browser: str, tmp_path: Path) -> None:
    value = "[boxes.get(1).getAttribute('aria-label'), lines.map((l) => l.element.textContent)]"
    box, values = told(browser, tmp_path, layers(1), value)
    assert box == "product, onednn, 1.00 ms, 22.2%, layer0.product"
    stem, product = "stem_out: float32 (1, 8)", "layer0.product: float32 (1, 8)"
    assert values == [stem, stem, product]


def test_a_block_that_repeats_is_shown_once_with_its_count(browser: str, tmp_path: Path) -> None:
    boxes, heads, is_hidden = told(
        browser, tmp_path, layers(12), f"[{BOXES}, {HEADS}, at('fold-key').hidden]"
    )
    assert (boxes, heads, is_hidden) == ([0, 1, 2], ["▸ x12"], False)


@pytest.mark.parametrize(
    "act",
    [
        f"document.querySelector('#graph .head').{CLICK}",
        pressed("document.querySelector('#graph .head')", "Enter"),
        pressed("document.querySelector('#graph .head')", " "),
        "at('unfold').click()",
    ],
)
def test_a_click_or_a_key_unfolds_a_block(browser: str, tmp_path: Path, act: str) -> None:
    boxes, heads = told(browser, tmp_path, layers(4), f"[{BOXES}, {HEADS}]", act)
    assert (boxes, heads) == (list(range(9)), ["▾ x4"])


def test_a_second_click_folds_it_again(browser: str, tmp_path: Path) -> None:
    click = f"document.querySelector('#graph .head').{CLICK};"
    assert told(browser, tmp_path, layers(4), BOXES, click * 2) == [0, 1, 2]


def test_unfolded_copies_are_below_each_other_and_nothing_overlaps(browser: str, tmp_path: Path) -> None:
    places = told(browser, tmp_path, layers(5), "shape.boxes", "at('unfold').click()")
    for one in places:
        for other in places:
            apart = one["y"] + one["height"] <= other["y"] or other["y"] + other["height"] <= one["y"]
            aside = one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
            assert one is other or apart or aside


def test_a_click_in_the_picture_opens_the_panel_of_the_table(browser: str, tmp_path: Path) -> None:
    act = f"document.querySelector('#graph .kernel[data-kernel=\"1\"]').{CLICK}"
    dom = shown(browser, tmp_path, html_report("m", {"main": explanation()}), act=act)
    assert text_of(dom, "right").startswith(
        "onednn conv2d 2.00 ms a run (1.90 ms to 2.20 ms, 50 runs, measured)"
    )
    assert re.findall(r'class="kernel here" data-kernel="(\d+)"', dom) == ["1"]


def test_a_drag_moves_the_picture_and_chooses_nothing(browser: str, tmp_path: Path) -> None:
    act = f"""
        const at_ = (x, y) => ({{bubbles: true, clientX: x, clientY: y, button: 0, pointerId: 1}});
        const send = (type, x, y) => boxes.get(1).dispatchEvent(new PointerEvent(type, at_(x, y)));
        svg.setPointerCapture = () => {{}};
        const before = {{...view}};
        send('pointerdown', 100, 100);
        send('pointermove', 160, 130);
        send('pointerup', 160, 130);
        boxes.get(1).{CLICK}"""
    value = "[view.x - before.x, view.y - before.y, location.hash]"
    found = told(browser, tmp_path, explanation(), value, act)
    assert found == [60, 30, ""]


@pytest.mark.parametrize(
    ("act", "factor"),
    [
        (pressed("svg", "+"), 1.25),
        (pressed("svg", "-"), 0.8),
        ("at('nearer').click()", 1.25),
        (
            "svg.dispatchEvent(new WheelEvent('wheel', {deltaY: -1000, bubbles: true, cancelable: true}))",
            4.4817,
        ),
    ],
)
def test_keys_buttons_and_the_wheel_zoom(browser: str, tmp_path: Path, act: str, factor: float) -> None:
    setup = "view.scale = 0.5; const before = view.scale;"
    assert told(browser, tmp_path, layers(3), "view.scale / before", setup + act) == pytest.approx(
        factor, rel=1e-3
    )


def test_arrows_go_from_kernel_to_kernel(browser: str, tmp_path: Path) -> None:
    act = "boxes.get(0).focus();" + pressed("document.activeElement", "ArrowDown") * 1
    focus = (
        "[document.activeElement.dataset.kernel, document.querySelectorAll('#scene [tabindex=\"0\"]').length]"
    )
    assert told(browser, tmp_path, explanation(), focus, act) == ["1", 1]


def test_a_search_marks_kernels_by_layer_also_where_their_block_is_folded(
    browser: str, tmp_path: Path
) -> None:
    strong = "[...boxes].filter(([, box]) => !box.classList.contains('pale')).map(([number]) => number)"
    assert told(browser, tmp_path, layers(12), strong, searched("layer7.add")) == [2]


def test_enter_in_the_search_unfolds_and_chooses_the_next_kernel(browser: str, tmp_path: Path) -> None:
    enter = "at('controls').requestSubmit();"
    page = html_report("m", {"main": layers(12)})
    dom = shown(browser, tmp_path, page, act=searched("layer7", enter))
    assert re.findall(r'class="kernel here" data-kernel="(\d+)"', dom) == ["15"]
    assert text_of(dom, "right").startswith("onednn product")


def test_a_chosen_kernel_of_a_folded_block_is_marked_in_the_copy_that_is_shown(
    browser: str, tmp_path: Path
) -> None:
    marked = "[...boxes].filter(([, box]) => box.classList.contains('here')).map(([number]) => number)"
    assert told(browser, tmp_path, layers(12), marked, where="#main:layer7.add") == [2]


def test_the_figures_of_the_picture_are_those_of_the_table(browser: str, tmp_path: Path) -> None:
    act = """
        at('equal').checked = false;
        at('order').value = 'run';
        at('ordering').dispatchEvent(new Event('input'));
        at('unfold').click()"""
    table = "[...at('kernels').tBodies[0].rows].map((row) => [row.cells[2].textContent, row.cells[3].textContent])"
    picture = "[...boxes.values()].map((box) => box.getAttribute('aria-label').split(', ').slice(2, 4))"
    bars = "[...at('bars').rows].map((row) => [...row.cells].slice(0, 3).map((cell) => cell.textContent))"
    head = "document.querySelector('#graph .head .figure').textContent"
    rows, boxes, blocks, block = told(
        browser, tmp_path, layers(3), f"[{table}, {picture}, {bars}, {head}]", act
    )
    assert rows == boxes
    assert rows[:3] == [["500 us", "4.8%"], ["1.00 ms", "9.5%"], ["2.00 ms", "19.0%"]]
    assert blocks == [
        ["1 kernelstem_out", "500 us", "4.8%"],
        ["2 kernels x3layer0.product to layer2.add", "9.00 ms", "85.7%"],
    ]
    assert block == "9.00 ms, 85.7%"


@pytest.mark.parametrize(
    ("by", "rows"),
    [
        ("backend", [["onednn", "9.00 ms", "85.7%"], ["tvm", "500 us", "4.8%"]]),
        ("label", [["add", "6.00 ms", "57.1%"], ["product", "3.00 ms", "28.6%"], ["stem", "500 us", "4.8%"]]),
    ],
)
def test_the_time_is_shown_by_backend_and_by_kind_too(
    browser: str, tmp_path: Path, by: str, rows: list[list[str]]
) -> None:
    act = f"at('by').value = '{by}'; at('by').dispatchEvent(new Event('input', {{bubbles: true}}))"
    cells = "[row.querySelector('button'), row.cells[1], row.cells[2]].map((cell) => cell.textContent)"
    value = f"[[...at('bars').rows].map((row) => {cells}), at('rest').textContent]"
    found, rest = told(browser, tmp_path, layers(3), value, act)
    assert found == rows
    assert rest == "Launches and transitions between backends: 1.00 ms, 9.5%."


def test_names_from_outside_are_only_text_in_the_picture(browser: str, tmp_path: Path) -> None:
    evil = Explanation(
        Proof(1e-3, 1e-3, 0.0, True, "exact"),
        (ExplainedBinding(EVIL, EVIL, EVIL),),
        (ExplainedKernel(0, EVIL),),
        (ExplainedCandidate(0, EVIL, "r", EVIL, (0,), 0, Verdict.CHOSEN),),
        (ExplainedCost("c", 1e-3),),
    )
    assert told(browser, tmp_path, evil, "[document.title, boxes.size]") == ["m", 1]


def test_another_function_has_its_own_picture(browser: str, tmp_path: Path) -> None:
    page = html_report("m", {"main": layers(3), "other": explanation(5)})
    dom = shown(browser, tmp_path, page, "#other:conv4")
    assert len(re.findall(r'class="kernel[^"]*" data-kernel', dom)) == 2  # five equal ones are one
    assert "x5" in text_of(dom, "graph")


NODES = "document.getElementsByTagName('*').length"
MASSES = "[...document.querySelectorAll('.masses path')].map((path) => path.getAttribute('d').split('M').length - 1)"


def test_five_thousand_kernels_are_drawn_as_a_few_elements(browser: str, tmp_path: Path) -> None:
    """A browser's time grows with its elements, and those are the same on a busy machine."""
    nodes, masses, pale, rows = told(
        browser,
        tmp_path,
        chain(5000),
        f"[nodes, masses, {MASSES}, at('kernels').tBodies[0].rows.length]",
        f"const nodes = {NODES}, masses = {MASSES}; {searched('v4999')}",
    )
    assert masses == [100] * 50
    assert pale == [*[100] * 49, 99, 1]
    assert nodes < 3000
    assert rows == 1


def test_what_is_in_sight_of_a_large_picture_is_drawn_whole(browser: str, tmp_path: Path) -> None:
    """From afar a click chooses the nearest kernel; then it is near, with its neighbours."""
    act = """
        const box = places.get(2500), window_ = svg.getBoundingClientRect(), far = [...boxes.keys()];
        const before = view.scale, x = view.x + before * (box.x + 5), y = view.y + before * (box.y + 5);
        svg.dispatchEvent(new MouseEvent('click',
            {clientX: window_.left + x, clientY: window_.top + y, bubbles: true, cancelable: true}));
        mark();
        const hit = chosen().number, own = places.get(hit);
        const off = Math.hypot(own.x - box.x, own.y - box.y) * before;
        boxes.get(hit).focus();
        """ + pressed("document.activeElement", "ArrowDown")
    focus = "places.get(Number(document.activeElement.dataset.kernel))"
    value = f"[far, off, hit, [...boxes.keys()], {focus}.y - own.y, lines.length, {NODES}]"
    far, off, hit, near, lower, lines, nodes = told(browser, tmp_path, chain(5000), value, act)
    assert far == [0] and off < 10
    assert {hit - 1, hit, hit + 1} <= set(near) and len(near) < 600
    assert lines >= 3 and nodes < 6000
    assert lower > 0


def test_a_click_draws_a_large_picture_once_and_only_what_is_in_sight(browser: str, tmp_path: Path) -> None:
    act = """
        let draws = 0;
        const own = drawDetail;
        drawDetail = (...given) => (draws += 1, own(...given));
        const counts = [1000, 4000].map((number) => {
            draws = 0;
            location.hash = address(kernels[number]);
            mark();
            return draws;
        });
        const {width, height} = shape.window, isInSight = ({x, y, width: wide, height: high}) =>
            view.x + view.scale * x < width && view.x + view.scale * (x + wide) > 0 &&
            view.y + view.scale * y < height && view.y + view.scale * (y + high) > 0;
        const hidden = [...boxes.keys()].filter((number) => !isInSight(places.get(number))).length;
        const strip = [...at('strip').children].flatMap((part, index) => part.matches('.here') ? [index] : []);"""
    value = "[counts, boxes.size, hidden, boxes.get(4000).classList.contains('here'), strip]"
    counts, drawn, hidden, is_here, strip = told(browser, tmp_path, chain(5000), value, act)
    assert counts == [1, 1]
    # Out of sight is the stop of the tab key, at most.
    assert drawn > 10 and hidden <= 1
    assert is_here
    assert strip == [400]


def test_the_table_of_many_kernels_is_shown_in_parts(browser: str, tmp_path: Path) -> None:
    count = "at('kernels').tBodies[0].rows.length"
    act = (
        f"const first = {count}; at('more').click(); const second = {count}, left = at('more').textContent; "
    )
    act += "dispatchEvent(new Event('beforeprint'))"
    value = f"[first, second, left, {count}, at('more').hidden]"
    assert told(browser, tmp_path, chain(1500), value, act) == [
        100, 1100, "Show 400 more of 400 rows", 1500, True
    ]  # fmt: skip
