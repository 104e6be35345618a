"""A plan as a graph for Netron and Graphviz: a node for each kernel, with what it reads and what it costs."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from pathlib import Path

import onnx
import pytest

from unity_collage.errors import CollageError
from unity_collage.plan.explanation import (
    ExplainedBinding,
    ExplainedCandidate,
    ExplainedCost,
    ExplainedKernel,
    Explanation,
    Proof,
    Verdict,
)
from unity_collage.plan.plan import Plan
from unity_collage.report.graphs import dot_graph, netron_graph
from unity_collage.report.html import assembled
from unity_collage.report.writing import FORMATS, write_report

BINDINGS = (
    ExplainedBinding("conv", "relax.nn.conv2d", "float32 (1, 8)"),
    ExplainedBinding("act", "relax.nn.relu", "float32 (1, 8)"),
    ExplainedBinding("out", "relax.exp", "float32 (1, 8)"),
)
COSTS = (ExplainedCost("a", 2e-3, 1.9e-3, 2.1e-3, 9, "measured"), ExplainedCost("b", reason="it crashed"))
CANDIDATES = (
    ExplainedCandidate(0, "onednn", "rule", "conv2d+relu", (0, 1), 0, Verdict.CHOSEN, hidden=(0,)),
    ExplainedCandidate(1, "tvm", "rule", "exp", (2,), 1, Verdict.CHOSEN),
)
KERNELS = (ExplainedKernel(0, "fused_conv"), ExplainedKernel(1, reads=(0,), inputs=(1,)))


def explained() -> dict[str, Explanation]:
    proof = Proof(2e-3, 2e-3, 0.0, True, "exact")
    return {
        "main": Explanation(
            proof=proof, bindings=BINDINGS, costs=COSTS, candidates=CANDIDATES, kernels=KERNELS
        )
    }


def test_netron_gets_a_node_for_each_kernel() -> None:
    first, second = onnx.ModelProto.FromString(netron_graph("model", explained())).graph.node
    assert (first.domain, first.op_type, first.name) == ("onednn", "conv2d+relu", "main.fused_conv")
    assert (second.domain, second.op_type, second.name) == ("tvm", "exp", "main.1")
    assert list(first.output) == ["main.act"] == list(second.input)
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in first.attribute}
    assert attributes["bindings"] == [b"conv", b"act"] and attributes["seconds"] == pytest.approx(2e-3)
    assert "seconds" not in {each.name for each in second.attribute}


def test_graphviz_gets_the_lines_between_kernels(tmp_path: Path) -> None:
    text = dot_graph('a "model"', explained())
    assert text.startswith("digraph \"a 'model'\" {") and '  "main:0" -> "main:1";' in text
    assert 'label="conv2d+relu\\nonednn\\n2.00 ms"' in text
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg"], input=text, text=True, check=True, capture_output=True)


@pytest.mark.parametrize("suffix", [".onnx", ".dot"])
def test_the_suffix_of_a_report_names_its_form(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"plan{suffix}"
    assert suffix in FORMATS
    write_report(str(path), "model", {}, explained())
    assert path.stat().st_size > 100


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_report_of_a_file_whose_name_is_no_text_is_written(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"report{suffix}"
    write_report(str(path), "mod\udce8.onnx", {}, explained())
    assert path.stat().st_size and (suffix == ".json" or rb"mod\udce8.onnx" in path.read_bytes())


def test_a_page_of_two_files_whose_names_are_no_text_is_one() -> None:
    assert rb"mod\udce8" in assembled("diff.html", "mod\udce8", {}, (), ()).encode()


def test_numbers_that_json_lacks_are_null(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_report(str(path), "model", {"main": Plan(seconds=math.inf, gap=math.nan)}, {})

    def refused(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    plan = json.loads(path.read_text(), parse_constant=refused)["main"]
    assert plan["seconds"] is plan["gap"] is None
    assert '{"limit": null}' in assembled("diff.html", "m", {"limit": math.inf}, (), ())


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_report_replaces_another_one_in_one_step(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / f"report{suffix}"
    path.write_bytes(b"the last one")
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(CollageError, match="cannot be written"):
        write_report(str(path), "model", {}, explained())
    assert path.read_bytes() == b"the last one"
