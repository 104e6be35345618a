"""``uc.show`` and what notebooks show: the figures are those of the tables."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
import tvm
from test_given_plan import BACKENDS, LIBRARY, network, partitioned
from tvm.ir import IRModule

import unity_collage as uc
from unity_collage.annotations import PLAN
from unity_collage.errors import CollageError
from unity_collage.pipeline import Pipeline
from unity_collage.plan.encoding import decode, encode
from unity_collage.plan.plan import Plan, PlannedKernel


def rows(text: Any) -> list[str]:
    """The lines without the spaces between columns."""
    return [" ".join(line.split()) for line in str(text).splitlines()]


def until(passes: list[Any]) -> IRModule:
    with uc.host_target():
        return tvm.transform.Sequential(passes)(network())


def test_a_partitioned_module_has_a_line_for_each_kernel() -> None:
    shape = "float32[4, 8] -> float32[4, 8]"
    assert rows(uc.show(partitioned(LIBRARY))) == [
        "main: 3 kernels, predicted 6.50 us",
        "",
        "kernel backend operators shapes cost share",
        f"fused_matmul_relu_onednn onednn matmul+relu {shape} 1.00 us 15.4%",
        f"fused_softmax_tvm tvm softmax {shape} 3.00 us 46.2%",
        f"fused_matmul_relu_onednn_1 onednn matmul+relu {shape} 1.00 us 15.4%",
        "",
        "and 3 functions of kernels",
    ]


def test_only_some_lines_are_shown_if_asked() -> None:
    assert "(2 kernels more)" in rows(uc.show(partitioned(LIBRARY), rows=1))


def test_a_module_before_the_search_has_its_candidates() -> None:
    pipeline = Pipeline(backends=BACKENDS, model=LIBRARY)
    without, costed = until(pipeline.until_candidates()), until(pipeline.until_costs())
    assert rows(uc.show(without))[0] == "main: 12 candidates, no costs yet; backends declined 4 bindings"
    shown = rows(uc.show(costed))
    assert shown[0] == "main: 12 candidates, 12 with a cost; backends declined 4 bindings"
    assert "matmul+relu onednn 2 1.00 us" in shown


def test_a_module_of_others_is_shown_too() -> None:
    assert rows(uc.show(network())) == ["main: 5 bindings, no candidates and no plan"]


def test_the_final_module_has_the_shapes_of_calls_in_destination_passing_style() -> None:
    program = uc.compile(network(), backends=BACKENDS, measure=False)
    found = [row for row in rows(uc.show(program.mod)) if row.startswith("fused_")]
    assert found and all("float32[4, 8] -> float32[4, 8]" in row for row in found)


def test_the_script_lacks_our_attributes_only() -> None:
    mod = partitioned(LIBRARY)
    script = str(uc.show(mod, script=True))
    assert script.startswith("# left out: collage.plan, of 1 function\n")
    assert '"collage.plan"' in mod.script() and '"collage.' not in script
    assert 'R.func_attr({"Codegen": "onednn"})' in script
    assert script.count("@R.function") == mod.script().count("@R.function")


def texts(html: str) -> list[str]:
    """The cells of all tables."""
    cells = re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", html)
    return [unescape(re.sub("<[^>]*>", "", cell)).strip() for cell in cells]


@pytest.mark.parametrize("which", ["module", "plan", "plans", "program"])
def test_a_notebook_shows_the_figures_of_the_text(which: str) -> None:
    mod = partitioned(LIBRARY)
    program = uc.compile(network(), backends=BACKENDS, measure=False)
    program.plan = PLAN.by_function(mod)
    value = {"module": uc.show(mod), "plan": program.plan["main"], "plans": program.plan, "program": program}[
        which
    ]
    html, text = value._repr_html_(), str(value if which == "module" else uc.show(value))
    cells = texts(html)
    assert "onednn" in cells and len(cells) > 12
    for cell in cells:
        assert cell in text


def test_names_are_only_text_in_a_notebook() -> None:
    evil = "<script>[bold]x"
    plan = Plan((PlannedKernel(0, evil, evil, evil, (evil,), 1e-3),), 1e-3)
    assert evil in texts(plan._repr_html_())
    assert "<script>" not in plan._repr_html_()


def test_plans_stay_plain_data() -> None:
    """A notebook's base class adds no field."""
    plans = PLAN.by_function(partitioned(LIBRARY))
    assert decode(Plan, encode(plans["main"])) == plans["main"]


@pytest.mark.parametrize("value", [3, {}, {"main": 3}, None])
def test_what_cannot_be_shown_is_refused(value: Any) -> None:
    with pytest.raises(CollageError, match="show takes a module, a program, plans"):
        uc.show(value)


def test_only_modules_have_a_script() -> None:
    with pytest.raises(CollageError, match="only a module has a script, not Plan"):
        uc.show(Plan(), script=True)
