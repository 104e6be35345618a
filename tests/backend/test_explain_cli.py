"""``unity-collage explain`` and ``compile --report``, as their user meets them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from said import errors_in

import unity_collage as uc
from unity_collage.cli import main as cli
from unity_collage.frontend.onnx.names import meanings
from unity_collage.plan.encoding import decode, encode
from unity_collage.plan.explanation import Explanation

Run = Callable[..., tuple[int, list[str], list[str]]]

NODES = [
    helper.make_node("MatMul", ["x", "w"], ["/fc/product"], name="/fc/MatMul"),
    helper.make_node("Relu", ["/fc/product"], ["/fc/out"], name="/fc/Relu"),
    helper.make_node("Identity", ["/fc/out"], ["/fc/same"], name="/fc/Identity"),
    helper.make_node("Exp", ["/fc/same"], ["y"], name="/exp"),
]


def model() -> onnx.ModelProto:
    """``y = exp(relu(x @ w))``, with an identity that the importer drops."""

    def value(name: str, *shape: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    w = numpy_helper.from_array(np.ones((4, 3), "float32"), "w")
    graph = helper.make_graph(NODES, "small", [value("x", 2, 4)], [value("y", 2, 3)], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The model and the costs of its kernels, measured once."""
    folder = tmp_path_factory.mktemp("small")
    onnx.save(model(), folder / "small.onnx")
    uc.compile(folder / "small.onnx", database=folder / "costs.sqlite")
    return folder / "small.onnx", folder / "costs.sqlite"


@pytest.fixture
def run(small: tuple[Path, Path], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on the small model, on a terminal of 200 columns: its exit code, output and errors by line."""
    monkeypatch.setenv("COLUMNS", "200")

    def command(name: str, *arguments: object) -> tuple[int, list[str], list[str]]:
        path, costs = small
        code = cli.main([name, str(path), "--database", str(costs), *map(str, arguments)])
        out, err = capfd.readouterr()
        return code, out.splitlines(), errors_in(err)

    return command


def test_the_most_expensive_kernels_come_with_their_runners_up(run: Run) -> None:
    code, out, err = run("explain")
    assert (code, err) == (0, [])
    assert out[0].startswith("main: ") and " candidates" in out[0]
    assert out[1].startswith("The whole plan costs ") and out[1].endswith(
        "no valid plan is cheaper (exact search)."
    )
    assert out[3].split()[:2] == ["kernel", "such"]


@pytest.mark.parametrize("name", ["/fc/Relu", "/fc/out", "fc_out", "relu"])
def test_a_node_is_found_by_what_the_model_calls_it(run: Run, name: str) -> None:
    code, out, err = run("explain", "--node", name)
    assert (code, err) == (0, [])
    text = " ".join(out)
    assert "fc_out (relu) is in " in text
    assert [line.split(":")[0] for line in out if line.startswith(("Why", "Never", "Proof"))] == [
        "Why",
        "Why not",
        "Never in",
        "Proof",
    ]


def test_a_value_that_is_gone_is_answered_for_by_what_came_of_it(run: Run) -> None:
    _, out, _ = run("explain", "--node", "/fc/Identity")
    assert out[0].startswith("/fc/Identity, now ")


def test_an_unknown_node_is_one_line_with_the_closest_names(run: Run) -> None:
    code, out, err = run("explain", "--node", "fc_outt")
    assert (code, out, len(err)) == (1, [], 1)
    assert err[0].startswith(
        "unity-collage: no binding, kernel or operator is called 'fc_outt'; did you mean fc_out"
    )


def test_a_report_as_json_holds_plan_and_explanation(run: Run, tmp_path: Path) -> None:
    code, out, err = run("compile", "--report", tmp_path / "plan.json")
    assert (code, err, out[-1]) == (0, [], f"wrote {tmp_path / 'plan.json'}")
    report = json.loads((tmp_path / "plan.json").read_text())["main"]
    found = decode(Explanation, report["explanation"])
    assert [found.by_id[kernel.candidate].label for kernel in found.kernels] == [
        k["label"] for k in report["kernels"]
    ]
    assert report["seconds"] == found.proof.seconds and report["proved"]
    assert len(report["in_place"]["kernels"]) == len(report["kernels"])
    assert report["measured_seconds"] == report["in_place"]["program"]
    assert {binding.name for binding in found.bindings} >= {"fc_product", "fc_out", "y"}


def test_a_report_as_a_page_is_one_file(run: Run, tmp_path: Path) -> None:
    code, _, err = run("compile", "--report", tmp_path / "plan.html")
    text = (tmp_path / "plan.html").read_text()
    assert (code, err) == (0, [])
    assert "<title>small.onnx</title>" in text and '"fc_out"' in text


def test_a_report_of_another_kind_is_refused_before_anything_is_measured(run: Run, tmp_path: Path) -> None:
    code, out, err = run("compile", "--report", tmp_path / "plan.txt")
    assert (code, out, len(err)) == (2, [], 1)
    assert err[0].endswith("plan.txt: the name of the file ends in .html, .json, .onnx or .dot")


def test_what_explain_tells_is_of_the_plan_that_compile_would_make(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It takes the same options: no Winograd, and layouts to choose from."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal((8, 8, 3, 3), "float32"), name) for name in "vw"]
    images = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 8, 6, 6)) for name in "xz"]
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["y"], name="/first", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["y", "w"], ["z"], name="/second", pads=[1, 1, 1, 1]),
    ]
    graph = helper.make_graph(nodes, "images", images[:1], images[1:], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "m.onnx",
    )
    options = [
        str(tmp_path / "m.onnx"),
        "--database",
        str(tmp_path / "costs.sqlite"),
        "--backends",
        "kernels",
        "tvm",
    ]
    assert cli.main(["explain", *options, "--node", "/first", "--no-winograd", "--search-layouts"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "winograd2 is switched off" in told
    assert "permute_dims" in told


def test_a_program_explains_itself_only_if_asked(small: tuple[Path, Path]) -> None:
    path, costs = small
    assert uc.compile(path, database=costs).explanation is None
    program = uc.compile(
        path, database=costs, explain=True, locked=True
    )  # names of values are in no cost's key
    assert program.input_names == ("x",)
    told = program.explanation["main"]
    assert decode(Explanation, json.loads(json.dumps(encode(told)))) == told
    expected = np.exp(np.full((2, 3), 4.0, "float32"))
    np.testing.assert_allclose(program(np.ones((2, 4), "float32")).numpy(), expected, rtol=1e-5)


def test_what_a_name_may_mean_is_its_own_values_then_what_reads_them() -> None:
    assert list(meanings(model(), "/fc/MatMul")) == ["fc_MatMul", "fc_product", "fc_out", "fc_same", "y"]
    assert list(meanings(model(), "w")) == ["w", "fc_product", "fc_out", "fc_same", "y"]
