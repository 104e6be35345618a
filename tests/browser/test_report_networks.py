"""The report of two networks: the picture is folded by block, fits the window, and its sums are those of the plan.

Kernels have costs by hand, so nothing is measured or built.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tvm
from test_report_picture import told

from unity_collage.compiler import explain
from unity_collage.examples.models import example
from unity_collage.pipeline import Pipeline
from unity_collage.report import duration
from unity_collage.testing.fixed_cost import FixedCost

COSTS = FixedCost({"tvm:softmax": 2e-4}, default=1e-3, launch=1e-5)

FOLDED = "[...document.querySelectorAll('#graph .head')].map((head) => head.getAttribute('aria-label').split(', '))"
DRAWN = "[boxes.size, shape.width * view.scale <= shape.window.width, shape.height * view.scale <= shape.window.height]"
BARS = "[...at('bars').rows].map((row) => [row.querySelector('button'), row.cells[1]].map((cell) => cell.textContent))"


@pytest.mark.parametrize(
    ("name", "blocks", "drawn"),
    [
        ("resnet50", [("3 kernels", f"{times} times") for times in (2, 3, 5, 2)], 33),
        ("bert_base_128", [("11 kernels", "12 times")], 12),
    ],
)
def test_a_network_is_folded_by_block_and_fits_the_window(
    browser: str, tmp_path: Path, name: str, blocks: list[tuple[str, str]], drawn: int
) -> None:
    # Not under the contract, which parses the script of each stage with all weights.
    with tvm.transform.PassContext():
        explained = explain(example(name).make(), Pipeline(backends=("tvm",), model=COSTS))["main"]
    value = f"[{FOLDED}, {DRAWN}, {BARS}, at('rest').textContent]"
    folded, fits, bars, rest = told(browser, tmp_path, explained, value)
    assert [(block, times) for block, times, *_ in folded] == [
        (f"block of {size}", times) for size, times in blocks
    ]
    assert fits == [drawn, True, True]
    seconds = {number: explained.seconds(kernel) for number, kernel in enumerate(explained.kernels)}
    at = 0
    for title, shown in bars:
        size, copies = re.fullmatch(r"(\d+) kernels?(?: x(\d+))?", title).groups(default="1")
        end = at + int(size) * int(copies)
        assert shown == duration(sum(seconds[number] for number in range(at, end)))
        at = end
    assert at == len(explained.kernels)
    left = explained.proof.seconds - sum(seconds.values())
    assert f"Launches and transitions between backends: {duration(left)}" in rest
